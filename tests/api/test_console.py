"""The console over HTTP: for everybody, cached by what is in the files, under rules that let nothing else run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path

import pytest

from chalicelib import console
from chalicelib.api import dispatch
from chalicelib.api.dispatch import Reply
from chalicelib.api.route import Answer, Call
from chalicelib.api.routes.console import answered
from tests.api.rig import Rig


def get(rig: Rig, path: str, **headers: str) -> Reply:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return dispatch.answer(rig.world.plane, dispatch.Request("GET", path, {}, given))


def rules(reply: Reply) -> dict[str, str]:
    return dict(rule.split(" ", 1) for rule in reply.headers["Content-Security-Policy"].split("; "))


def test_the_page_may_run_its_own_scripts_and_nothing_else(rig: Rig) -> None:
    reply = get(rig, "/")
    assert reply.status == 200 and reply.headers["Content-Type"] == "text/html; charset=utf-8"
    inline = re.findall(rb"<script(?: type=.importmap.)?>(.*?)</script>", reply.body, re.DOTALL)
    slash, imports = (base64.b64encode(hashlib.sha256(each).digest()).decode() for each in inline)
    assert rules(reply) == {
        "default-src": "'none'",
        "script-src": f"'self' 'sha256-{slash}' 'sha256-{imports}'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert reply.headers["X-Content-Type-Options"] == "nosniff" and reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Cross-Origin-Opener-Policy"] == "same-origin" and "Set-Cookie" not in reply.headers


def test_all_that_the_page_loads_is_there_below_wherever_it_is_mounted(rig: Rig) -> None:
    page = get(rig, "/").body.decode()
    loaded = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r'": "([^"]*)"', page)
    files = [path.removeprefix("./") for path in loaded if not path.startswith("data:")]
    assert len(files) == 6 and all(path.startswith("console/") for path in files)
    for path in files:
        reply = get(rig, f"/{path}")
        assert reply.status == 200, path
        assert reply.headers["Content-Type"].partition(";")[0] in {"text/css", "text/javascript"}
        assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_whoever_has_a_file_gets_nothing(rig: Rig) -> None:
    for path in ("/", "/console/app/main.js"):
        first = get(rig, path)
        again = get(rig, path, if_none_match=first.headers["ETag"])
        assert first.headers["Cache-Control"] == "no-cache"
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
        assert get(rig, path, if_none_match='"older"').status == 200


OTHERS = (
    "__init__.py",
    "package.json",
    "index.html",
    "app/../__init__.py",
    "app/none.js",
    "vendor/preact/LICENSE",
    "app",
)


@pytest.mark.parametrize("name", [*OTHERS, "..", "app/%2e%2e/__init__.py"])
def test_other_files_are_not_served(rig: Rig, name: str) -> None:
    reply = get(rig, f"/console/{name}")
    assert reply.status == 404 and b"import" not in reply.body


def test_a_bundle_is_kept_for_good_and_sent_compressed(rig: Rig, tmp_path: Path) -> None:
    for name, text in (("index.html", b"<!doctype html>"), ("main-A1B2C3D4.js", b"1;" * 999)):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))
    file = console.file("main-A1B2C3D4.js", tmp_path)
    assert file is not None and console.file("app/main.js", tmp_path) is None

    def sent(to: str, what: console.File = file) -> Answer:
        return answered(Call(rig.world.plane, headers={"accept-encoding": to}), what)

    script, zipped, page = sent("identity"), sent("br, gzip"), sent("gzip", console.index(tmp_path))
    assert script.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert zipped.headers["Content-Encoding"] == "gzip" and gzip.decompress(zipped.body) == script.body
    assert zipped.headers["ETag"] == script.headers["ETag"] and script.headers["Vary"] == "Accept-Encoding"
    assert page.headers["Cache-Control"] == "no-cache"
    assert "script-src 'self';" in page.headers["Content-Security-Policy"]
    assert gzip.decompress(page.body) == b"<!doctype html>"


def test_a_browser_that_comes_back_from_a_provider_is_sent_to_the_page(rig: Rig) -> None:
    query = {"code": "a b&c", "state": "s", "session_state": "of the provider"}
    request = dispatch.Request("GET", "/auth/corp/callback", query, {})
    reply = dispatch.answer(rig.world.plane, request)
    assert reply.status == 303 and reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["Location"] == "../../#sign-on=corp&code=a+b%26c&state=s"
