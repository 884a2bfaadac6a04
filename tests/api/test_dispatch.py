"""Versions, paths, methods, tokens and bodies: what all routes have in common."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from chalicelib.api import dispatch
from chalicelib.api.encode import encode
from chalicelib.api.route import Access, Answer, Call, Route
from chalicelib.api.routes import ROUTES
from chalicelib.errors import Bug, Conflict, Invalid, Problem
from chalicelib.usecases.context import SizeLimits
from tests.api.rig import ADMIN, Rig

KNOWN = orjson.loads((Path(__file__).parent / "known_paths.json").read_bytes())


@pytest.mark.parametrize("version", [None, "0.22.5", "0.22", "0.22.99", "0.22.5rc1", "latest"])
def test_clients_of_the_line_are_served(rig: Rig, version: str | None) -> None:
    headers = {} if version is None else {"X_API_VERSION": version}
    assert rig.call("/api/runs/list", {}, **headers).status == 200


@pytest.mark.parametrize("version", ["0.23.0", "1.0.0", "0.18.1", "22", "", "Latest", "0.22.5\n", "9" * 400])
def test_others_are_told_which_client_to_take(rig: Rig, version: str) -> None:
    reply = rig.call("/api/runs/list", {}, X_API_VERSION=version)
    assert reply.status == 400 and b"0.22" in reply.body


def test_the_version_is_asked_before_the_token(rig: Rig) -> None:
    assert rig.call("/api/runs/list", {}, token=None, X_API_VERSION="0.23.0").status == 400


@pytest.mark.parametrize(
    "path", ["/nothing", "/api", "/api/project//runs/get", "/api/project/main/runs", "/api/presets/push", "/x" * 900]
)
def test_an_undeclared_path_is_a_json_404(rig: Rig, path: str) -> None:
    reply = rig.call(path)
    assert reply.status == 404 and isinstance(reply.json["detail"], str)


def test_a_wrong_method_is_a_json_405(rig: Rig) -> None:
    reply = rig.call("/api/runs/list", method="GET")
    assert reply.status == 405 and "POST" in reply.json["detail"]


def test_every_path_that_clients_know_is_declared() -> None:
    missing = [
        f"{method} {path}" for path, methods in KNOWN.items() for method in methods if not _declared(path, method)
    ]
    assert missing == []


def _declared(path: str, method: str) -> bool:
    found = dispatch.match(path)
    return found is not None and method in found.routes


def test_what_is_not_built_is_refused_by_name(rig: Rig) -> None:
    assert "SSH proxy" in rig.refused("/api/sshproxy/get_upstream")


def test_nobody_needs_a_token_to_hear_that_there_is_no_single_sign_on(rig: Rig) -> None:
    reply = rig.call("/api/auth/list_providers", token=None)
    assert (reply.status, reply.json) == (200, [])


def test_a_route_with_a_fixed_word_wins_over_a_parameter() -> None:
    found = dispatch.match("/api/project/main/backends/create_yaml")
    assert found is not None and found.template.endswith("/create_yaml")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer nobody", "bearer\x00", "Bearer é", "x" * 5000]
)
def test_a_bad_token_is_a_403_with_an_object(rig: Rig, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    reply = rig.call("/api/runs/list", {}, token=None, **headers)
    assert reply.status in (400, 403)
    if reply.status == 403:
        assert reply.json["detail"]["code"] is None


def test_an_inactive_user_is_shut_out_at_once(rig: Rig) -> None:
    token = rig.user("ann")
    assert rig.call("/api/runs/list", {}, token=token).status == 200
    rig.deactivate("ann")
    reply = rig.call("/api/runs/list", {}, token=token)
    assert reply.status == 403 and "deactivated" in reply.json["detail"]["msg"]


def test_an_unknown_project_is_a_404_but_only_for_those_with_a_token(rig: Rig) -> None:
    assert rig.call("/api/project/nope/runs/get", {}).status == 404
    assert rig.call("/api/project/nope/runs/get", {}, token="wrong").status == 403


def test_a_body_that_is_not_json_says_where(rig: Rig) -> None:
    message = rig.refused("/api/runs/list", b'{"limit": 5,\n oops}')
    assert "line 2" in message and "JSON" in message


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b'"x"', b"7", b"\xff\xfe", b'"\\ud800"', b"{" * 5000, b"[" * 5000 + b"]" * 5000]
)
def test_a_body_that_is_no_object_is_refused(rig: Rig, body: bytes) -> None:
    assert rig.refused("/api/runs/list", body)


def test_an_absent_body_is_an_empty_object(rig: Rig) -> None:
    assert rig.call("/api/runs/list").json == rig.call("/api/runs/list", {}).json == []


def test_unknown_keys_of_an_envelope_are_ignored(rig: Rig) -> None:
    assert rig.ok("/api/runs/list", {"a_key_of_tomorrow": {"x": 1}}) == []


def test_every_problem_of_a_body_is_told_with_its_field(rig: Rig) -> None:
    reply = rig.call("/api/runs/list", {"limit": 1000, "prev_run_id": "x", "prev_submitted_at": "soon"})
    (entry,) = reply.json["detail"]
    assert reply.status == 400 and set(entry["fields"]) == {"limit", "prev_run_id", "prev_submitted_at"}


def test_a_large_body_is_refused_with_the_limit(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path, limits=SizeLimits(body=1000))
    assert "MB" in rig.refused("/api/runs/list", b" " * 1001)


# --- what handlers raise and return ---------------------------------------------------------------------------------


def serve(rig: Rig, handler: object, access: Access = Access.public) -> dispatch.Reply:
    route = Route("POST", "/api/x", access, handler)  # type: ignore[arg-type]
    return dispatch.serve(rig.world.plane, route, {}, dispatch.Request("POST", "/api/x"))


def test_a_bug_is_logged_under_the_id_that_the_answer_names(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def fails(call: Call) -> None:
        raise Bug("secret detail")

    with caplog.at_level(logging.ERROR):
        reply = serve(rig, fails)
    (entry,) = orjson.loads(reply.body)["detail"]
    number = entry["msg"].split("error id ")[1].split(")")[0]
    assert reply.status == 500 and entry["code"] == "error" and b"secret" not in reply.body
    assert number in caplog.text and "secret detail" in caplog.text


def test_an_unexpected_exception_is_a_bug_too(rig: Rig) -> None:
    assert serve(rig, lambda call: 1 / 0).status == 500
    assert serve(rig, lambda call: object()).status == 500


def test_problems_travel_as_one_entry_with_their_fields(rig: Rig) -> None:
    def fails(call: Call) -> None:
        raise Invalid([Problem("is wrong", "a.b", hint="so"), Problem("is worse", "c")])

    (entry,) = orjson.loads(serve(rig, fails).body)["detail"]
    assert entry == {"msg": "a.b: is wrong (so)\nc: is worse", "code": "error", "fields": ["a.b", "c"]}


def test_an_answer_is_sent_as_it_is(rig: Rig) -> None:
    reply = serve(rig, lambda call: Answer(b"\x00\x01", 201, "application/octet-stream", {"X-Part": "1"}))
    assert (reply.status, reply.body, reply.headers["X-Part"]) == (201, b"\x00\x01", "1")
    assert reply.headers["Content-Type"] == "application/octet-stream"


def test_a_route_asks_for_a_known_access() -> None:
    assert {type(route.access) for route in ROUTES} == {Access}


# --- the size of an answer ------------------------------------------------------------------------------------------


def row(number: int, size: int) -> dict[str, object]:
    spec = {
        "configuration": {"commands": ["x" * size], "env": {"A": "y" * size}, "name": "n" * 10},
        "file_archives": [1, 2],
    }
    job = {"job_spec": {"commands": ["z" * size], "env": {}, "image_name": "i"}, "job_submissions": [{"id": number}]}
    return {"id": number, "run_spec": orjson.Fragment(orjson.dumps(spec)), "jobs": [job]}


def test_a_small_answer_is_left_alone() -> None:
    text = encode([row(1, 10)], 10_000)
    assert orjson.loads(text)[0]["run_spec"]["configuration"]["commands"] == ["x" * 10]


def test_a_large_listing_loses_bulk_but_no_row() -> None:
    text = encode([row(number, 5000) for number in range(50)], 100_000)
    rows = orjson.loads(text)
    assert len(text) <= 100_000 and [r["id"] for r in rows] == list(range(50))
    spec = rows[0]["run_spec"]
    assert (spec["configuration"]["env"], spec["file_archives"]) == ({}, [])
    assert spec["configuration"]["commands"] == ["x" * 199 + "…"], "clients read no task without commands"
    assert rows[0]["jobs"][0]["job_spec"] == {"commands": ["z" * 199 + "…"], "env": {}, "image_name": "i"}


def test_what_is_long_elsewhere_is_cut() -> None:
    big = {"id": 1, "run_spec": {"configuration": {"tags": {str(n): "t" * 900 for n in range(300)}}}, "jobs": []}
    text = encode([big], 50_000)
    assert len(text) <= 50_000 and orjson.loads(text)[0]["id"] == 1


def test_admin_token_of_the_rig_works_with_any_case_of_bearer(rig: Rig) -> None:
    assert rig.call("/api/runs/list", {}, token=None, Authorization=f"bEaReR {ADMIN}").status == 200


def test_a_run_of_many_submissions_keeps_the_latest() -> None:
    submissions = [{"submission_num": number, "message": "m" * 500} for number in range(1000)]
    one = {
        "id": 1,
        "jobs": [{"job_spec": {}, "job_submissions": submissions}],
        "latest_job_submission": submissions[-1],
    }
    text = encode(one, 50_000)
    latest = orjson.loads(text)["jobs"][0]["job_submissions"]
    assert len(text) <= 50_000 and latest == submissions[-len(latest) :]


def test_what_no_cut_makes_small_enough_is_refused_with_the_way_out(rig: Rig) -> None:
    plane = replace(rig.world.plane, limits=SizeLimits(answer=10_000))
    route = Route("POST", "/api/x", Access.public, lambda call: [{"id": number} for number in range(2000)])
    reply = dispatch.serve(plane, route, {}, dispatch.Request("POST", "/api/x"))
    assert reply.status == 400 and b"limit" in reply.body


def test_a_handler_that_lost_a_race_looks_again(rig: Rig) -> None:
    """Who initialises a repo or sets a secret at the same moment as another doesn't hear of it."""
    seen: list[Call] = []

    def handler(call: Call) -> object:
        seen.append(call)
        if len(seen) < 3:
            raise Conflict("some/record")
        return {"looked": len(seen)}

    route = Route("POST", "/api/race", Access.public, handler)
    reply = dispatch.serve(rig.world.plane, route, {}, dispatch.Request("POST", "/api/race"))
    assert (reply.status, orjson.loads(reply.body)) == (200, {"looked": 3})


def test_a_race_that_is_always_lost_is_told(rig: Rig) -> None:
    def handler(call: Call) -> object:
        raise Conflict("some/record")

    route = Route("POST", "/api/race", Access.public, handler)
    reply = dispatch.serve(rig.world.plane, route, {}, dispatch.Request("POST", "/api/race"))
    assert reply.status == 400 and b"meanwhile. Try again." in reply.body
