from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
import pytest

from chalicelib import errors
from chalicelib.api.v1 import problems
from chalicelib.errors import DstackError, Invalid, Problem


def sent(error: Exception) -> tuple[problems.Failure, Any]:
    failure = problems.reply_to(error, "GET /x")
    return failure, orjson.loads(failure.body)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.Unauthenticated("Invalid token"), 401, "unauthenticated"),
        (errors.Forbidden("No"), 403, "forbidden"),
        (errors.NotFound("There is no run x"), 404, "not-found"),
        (errors.AlreadyExists("There is one"), 409, "already-exists"),
        (errors.Contended("It keeps changing."), 409, "contended"),
        (errors.Ended("Gone"), 410, "gone"),
        (errors.PreconditionFailed("Changed"), 412, "changed-since"),
        (errors.TooLarge("Large"), 413, "too-large"),
        (errors.Invalid("Wrong"), 422, "invalid"),
        (errors.Overloaded("Busy"), 503, "overloaded"),
        (errors.StorageFull("Full"), 503, "storage-full"),
        (errors.Throttled("Slow"), 409, "refused"),
    ],
)
def test_an_error_has_the_status_that_http_has_for_it(error: DstackError, status: int, code: str) -> None:
    failure, content = sent(error)
    assert (failure.status, content["status"], content["code"]) == (status, status, code)
    assert failure.headers["Content-Type"] == "application/problem+json"


def test_every_mistake_has_its_place_and_its_remedy() -> None:
    found = [Problem("too many", path="configuration.resources.gpu.count", hint="at most 8", code="too-large"),
             Problem("unknown", path="a/b~c.0", line=3)]  # fmt: skip
    _, content = sent(Invalid(found))
    assert content["detail"] == "too many (and 1 more: see `errors`)"
    assert content["errors"] == [
        {"detail": "too many", "pointer": "/resources/gpu/count", "code": "too-large", "hint": "at most 8"},
        {"detail": "unknown", "pointer": "/a~1b~0c/0", "code": "invalid-value", "hint": None, "line": 3},
    ]


def test_a_failure_of_ours_says_nothing_of_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    failure, content = sent(KeyError("secret"))
    assert failure.status == 500 and b"secret" not in failure.body and "secret" in caplog.text
    assert content["detail"].split("id ")[1][:8] in caplog.text


@pytest.mark.slow
def test_a_small_request_causes_no_large_response() -> None:
    failure, content = sent(Invalid([Problem("x" * 10_000, path="y" * 10_000, hint="z" * 10_000)] * 1_000))
    assert len(content["errors"]) == problems.MOST_PROBLEMS and len(failure.body) < 300_000


def test_what_passes_says_when_to_try_again() -> None:
    assert sent(errors.Contended("x"))[0].headers["Retry-After"] == "2"
    assert "Retry-After" not in sent(errors.Refused("x"))[0].headers


def test_a_code_means_one_thing() -> None:
    titles: dict[str, set[tuple[HTTPStatus, str]]] = {}
    for kind in problems.KINDS.values():
        titles.setdefault(kind.code, set()).add((kind.status, kind.title))
    assert all(len(found) == 1 for found in titles.values())


def test_a_path_of_half_characters_is_no_path_either() -> None:
    assert problems.no_such_path("/api/v1/\ud800").status == 404
    assert sent(Invalid([Problem("\ud800", path="\udfff", hint="\ud801")]))[0].status == 422
