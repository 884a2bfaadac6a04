"""The web console as it is deployed: bundled, behind the stage of an API, by the same rules as elsewhere."""

from __future__ import annotations

import gzip
import re
import urllib.error
import urllib.request

import pytest

from chalicelib.console import bundle
from tests.console.harness.browser import HOME, Browser
from tests.e2e.aws.deployment import PATIENCE
from tests.e2e.aws.journey import Journey
from tests.harness.server import ROOT

FIRST = 4  # files of the first load


def console(trip: Journey) -> None:
    """The page and its bundled files come with their rules, and whoever has them gets nothing again."""
    if not (ROOT / bundle.TOOLS / ".installed").exists():
        pytest.skip("the console's packages aren't installed here; `make test` installs them into .venvs")
    headers, page = _got(trip, "/")
    rules = headers["content-security-policy"]
    assert "default-src 'none'" in rules and "require-trusted-types-for 'script'" in rules and "unsafe" not in rules
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert headers["cache-control"] == "no-cache" and _status(trip, "/", headers["etag"]) == 304
    files = re.findall(r'"console/([^"]+)"', page)
    assert 1 < len(files) < FIRST and "importmap" not in page, files
    for name in files:
        headers, text = _got(trip, f"/console/{name}")
        assert "immutable" in headers["cache-control"] and headers["x-content-type-options"] == "nosniff", name
        assert headers["content-type"].startswith(("text/css", "text/javascript")) and len(text) > 1_000, name
    if not (HOME / ".installed").exists():
        pytest.skip("the browser of tests isn't installed here; `make test` installs it into .venvs")
    _used(trip)


def _used(trip: Journey) -> None:
    """Somebody signs in with a token in a browser, and the pages that it opens are kept up to date."""
    browser = Browser()
    try:
        tab = browser.tab(trip.one.url, first=True)
        tab.open("#/main/offers")
        tab.sign_in(trip.one.token)
        tab.heading("Offers")
        tab.go("#/main/runs")
        tab.heading("Runs")
        tab.shows("Live", css=".live")
        tab.close()
    finally:
        browser.close()


def _got(trip: Journey, path: str) -> tuple[dict[str, str], str]:
    asked = urllib.request.Request(trip.one.url + path, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as reply:
        headers = {name.lower(): value for name, value in reply.getheaders()}
        body = reply.read()  # the emulator's gateway keeps the encodings that a caller takes to itself
        return headers, (gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body).decode()


def _status(trip: Journey, path: str, etag: str) -> int:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(trip.one.url + path, headers={"If-None-Match": etag}), timeout=PATIENCE
        ) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
