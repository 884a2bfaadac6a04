"""Requests to the models' endpoint: what is asked for, who serves it, and what is said to those who ask in vain."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.serving import Served, ServedModel, ServedReplica
from chalicelib.serving import models
from chalicelib.serving.models import Makers, ModelCall, ModelListing, One, Stored
from chalicelib.serving.problems import HttpProblem
from chalicelib.serving.token_usage import KEPT, Tail, Tokens
from tests.harness.examples import many


def replica(number: int, **changes: Any) -> ServedReplica:
    return ServedReplica(job_id=f"job-{number}", instance_id="i", port=8000, ready=True).with_(**changes)


def service(name: str, model: str = "llama", replicas: int = 1, **changes: Any) -> Served:
    return Served(
        run_id=f"id-of-{name}",
        run_name=name,
        project_id="p",
        project_name="main",
        port=8000,
        model=ServedModel(name=model),
        replicas=tuple(replica(number) for number in range(replicas)),
    ).with_(**changes)


@pytest.mark.parametrize("version", ["", "v1/"])
@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "models", ModelListing()),
        ("GET", "models/meta-llama/Llama-3.1-8B", One("meta-llama/Llama-3.1-8B")),
        ("GET", "models/meta-llama%2FLlama-3.1-8B", One("meta-llama/Llama-3.1-8B")),
        *(("POST", path, ModelCall(path)) for path in models.JSON_CALLS),
        *(("POST", path, ModelCall(path, form=True)) for path in models.FORM_CALLS),
        ("GET", "responses/resp_1", Stored("responses/resp_1", "resp_1")),
        ("DELETE", "responses/resp_1", Stored("responses/resp_1", "resp_1")),
        ("GET", "responses/resp_1/input_items", Stored("responses/resp_1/input_items", "resp_1")),
        ("POST", "responses/resp_1/cancel", Stored("responses/resp_1/cancel", "resp_1")),
    ],
)
def test_what_is_asked_for(method: str, path: str, expected: models.Ask, version: str) -> None:
    assert models.read(method, version + path) == expected


@pytest.mark.parametrize(
    "path",
    ["", "chat", "chat/completions/", "responses/../models", "responses/", "responses/a/b", "responses/%2e%2e", "v1"],
)
def test_what_isnt_there_is_said_with_what_is(path: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        models.read("POST", path)
    assert refused.value.status == 404 and "chat/completions" in refused.value.message


@pytest.mark.parametrize(("method", "path"), [("POST", "models"), ("GET", "embeddings"), ("PUT", "responses/resp_1")])
def test_another_method_is_refused(method: str, path: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        models.read(method, path)
    assert (refused.value.status, refused.value.code) == (405, "method_not_allowed")


def test_models_are_listed_once_each_with_the_age_of_the_first() -> None:
    there = [
        service("b", "qwen", since=9_000_000),
        service("a", "llama", since=8_000_000),
        service("c", "llama", since=5_000_000),
        service("web").with_(model=None),
    ]
    listed = models.listing(there, ModelListing())
    assert listed == {
        "object": "list",
        "data": [
            {"id": "llama", "object": "model", "created": 5, "owned_by": "main"},
            {"id": "qwen", "object": "model", "created": 9, "owned_by": "main"},
        ],
    }
    assert models.listing(there, One("qwen")) == {"id": "qwen", "object": "model", "created": 9, "owned_by": "main"}


def test_a_model_that_nobody_serves() -> None:
    with pytest.raises(HttpProblem) as refused:
        models.listing([service("a", "llama"), service("b", "qwen")], One("gpt"))
    assert refused.value.status == 404
    error = json.loads(refused.value.body(openai=True))["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "model_not_found", "model")
    assert error["message"] == "No running service serves the model `gpt`: there are `llama`, `qwen`."


def test_a_long_list_of_models_is_cut() -> None:
    refused = models.nobody([service(f"s{number}", f"m{number:03}") for number in range(100)], "gpt")
    assert "`m019` and 80 more" in refused.message and "m020" not in refused.message


def test_without_any_model_it_says_what_makes_one() -> None:
    assert "no service of this project has a `model`" in models.nobody([], "gpt").message


def wanted_model(body: bytes, path: str = "chat/completions", *, complete: bool = True, there: int = 2) -> str:
    call = ModelCall(path, form=path in models.FORM_CALLS)
    head = call.head("application/json")
    head.feed(body)
    return models.wanted([service(f"s{n}", f"m{n}") for n in range(there)], call, head, complete)


def test_the_name_is_read_from_the_body() -> None:
    assert wanted_model(b'{"messages": [], "model": "m1"}') == "m1"


@pytest.mark.parametrize("path", ["chat/completions", "audio/transcriptions"])
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"model": ""}', b"model=x"])
def test_a_body_without_a_name_is_refused(body: bytes, path: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        wanted_model(body, path)
    assert (refused.value.status, refused.value.code) == (400, "model_not_given")


def test_a_name_behind_a_megabyte_is_asked_for_unless_there_is_one_model_only() -> None:
    with pytest.raises(HttpProblem, match="put it first"):
        wanted_model(b'{"messages": "..', complete=False)
    assert wanted_model(b'{"messages": "..', complete=False, there=1) == "m0"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
@settings(max_examples=many(200))
def test_services_of_one_name_share_requests_by_their_ready_replicas(ready: list[int]) -> None:
    there = [service(f"s{number}", replicas=count) for number, count in enumerate(ready)]
    total = sum(ready) or 1
    seen = Counter(models.chosen(there, (step + 0.5) / total).run_name for step in range(sum(ready)))
    assert seen == Counter({f"s{number}": count for number, count in enumerate(ready) if count})


def test_with_none_ready_it_waits_where_most_are_coming() -> None:
    coming = service("b", replicas=2)
    coming = coming.with_(replicas=tuple(one.with_(ready=False) for one in coming.replicas))
    leaving = service("c", replicas=1)
    leaving = leaving.with_(replicas=tuple(one.with_(draining=True) for one in leaving.replicas))
    assert models.chosen([service("a", replicas=0), coming, leaving], 0.5).run_name == "b"


@pytest.mark.parametrize(
    ("prefix", "path"), [("/v1", "/v1/embeddings"), ("/api/v2/", "/api/v2/embeddings"), ("/", "/embeddings")]
)
def test_the_path_goes_under_the_models_prefix(prefix: str, path: str) -> None:
    assert (
        models.target(service("a", model="m").with_(model=ServedModel(name="m", prefix=prefix)), "embeddings") == path
    )


def test_a_response_is_asked_of_the_replica_that_made_it() -> None:
    makers, there = Makers(), [service("a", replicas=3)]
    answer = b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_7","object":"response"'
    makers.remember(models.response_id(answer), models.Maker("p", "id-of-a", "job-1"))
    found, job = makers.replica(there, "p", "resp_7")
    assert (found.run_name, job) == ("a", "job-1")
    with pytest.raises(HttpProblem, match="is gone"):
        makers.replica([service("a", replicas=1)], "p", "resp_7")
    with pytest.raises(HttpProblem, match="isn't known"):
        makers.replica(there, "another project", "resp_7")


def test_only_the_latest_responses_are_remembered() -> None:
    makers = Makers(size=2)
    for number in (1, 2, 1, 3):
        makers.remember(f"resp_{number}", models.Maker("p", "id-of-a", "job-0"))
    for number in (1, 3):
        assert makers.replica([service("a")], "p", f"resp_{number}")[1] == "job-0"
    with pytest.raises(HttpProblem, match="the latest 2"):
        makers.replica([service("a")], "p", "resp_2")


USAGE = '"usage": {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}'


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ('{"choices": [], ' + USAGE + "}", Tokens(7, 9)),
        ('data: {"usage": null}\n\ndata: {"choices": [], ' + USAGE + "}\n\ndata: [DONE]\n\n", Tokens(7, 9)),
        ('data: {"response": {"usage": {"input_tokens": 3, "output_tokens": 4}}}\n\n', Tokens(3, 4)),
        ('{"data": [], "usage": {"prompt_tokens": 5, "total_tokens": 5}}', Tokens(5, 0)),
        ("{" + USAGE + ', "usage": null}', Tokens(7, 9)),
        ('{"content": "\\"usage\\": {\\"prompt_tokens\\": 1}"}', None),
        ('{"usage": {"prompt_tokens": -1}}', None),
        ('{"usage": {"prompt_tokens": "7"}}', None),
        ('{"usage": {"prompt_tokens"', None),
        ('{"usage": {"a": ' + "[" * 4000, None),
        ("", None),
    ],
)
@pytest.mark.parametrize("size", [3, 100_000])
def test_tokens_are_read_from_the_end(answer: str, tokens: Tokens | None, size: int) -> None:
    tail = Tail()
    tail.begins(200, ())
    body = ("x" * 2 * KEPT + answer).encode()
    for at in range(0, len(body), size):
        tail.part(body[at : at + size])
    assert tail.tokens() == tokens


def test_an_error_took_no_tokens() -> None:
    tail = Tail()
    tail.begins(400, ())
    tail.part(("{" + USAGE + "}").encode())
    assert tail.tokens() is None
