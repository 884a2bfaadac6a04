"""What every fake does, of whatever provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from chalicelib.domain.instants import SECOND
from tests.backends.clock import Clock
from tests.backends.fakes import forms
from tests.backends.fakes.books import GONE, Books
from tests.backends.fakes.schema import Api, Problem
from tests.backends.fakes.script import Answer, Call, Cut, Fault, Rate, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, WrongFake, answers
from tests.backends.fakes.transport import InProcess, serving

ITEM = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
MEDIA = {"application/json": {"schema": ITEM}}
DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {
        "/items": {
            "post": {
                "operationId": "add",
                "parameters": [{"name": name, "in": "query", "schema": {}} for name in ("colour", "size")],
                "requestBody": {"required": True, "content": MEDIA},
                "responses": {"200": {"content": MEDIA}},
            },
        }
    },
}


class Shop(Fake):
    api = Api(forms.read(DOCUMENT, ["add"], "a test"))
    reply: Any = None

    def authenticate(self, request: Request) -> None:
        if request.headers.get("authorization") != "Bearer key":
            raise Refusal(401, {"error": "who are you?"})

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        return Refusal({"no-route": 404, "invalid": 422, "throttled": 429}[why], {"error": message})

    def tolerates(self, problem: Problem) -> bool:
        return problem.where == "body.comment"

    @answers("add")
    def _add(self, call: Call) -> Any:
        self.books.add("item", (0, "there"), **call.body, colour=call.query.get("colour"))
        return self.reply or {"name": call.body["name"]}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shop(clock: Clock) -> Shop:
    return Shop(clock.now, Script())


def add(shop: Shop, body: Any = None, path: str = "/items", key: str = "key") -> Answer:
    sent = body if isinstance(body, bytes) else json.dumps(body or {"name": "a"}).encode()
    return shop.answer(Request("POST", path, {"authorization": f"Bearer {key}"}, sent))


def test_a_request_is_refused_at_the_first_gate_that_it_doesnt_pass(shop: Shop) -> None:
    shop.script.rates["*"] = Rate(1, within=SECOND)
    refused = [
        add(shop, path="/nothing", key="wrong"),
        add(shop, path="/nothing"),
        add(shop, b"{"),
        add(shop, {"x": 1}),
    ]
    assert [each.status for each in refused] == [401, 404, 422, 422]
    assert refused[-1].body == {"error": "body.name: name is required; body.x: unknown field x"}
    assert [add(shop).status, add(shop).status] == [200, 429]
    assert len(list(shop.books.existing())) == 1 and len(shop.calls_of("add")) == 2


def test_a_provider_may_pass_over_a_problem(shop: Shop) -> None:
    assert add(shop, {"name": "a", "comment": "b"}).status == 200


def test_an_answer_that_the_schema_doesnt_have_is_the_fakes_mistake(shop: Shop) -> None:
    shop.reply = {"title": "a"}
    with pytest.raises(WrongFake, match="add answers what its schema doesn't have"):
        add(shop)
    with pytest.raises(WrongFake), serving(shop) as address:
        assert requests.post(
            f"{address}/items", json={"name": "a"}, headers={"Authorization": "Bearer key"}
        ).status_code


def test_a_parameter_that_a_fake_passes_over_is_its_mistake(shop: Shop) -> None:
    assert add(shop, path="/items?colour=red").status == 200
    with pytest.raises(WrongFake, match="add passes over size"):
        add(shop, path="/items?colour=red&size=1")


def test_a_fake_has_a_method_for_each_operation() -> None:
    with pytest.raises(TypeError, match="for add"):
        type("Empty", (Fake,), {"api": Shop.api})


def test_faults_come_before_or_after_the_effect(shop: Shop) -> None:
    error = Answer(500, {"error": "x"})
    shop.script.faults += [
        Fault("add", error),
        Fault("a*", error, when="after"),
        Fault("add", Cut, when="after"),
        Fault("add", error, fits=lambda call: call.body["name"] == "b"),
        Fault("remove", error),
    ]
    assert add(shop).status == 500 and not list(shop.books.existing())
    assert add(shop).status == 500 and len(list(shop.books.existing())) == 1
    with pytest.raises(Cut):
        add(shop)
    assert len(list(shop.books.existing())) == 2
    assert add(shop).status == 200, "the last fault but one is of other calls"
    assert add(shop, {"name": "b"}).status == 500


def test_a_lie_is_told_once_and_has_an_effect(shop: Shop) -> None:
    shop.script.faults.append(Fault("add", lambda body: {"name": body["name"].upper()}))
    assert [add(shop).body["name"] for _ in range(2)] == ["A", "a"]
    assert len(list(shop.books.existing())) == 2


def test_a_session_of_requests_sees_a_cut(shop: Shop) -> None:
    shop.script.faults.append(Fault("add", Cut))
    with requests.Session() as session:
        session.mount("https://", InProcess(shop))
        session.headers["Authorization"] = "Bearer key"
        with pytest.raises(requests.ConnectionError):
            session.post("https://shop.example/items", json={"name": "a"})
        assert session.post("https://shop.example/items", json={"name": "a"}).json() == {"name": "a"}


def test_states_come_with_time_until_something_else_is_to_come(clock: Clock) -> None:
    books = Books(clock.now)
    made = books.add("vm", (0, "starting"), (10 * SECOND, "running"), counts={"vm": 2}, lag=5 * SECOND)
    assert (made.state(clock.at), books.used("vm"), list(books.shown("vm"))) == ("starting", 2, [])
    assert books.over({"vm": 1}, {"vm": 2}) == "vm" and books.over({"vm": 1}, {"vm": 3}) is None
    clock.passes(5)
    assert books.find("vm", made.id) is made and books.find("disk", made.id) is None
    made.goes(clock.at, (0, "ending"), (20 * SECOND, GONE))
    clock.passes(19)
    assert (made.state(clock.at), made.since(clock.at)) == ("ending", clock.at - 19 * SECOND)
    clock.passes(1)
    assert (list(books.existing()), books.used("vm")) == ([], 0)
