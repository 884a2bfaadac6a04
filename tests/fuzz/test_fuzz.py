"""A slice of `make fuzz`, and that it finds what it looks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.api.dispatch import Reply, Request
from chalicelib.api.routes import BUILT
from chalicelib.domain import keys
from chalicelib.domain.tenants import Project
from chalicelib.store import nouns
from chalicelib.store.port import Put
from docs.openapi.declared import declared
from tests.fuzz import documents
from tests.fuzz.calls import COMPOSED, row
from tests.fuzz.play import BATCH, batches, honest, play
from tests.fuzz.tenants import Answerer, Town

CALLS = 3000


@pytest.mark.parametrize("numbers", batches(CALLS), ids=lambda numbers: f"from {numbers[0]}")
def test_hostile_calls_find_nothing(numbers: range) -> None:
    tally = play(1, numbers, timed=False)
    assert [str(find) for find in tally.finds] == []
    assert tally.calls == len(numbers)
    assert all(tally.kinds[kind] > BATCH // 50 for kind in ("200", "400", "403", "422", "archive", "file")), tally.kinds


def test_a_batch_is_the_same_when_played_again() -> None:
    assert play(7, range(150)).kinds == play(7, range(150)).kinds != play(8, range(150)).kinds


def leaking(text: bytes) -> Answerer:
    """Answers every successful call with a text more."""

    def answer(town: Town, request: Request) -> Reply:
        found = honest(town, request)
        body = found.body.replace(b'{"', b'{"more":"' + text + b'","', 1)
        return found._replace(body=body) if found.status == 200 else found

    return answer


leaky, coded = leaking(b"canary-red_secret"), leaking(b"Y2FuYXJ5LWJsdWVfbG9n")


def careless(town: Town, request: Request) -> Reply:
    """Each call touches the project blue."""
    project = nouns.find(town.store, Project, keys.project(town.ground.projects["blue"]))
    assert project is not None
    town.store.commit([nouns.put(project)])
    return honest(town, request)


def failing(town: Town, request: Request) -> Reply:
    return honest(town, request)._replace(status=500)


def silent(town: Town, request: Request) -> Reply:
    found = honest(town, request)
    return found._replace(body=b'{"detail": [{"msg": ""}]}') if found.status == 400 else found


@pytest.mark.parametrize(
    ("answer", "finds"),
    [
        (leaky, "greenuser reads canary-red_secret"),
        (coded, "redadmin reads canary-blue_log"),
        (careless, "greenmanager writes project/"),
        (careless, "redagent writes project/"),
        (careless, "nobody, who may do nothing, writes project/"),
        (failing, "status 500"),
        (silent, "a refusal that says nothing"),
    ],
)
def test_a_planted_fault_is_found(answer: Answerer, finds: str) -> None:
    tally = play(1, range(250), answer=answer, timed=False)
    assert any(find.what.startswith(finds) for find in tally.finds), {find.what for find in tally.finds}


def undecidable(town: Town, request: Request) -> Reply:
    """Leaves a run that nobody can read."""
    (run_id,) = town.handles["red"]["run_id"]
    record = town.rig.record(keys.run(run_id))
    town.store.commit([Put(replace(record, version=record.version + 1, body=b"{}"), record.version)])
    town.rig.world.plane.wake([f"run/{run_id}"])
    return honest(town, request)


def test_what_the_engine_cannot_decide_is_found() -> None:
    tally = play(1, range(20), answer=undecidable, timed=False)
    assert any(find.what.startswith("the engine fails at run/") for find in tally.finds)


def test_who_may_read_and_write_is_no_find() -> None:
    """The faults above are found only where they are faults."""
    found = {find.what for find in play(1, range(250), answer=leaky, timed=False).finds}
    assert not any(what.startswith(("root", "redadmin", "reduser")) for what in found)


def test_an_archive_that_gets_out_is_found(tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "inner").mkdir()
    (tmp_path / "outer" / "inner" / "door").symlink_to("/etc")
    assert list(documents._leading_out(tmp_path / "outer" / "inner"))


def test_every_route_with_a_body_has_its_shape() -> None:
    """What the genuine server says of its requests covers what is built here; `requests.json` has the rest by name."""
    ours = [route for route in BUILT if not route.path.startswith("/agent/")]
    bodies = [route for route in ours if (found := declared(route)) and (found.body or found.query)]
    missing = {route.path.rpartition("/project/{project_name}/")[2] for route in bodies if not row(route)}
    assert missing - set(COMPOSED) == {"/api/files/upload_archive"}
