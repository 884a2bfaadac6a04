"""Every route declares what it answers, and the check that tests make of answers finds what breaks a type."""

from __future__ import annotations

import typing
from dataclasses import replace
from typing import Annotated, Any

import orjson
import pytest
from typing_extensions import is_typeddict

from chalicelib import contract
from chalicelib.api import dispatch
from chalicelib.api.route import Answer, Call, Route, of_agents, of_directories
from chalicelib.api.routes import BUILT, ByName
from docs.openapi.declared import JSON, NOTHING, answers_of, declared
from tests.api.rig import ADMIN, Rig, submit, task
from tests.harness.contract import check

OURS = [route for route in BUILT if not of_agents(route) and not of_directories(route)]


def within(kind: Any) -> set[Any]:
    """The types that a type is made of, itself included."""
    found, waiting = set(), [kind]
    while waiting:
        one = waiting.pop()
        if one not in found and not isinstance(one, str):
            found.add(one)
            waiting += typing.get_args(one)
            waiting += typing.get_type_hints(one, include_extras=True).values() if is_typeddict(one) else []
    return found


def test_every_route_declares_its_answer() -> None:
    for route in OURS:
        found = declared(route)
        assert found is not None
        assert found.media != JSON or found.answer not in (Any, dict, object), route.path


def test_an_answer_says_what_it_is() -> None:
    assert answers_of(contract.Run)[:3] == (contract.Run, JSON, 200)
    assert answers_of(Annotated[Answer, contract.Run, 201])[:3] == (contract.Run, JSON, 201)
    assert answers_of(Annotated[Answer, "text/plain"])[:3] == (None, "text/plain", 200)
    assert answers_of(Annotated[Answer, 204])[:3] == (None, NOTHING, 204)
    with pytest.raises(TypeError, match="needs its content type"):
        answers_of(Answer)


def test_every_type_is_part_of_an_answer_or_of_a_document() -> None:
    answered = {
        kind
        for route in OURS
        if (found := declared(route))
        for answer in (found.answer, found.dry_run)
        for kind in within(answer)
    }
    errors = (contract.Failure, contract.Denied, contract.NoRoute, contract.ErrorDocument, contract.V1Problem)
    answered = answered.union(*map(within, (*errors, *contract.PRINTED.values())))
    assert [name for name, kind in vars(contract).items() if is_typeddict(kind) and kind not in answered] == []


def get(rig: Rig) -> tuple[Route, dispatch.Reply, dict[str, Any]]:
    submit(rig, task())
    path = "/api/project/main/runs/get"
    found = dispatch.match(path)
    assert found is not None
    body = rig.call(path, {"run_name": "hello"}).body
    return found.routes["POST"], dispatch.Reply(200, {}, body), orjson.loads(body)


def without(answer: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != key}


def test_an_answer_that_breaks_its_type_fails_the_test(rig: Rig) -> None:
    route, reply, answer = get(rig)
    check(route, reply)
    for broken in (
        without(answer, "status"),
        {**answer, "status": "sleeping"},
        {**answer, "of_tomorrow": 1},
        {**answer, "cost": "1"},
        {**answer, "jobs": [without(answer["jobs"][0], "job_spec")]},
        {**answer, "message": None},
    ):
        with pytest.raises(AssertionError, match="runs/get breaks its contract with 200"):
            check(route, reply._replace(body=orjson.dumps(broken)))


def test_so_does_an_error_in_another_form(rig: Rig) -> None:
    route, reply, _ = get(rig)
    check(route, reply._replace(status=400, body=b'{"detail": [{"msg": "no", "code": "error"}]}'))
    with pytest.raises(AssertionError, match="with 400"):
        check(route, reply._replace(status=400, body=b'{"detail": "no"}'))
    with pytest.raises(AssertionError, match="with 403"):
        check(route, reply._replace(status=403, body=b'{"detail": [{"msg": "no", "code": "error"}]}'))


class Wrong(ByName):
    def __call__(self, call: Call) -> Answer:
        return Answer(b'{"id": 1}')


def test_every_answer_in_a_test_is_checked(rig: Rig) -> None:
    route, *_ = get(rig)
    request = dispatch.Request("POST", "", {}, {"authorization": f"Bearer {ADMIN}"})
    with pytest.raises(AssertionError, match="runs/get breaks its contract"):
        dispatch.serve(rig.world.plane, replace(route, handler=Wrong("runs.get")), {"project_name": "main"}, request)
