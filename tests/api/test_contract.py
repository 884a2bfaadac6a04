"""Every key that the genuine client can't do without is there, and none that must not be null is.

`required_keys.json` was measured: the client was given answers with one key missing, or null, at a time. A key within
an object counts only where the object is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.domain.instants import MINUTE
from chalicelib.domain.jobs import JobStatus, PullProgress
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create
from tests.api.test_runs import finish, job_of, placed

MEASURED = orjson.loads((Path(__file__).parent / "required_keys.json").read_bytes())
_P = "/api/project/{project_name}"

RESOURCES = {
    "cpu": {"arch": None, "count": {"min": 2, "max": None}},
    "memory": {"min": 8.0, "max": None},
    "shm_size": None,
    "gpu": {
        "vendor": None, "name": None, "count": {"min": 0, "max": None},
        "memory": None, "total_memory": None, "compute_capability": None,
    },
    "disk": {"size": {"min": 100.0, "max": None}},
}  # fmt: skip
PROFILE = {"name": "default", "default": False}
RUN = {
    **task(
        ports=[],
        env={},
        files=[],
        volumes=[],
        repos=[],
        setup=[],
        privileged=False,
        dstack=False,
    ),
    "file_archives": [],
    "profile": PROFILE,
}
RUN["configuration"]["resources"] = RESOURCES
FLEET = {
    **fleet(blocks=1, env={}, resources=RESOURCES, nodes={"min": 0, "max": 2}),
    "profile": PROFILE,
    "autocreated": False,
}


def a_run(rig: Rig) -> Any:
    made = submit(rig, RUN)
    now = rig.world.clock.now()
    rig.save(placed(job_of(rig, made["id"]), now).with_(status=JobStatus.pulling, pull=PullProgress(total_bytes=5)))
    rig.world.clock.pass_(MINUTE / 1e6)
    return made


def a_fleet(rig: Rig) -> Any:
    made = create(rig, FLEET)
    add_instance(rig, made)
    return made


CALLS: dict[str, Callable[[Rig], Any]] = {
    f"{_P}/runs/get_plan": lambda rig: rig.ok("P/runs/get_plan", {"run_spec": RUN, "for_offers_only": True}),
    f"{_P}/runs/apply": lambda rig: submit(rig, RUN),
    f"{_P}/runs/get": lambda rig: a_run(rig) and rig.ok("P/runs/get", {"run_name": "hello"}),
    "/api/runs/list": lambda rig: a_run(rig) and rig.ok("/api/runs/list", {"job_submissions_limit": 1}),
    f"{_P}/fleets/get_plan": lambda rig: rig.ok("P/fleets/get_plan", {"spec": FLEET}),
    f"{_P}/fleets/apply": lambda rig: create(rig, FLEET),
    f"{_P}/fleets/get": lambda rig: a_fleet(rig) and rig.ok("P/fleets/get", {"name": "pool"}),
    f"{_P}/fleets/list": lambda rig: a_fleet(rig) and rig.ok("P/fleets/list"),
}


@pytest.mark.parametrize("path", CALLS)
def test_the_answer_has_what_clients_need(rig: Rig, path: str) -> None:
    answer = CALLS[path](rig)
    measured = MEASURED[path]
    missing = [key for key in measured["required_keys"] for value in find(answer, key) if value is MISSING]
    null = [key for key in measured["must_not_be_null"] for value in find(answer, key) if value is None]
    assert (missing, null) == ([], [])


def test_the_check_sees_a_key_that_is_missing_or_null() -> None:
    assert list(find({"a": [{"b": None}, {}]}, "a[].b")) == [None, MISSING]
    assert list(find({}, "a.b")) == [] and list(find([{"a": 1}], "[].a")) == [1]


def test_an_answer_to_a_finished_run_has_what_clients_need(rig: Rig) -> None:
    made = a_run(rig)
    finish(rig, made["id"])
    answer = rig.ok("P/runs/get", {"run_name": "hello"})
    measured = MEASURED[f"{_P}/runs/get"]
    assert [key for key in measured["required_keys"] for value in find(answer, key) if value is MISSING] == []
    assert answer["latest_job_submission"]["status_message"] == "exited (0)"


def test_dates_have_a_zone(rig: Rig) -> None:
    run = a_run(rig)
    dates = [
        run["submitted_at"],
        run["last_processed_at"],
        run["latest_job_submission"]["submitted_at"],
        a_fleet(rig)["created_at"],
    ]
    assert all(date.endswith("+00:00") for date in dates)


def test_a_private_key_is_never_sent_back(rig: Rig) -> None:
    spec = fleet(
        "hosts", ssh_config={"user": "u", "ssh_key": {"public": "p", "private": "TOP SECRET"}, "hosts": ["10.0.0.1"]}
    )
    del spec["configuration"]["nodes"]
    for path, body in (("get_plan", {"spec": spec}), ("apply", {"plan": {"spec": spec}, "force": False})):
        reply = rig.call(f"/api/project/main/fleets/{path}", body)
        assert reply.status in (200, 400) and b"TOP SECRET" not in reply.body


MISSING = object()


def find(value: Any, path: str) -> Iterator[Any]:
    """The values at a dotted path; nothing where a parent isn't there."""
    name, _, rest = path.partition(".")
    field = name.removesuffix("[]")
    inner = value if not field else value.get(field, MISSING)
    if inner is MISSING or (inner is None and rest):
        if not rest:
            yield inner
        return
    items = inner if name.endswith("[]") else [inner]
    for item in items or []:
        if not rest:
            yield item
        elif item is not None:
            yield from find(item, rest)
