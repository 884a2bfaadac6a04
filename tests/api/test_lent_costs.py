"""What hosts cost that one project lends another: each of their hours is counted once, with who had them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.costs import OTHERS
from chalicelib.domain.instances import HostGpu, Instance, Presence
from chalicelib.domain.instants import DAY, HOUR, MINUTE, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Disk, Gpu
from chalicelib.domain.tenants import Project
from chalicelib.engine.cost_days import hours
from chalicelib.engine.read import Reader
from chalicelib.store import nouns
from tests.api.rig import Rig
from tests.api.test_exports import GPUS, Center
from tests.world import nouns as b

pytestmark = pytest.mark.slow

HAS = b.resources(8, 64, disk=Disk(size_mib=200_000), cpu_arch="x86").with_(
    gpus=(Gpu(name="A100", memory_mib=81_920, vendor="nvidia"),) * 4
)

FOUND = (HostGpu(name="A100", memory_mib=81_920, vendor="nvidia"),) * 4  # of which its agent tells


class Lent(Center):
    """`main` has a job on one of the two hosts of `lab`, with four GPUs each."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.began = self.gpus[0].created_at
        self.share()
        self.started = self.submit("train", fleets=[GPUS], resources={"gpu": 4})
        self.passes()
        assert self.now.assignment is not None

    def fleet(self, project: Project, name: str, *, hosts: int = 2, **host: Any) -> list[Instance]:
        made = super().fleet(project, name, hosts=hosts, **{"has": HAS, **host})
        for each in made:
            known = nouns.find(self.store, Presence, keys.presence(each.id))
            assert known is not None and known.facts is not None
            self.rig.save(known.with_(facts=known.facts.with_(gpus=FOUND)))
        return made

    @property
    def now(self) -> Job:
        return self.job(self.started.run_id)

    def after(self, wait: Micros) -> None:
        self.rig.world.clock.at += wait

    def lose(self) -> None:
        """The host falls silent, and its job ends."""
        for _ in range(20):
            if self.now.finished:
                return
            self.after(2 * MINUTE)
            self.passes(f"run/{self.started.run_id}")
        raise AssertionError(self.now)

    def gpu_hours(self, since: Micros, until: Micros) -> Counter[tuple[str, str, str]]:
        """By project, user and fleet."""
        read, now, found = Reader(self.store), self.rig.world.now(), Counter[tuple[str, str, str]]()
        for project in (self.rig.project, self.lab):
            for row in hours(read, project.id, since, until, now):
                assert row.dollars == 0, "hosts that people own cost nothing here"
                found[project.name, row.user, row.fleet] += row.gpu_hours  # type: ignore[assignment]
        return found


@pytest.fixture
def lent(rig: Rig) -> Lent:
    return Lent(rig)


def whole(at: Micros) -> Micros:
    return at - at % HOUR


def test_hours_of_lent_hosts_are_counted_once_and_with_the_project_whose_job_has_them(lent: Lent) -> None:
    lent.after(30 * MINUTE)
    running = lent.gpu_hours(whole(lent.began), whole(lent.began) + DAY)
    lasted = (lent.rig.world.now() - lent.began) / HOUR
    assert sum(running.values()) == pytest.approx(2 * 4 * lasted, abs=0.01)
    assert running["main", "main-admin", "gpus"] == pytest.approx(4 * 0.5, abs=0.01)
    assert set(running) == {("main", "main-admin", "gpus"), ("lab", "", "gpus")}, "the rest is idle"
    lent.lose()
    ended = lent.now.finished_at
    assert ended is not None and lent.now.assignment is not None
    lent.after(2 * HOUR)
    after = lent.gpu_hours(whole(lent.began), whole(lent.began) + DAY)
    lasted = (lent.rig.world.now() - lent.began) / HOUR
    assert sum(after.values()) == pytest.approx(2 * 4 * lasted, abs=0.01)
    had = (ended - lent.now.assignment.assigned_at) / HOUR
    assert after["main", "main-admin", "gpus"] == pytest.approx(4 * had, abs=0.01)


@pytest.mark.parametrize("over", [False, True])
def test_so_are_those_of_a_job_that_began_before_the_time_in_question(lent: Lent, over: bool) -> None:
    """Its place has no event in it; only its end has, or none has."""
    lent.after(DAY + 3 * HOUR)
    since = whole(lent.rig.world.now()) - HOUR
    if over:
        lent.lose()
    lent.after(HOUR)
    found = lent.gpu_hours(since, since + DAY)
    lasted = (lent.rig.world.now() - since) / HOUR
    assert sum(found.values()) == pytest.approx(2 * 4 * lasted, abs=0.01)
    until = lent.now.finished_at if over else lent.rig.world.now()
    assert until is not None and found["main", "main-admin", "gpus"] == pytest.approx(
        4 * (until - since) / HOUR, abs=0.01
    )


def test_it_stays_so_when_they_arent_lent_any_more(lent: Lent) -> None:
    lent.after(30 * MINUTE)
    lent.lose()
    lent.rig.ok("/api/project/lab/exports/delete", {"name": "hosts"})
    lent.passes()
    lent.after(HOUR)
    found = lent.gpu_hours(whole(lent.began), whole(lent.began) + DAY)
    lasted = (lent.rig.world.now() - lent.began) / HOUR
    assert sum(found.values()) == pytest.approx(2 * 4 * lasted, abs=0.01)
    assert ("lab", OTHERS, "gpus") not in found
