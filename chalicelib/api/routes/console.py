"""The web console: one page, and the files that it loads. What it shows it gets from the API, as its user may."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

from chalicelib import console
from chalicelib.api import etags
from chalicelib.api.route import Answer, Call
from chalicelib.errors import NoSuchFile

HTML, FILE = console.MEDIA[".html"], console.MEDIA[".js"]


def page(call: Call) -> Annotated[Answer, HTML]:
    """The console, to use in a browser."""
    return answered(call, console.index(console.BUNDLED))


def file(call: Call) -> Annotated[Answer, FILE, HTTPStatus.OK, HTTPStatus.NOT_FOUND]:
    """A file that the console's page loads."""
    name = "/".join(call.params.values())
    found = console.file(name, console.BUNDLED)
    if found is None:
        raise NoSuchFile("The console has no such file.", hint="It may be another version's: load the page again.")
    return answered(call, found)


def answered(call: Call, file: console.File) -> Answer:
    """The file, compressed if the browser can read that; or nothing where it has the file already."""
    etag = etags.of(file.content)
    headers = {**file.headers, "ETag": f"W/{etag}", "Vary": "Accept-Encoding"}  # weak: compressed or not
    if etags.has(call.headers.get("if-none-match", ""), etag):
        return Answer(b"", status=304, content_type=file.media, headers=headers)
    if file.zipped is not None and "gzip" in call.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Answer(file.zipped, content_type=file.media, headers=headers)
    return Answer(file.content, content_type=file.media, headers=headers)


def signed_on(call: Call) -> Annotated[Answer, HTTPStatus.SEE_OTHER]:
    """Where an account provider sends a browser back: on to the page, which finishes the sign-on. What only the page
    should see is behind the `#`, which no server and no log gets."""
    given = {name: call.query[name] for name in ("code", "state", "error") if name in call.query}
    place = f"../../#{urlencode({'sign-on': call.params['provider'], **given})}"
    headers = {"Location": place, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Answer(b"", status=HTTPStatus.SEE_OTHER, headers=headers)
