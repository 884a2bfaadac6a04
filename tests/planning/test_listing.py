"""What people are told of fleets before a run: what separates jobs, and why nothing fits."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.planning.listing import only_unisolated, plan_offers, separation
from chalicelib.planning.offers import OfferBook
from tests.world import nouns as b

LAB = b.fleet("lab")
BARE: dict[str, Any] = {"runtimes": ("process",), "isolation": "none"}
USERS: dict[str, Any] = {"runtimes": ("process",), "isolation": "user"}
ENGINE: dict[str, Any] = {"runtimes": ("docker", "process"), "isolation": "container"}


@pytest.mark.parametrize(
    ("hosts", "how"),
    [
        ([], None),
        ([ENGINE], None),
        ([USERS, ENGINE], "each as a user of its own"),
        ([BARE], "without isolation"),
        ([USERS, BARE], "without isolation"),
    ],
)
def test_what_separates_the_jobs_of_a_fleet(hosts: list[dict[str, Any]], how: str | None) -> None:
    view = b.view(LAB, *(b.host(num, LAB, **each) for num, each in enumerate(hosts)))
    assert separation([view]) == ([] if how is None else [f"Fleet lab runs jobs as plain processes, {how}."])


@pytest.mark.parametrize(
    ("isolated", "hosts", "cpus", "name"),
    [
        (True, [BARE], 1, "lab-0"),
        (False, [BARE], 1, ""),  # it may run there
        (True, [BARE, USERS], 1, ""),  # another takes it
        (True, [USERS], 64, ""),  # nothing is without isolation
        (True, [BARE], 64, ""),  # it wouldn't fit anyway
    ],
)
def test_the_host_that_would_take_a_job_without_isolation(
    isolated: bool, hosts: list[dict[str, Any]], cpus: int, name: str
) -> None:
    spec = b.run_spec(resources={"cpu": f"{cpus}..", "memory": "1GB.."})
    job = b.job_spec(spec).with_(isolated=isolated)
    view = b.view(LAB, *(b.host(num, LAB, **each) for num, each in enumerate(hosts)))
    assert only_unisolated(spec, job, [view], OfferBook([])) == name


@pytest.mark.parametrize(("cpus", "said"), [("1..", True), ("64..", False)])
def test_only_a_host_that_would_fit_is_said_to_be_ill(cpus: str, said: bool) -> None:
    ill = b.host(0, LAB, health="failure", health_message="a GPU is lost")
    spec = b.run_spec(resources={"cpu": cpus, "memory": "1GB.."})
    _, _, (note,) = plan_offers(spec, b.job_spec(spec), [b.view(LAB, ill)], OfferBook([]), 10)
    assert ("isn't healthy: a GPU is lost" in note.text) is said
