"""The API's description over HTTP: for everybody, cached by its content, under rules that let nothing else run."""

from __future__ import annotations

import base64
import hashlib
import re

import orjson
import pytest

from chalicelib.api import dispatch
from chalicelib.api.dispatch import Reply
from chalicelib.configuration.schema import configuration_schema
from tests.api.rig import Rig


def get(rig: Rig, path: str, **headers: str) -> Reply:
    return dispatch.answer(rig.world.plane, dispatch.Request("GET", path, {}, headers))


def test_the_document_is_there_for_everybody(rig: Rig) -> None:
    reply = get(rig, "/openapi.json")
    assert reply.status == 200 and reply.headers["Content-Type"].startswith("application/vnd.oai.openapi+json")
    assert orjson.loads(reply.body)["openapi"] == "3.1.0"


@pytest.mark.slow
def test_so_is_the_schema_of_configurations(rig: Rig) -> None:
    reply = get(rig, "/configuration.schema.json")
    assert reply.status == 200 and reply.headers["Content-Type"] == "application/schema+json"
    assert orjson.loads(reply.body) == orjson.loads(orjson.dumps(configuration_schema()))


def test_who_has_it_already_gets_nothing(rig: Rig) -> None:
    for path in ("/openapi.json", "/docs", "/configuration.schema.json"):
        etag = get(rig, path).headers["ETag"]
        again = dispatch.Request("GET", path, {}, {"if-none-match": etag})
        reply = dispatch.answer(rig.world.plane, again)
        assert (reply.status, reply.body, reply.headers["ETag"]) == (304, b"", etag)
        for known in (f"W/{etag}", f'"older", W/"x,y",{etag}', "*"):
            assert get(rig, path, **{"if-none-match": known}).status == 304, known
        older = dispatch.Request("GET", path, {}, {"if-none-match": '"older"'})
        assert dispatch.answer(rig.world.plane, older).status == 200


def test_the_page_runs_its_own_script_and_nothing_else(rig: Rig) -> None:
    reply = get(rig, "/docs")
    rules = dict(rule.split(" ", 1) for rule in reply.headers["Content-Security-Policy"].split("; "))
    (script,) = re.findall(rb"<script>(.*?)</script>", reply.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'" and rules["default-src"] == "'none'"
    assert b"http://" not in reply.body and b"https://" not in reply.body and b"innerHTML" not in reply.body
