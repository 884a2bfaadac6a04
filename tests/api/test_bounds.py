"""Responses and the work for a request are bounded, however large the request is."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from chalicelib.api import dispatch
from chalicelib.api.encode import encode
from chalicelib.api.route import Access, Call, Route
from chalicelib.api.routes import BUILT
from chalicelib.errors import Invalid, Problem, Refused
from tests.api.rig import Rig, task


def peak_mb(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_an_answer_that_is_too_large_is_never_there_as_a_whole() -> None:
    """100 MB of job specs become 4 MB without anybody holding the 100."""
    text = orjson.dumps({"commands": ["z" * 1_000_000], "env": {"A": "b"}, "image_name": "i"})
    plan = {
        "run_spec": orjson.Fragment(text),
        "job_plans": [{"job_spec": orjson.Fragment(text), "offers": []} for _ in range(100)],
        "current_resource": {"run_spec": orjson.Fragment(text), "jobs": []},
    }
    found: list[bytes] = []
    assert peak_mb(lambda: found.append(encode(plan, 4 * 2**20))) < 16
    made = orjson.loads(found[0])
    assert [part["job_spec"]["image_name"] for part in made["job_plans"]] == ["i"] * 100
    assert made["current_resource"]["run_spec"]["commands"] == ["z" * 199 + "…"]
    listing = [{"id": number, "run_spec": orjson.Fragment(text), "jobs": []} for number in range(100)]
    assert peak_mb(lambda: found.append(encode(listing, 4 * 2**20))) < 16
    assert [row["id"] for row in orjson.loads(found[1])] == list(range(100))


@pytest.mark.parametrize("limit", [len(b'[{"a":1},{"a":2}]'), len(b'[{"a":1},{"a":2}]') - 1])
def test_the_limit_is_exact(limit: int) -> None:
    rows = [{"a": 1}, {"a": 2}]
    if limit == len(orjson.dumps(rows)):
        assert encode(rows, limit) == orjson.dumps(rows)
    else:
        with pytest.raises(Refused):
            encode(rows, limit)
    assert encode([], 2) == b"[]"


def test_many_parts_read_as_few_do() -> None:
    one = {"id": 1, 2: "b", "jobs": [{"job_spec": {"n": n}, "job_submissions": [n]} for n in range(20)], "none": None}
    assert encode(one, 10_000) == orjson.dumps(one, option=orjson.OPT_NON_STR_KEYS)
    assert encode([one, one], 10_000) == orjson.dumps([one, one], option=orjson.OPT_NON_STR_KEYS)


# --- what a request makes of itself -----------------------------------------------------------------------------------

LONG = "é" * 2_500_000  # 5 MB
BODIES: dict[str, Any] = {
    "long names": {name: LONG for name in ("run_name", "name", "username", "hash", "repo_id", "value", "project_name")},
    "long lists": {
        name: ["y" * 200] * 20_000
        for name in (
            "runs_names",
            "names",
            "users",
            "projects_names",
            "secrets_names",
            "repos_ids",
            "members",
            "actors",
        )
    },
    "unknown keys of a spec": {"run_spec": {"configuration": {"type": "task", LONG: 1}}, "spec": {LONG: {LONG[:9]: 1}}},
    "many unknown keys": {"run_spec": {f"{n}" + "k" * 40: n for n in range(10_000)}},
    "a long value in a spec": {
        name: {
            "configuration": {"type": "task", "commands": [LONG], "name": LONG, "nodes": 1},
            "profile": {"name": LONG},
        }
        for name in ("run_spec", "spec")
    },
    "wrong values in a spec": {
        "run_spec": {"configuration": {"type": "task", "commands": [[]] * 10_000, "env": {"a" * 2_000_000: []}}}
    },
    "many nodes": {
        "run_spec": task(nodes=100, commands=["x" * 40_000]),
        "max_offers": 10_000,
        "spec": {"configuration": {"type": "fleet", "name": "f" * 100_000}},
    },
}


SLOW = {name: pytest.mark.slow for name in ("many unknown keys", "wrong values in a spec")}  # every one is named


@pytest.mark.parametrize("what", [pytest.param(name, marks=SLOW.get(name, ())) for name in BODIES])
@pytest.mark.slow
def test_a_large_body_makes_no_larger_answer(rig: Rig, what: str) -> None:
    body = orjson.dumps(BODIES[what])
    for route in BUILT:
        path = re.sub(r"{project_name}", "main", route.path)
        reply = rig.call(re.sub(r"{\w+}", "x", path), body, method=route.method)
        assert reply.status < 500
        assert len(reply.body) <= (500_000 if reply.status == 200 else 300_000), (path, reply.status, len(reply.body))


def test_a_text_of_many_or_long_lines_is_cut_with_its_fields(rig: Rig) -> None:
    problems = [Problem("w" * 5_000, path="f" * 5_000), *(Problem(f"is wrong {n}", path=f"p{n}") for n in range(3_000))]

    def handler(call: Call) -> object:
        raise Invalid(problems)

    route = Route("POST", "/api/x", Access.public, handler)
    (entry,) = orjson.loads(dispatch.serve(rig.world.plane, route, {}, dispatch.Request("POST", "/api/x")).body)[
        "detail"
    ]
    lines = entry["msg"].split("\n")
    assert len(lines) == len(entry["fields"]) == 201
    assert lines[0].startswith("fff") and " … " in lines[0] and lines[0].endswith("www") and len(lines[0]) < 1_100
    assert (lines[1], entry["fields"][1]) == ("p0: is wrong 0", "p0")
    assert (lines[-1], entry["fields"][-1]) == ("… and 2801 lines more", "")
    assert len(entry["fields"][0]) < 400


@pytest.mark.parametrize(
    "body",
    [b"[" * 300_000, b'{"a":[' + b"1," * 300_000 + b"1]}", b"[" + b"[]," * 300_000 + b"[]]", b",," * 200_000 + b'"\\"'],
    ids=["depth", "numbers", "lists", "nonsense"],
)
def test_a_body_of_very_many_values_isnt_parsed(rig: Rig, body: bytes) -> None:
    assert "250,000 values" in rig.refused("/api/runs/list", body)


def test_commas_within_texts_are_no_values(rig: Rig) -> None:
    secret = {"name": "csv", "value": '1,[{\\",' * 60_000}
    assert "values" not in rig.call("/api/project/main/secrets/create_or_update", secret).body.decode()


def test_a_text_without_end_is_looked_through_once(rig: Rig) -> None:
    assert "250,000 values" in rig.refused("/api/runs/list", b"," * 300_000 + b'"' + b'\\"' * 1_000_000)
