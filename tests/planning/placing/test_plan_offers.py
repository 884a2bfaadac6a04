"""What people are told of fleets before a run: what separates jobs, and why nothing fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.planning.matching.fitting import Misfit
from chalicelib.planning.matching.isolation import NOT_PERMITTED, SYSTEMS_OWN, UNISOLATED
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.plan_offers import only_plain, plan_offers, separation
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
    job = b.job_spec(b.run_spec())
    assert separation([view], job) == ([] if how is None else [f"Fleet lab runs jobs as plain processes, {how}."])


@pytest.mark.parametrize(
    ("user", "permitted", "host", "how"),
    [
        ("ann", True, USERS, "this one as the user ann of its host"),
        ("1500:1500", True, USERS, "this one as the user 1500:1500 of its host"),
        ("ann", False, USERS, "each as a user of its own"),
        ("ann", True, BARE, "without isolation"),
    ],
)
def test_a_plan_says_as_whom_its_jobs_run(user: str, permitted: bool, host: dict[str, Any], how: str) -> None:
    job = b.job_spec(b.run_spec(user=user)).with_(user_permitted=permitted)
    assert separation([b.view(LAB, b.host(0, LAB, **host))], job) == [f"Fleet lab runs jobs as plain processes, {how}."]


@pytest.mark.parametrize(
    ("isolated", "hosts", "cpus", "name"),
    [
        (True, [BARE], 1, "lab-0"),
        (False, [BARE], 1, None),  # it may run there
        (True, [BARE, USERS], 1, None),  # another takes it
        (True, [USERS], 64, None),  # nothing is without isolation
        (True, [BARE], 64, None),  # it wouldn't fit anyway
    ],
)
def test_the_host_that_would_take_a_job_without_isolation(
    isolated: bool, hosts: list[dict[str, Any]], cpus: int, name: str | None
) -> None:
    spec = b.run_spec(resources={"cpu": f"{cpus}..", "memory": "1GB.."})
    job = b.job_spec(spec).with_(isolated=isolated)
    view = b.view(LAB, *(b.host(num, LAB, **each) for num, each in enumerate(hosts)))
    assert only_plain(b.requirements(spec, job), [view], OfferBook([])) == (name and (name, UNISOLATED))


def test_no_host_is_the_last_resort_of_a_job_that_a_market_may_have_a_machine_for() -> None:
    """A submission asks none, and must accept what a plan did."""
    spec = b.run_spec(resources={"cpu": "1..", "memory": "1GB.."})
    requirements, hosts = (
        b.requirements(spec, b.job_spec(spec).with_(isolated=True)),
        b.view(LAB, b.host(0, LAB, **BARE)),
    )
    cloud, elsewhere = (b.view(b.fleet("cloud"), nodes="0..1", **more) for more in ({}, {"backends": ["aws"]}))
    markets = OfferBook([], live=["bazaar"])
    assert only_plain(requirements, [hosts, cloud], markets) is None
    for fleets, book in (([hosts], markets), ([hosts, elsewhere], markets), ([hosts, cloud], OfferBook([]))):
        assert only_plain(requirements, fleets, book) == ("lab-0", UNISOLATED)


@pytest.mark.parametrize(
    ("user", "permitted", "hosts", "why"),
    [
        (None, False, [USERS], None),
        ("ann", False, [USERS], NOT_PERMITTED),
        ("4242:disk", False, [BARE], NOT_PERMITTED),
        ("ann", True, [USERS], None),
        ("1000:1000", True, [USERS], None),
        ("ann", False, [USERS, ENGINE], None),  # there it is the image's own
        *(
            (user, True, [USERS], SYSTEMS_OWN)
            for user in ("root", "0", "999", "root:ann", "ann:root", "1500:6", "ann:0", "nobody", "65534", "4294967294")
        ),
        ("root", True, [ENGINE], None),
        ("ann", False, [], None),
    ],
)
def test_who_a_job_is_may_need_a_container(
    user: str | None, permitted: bool, hosts: list[dict[str, Any]], why: Misfit | None
) -> None:
    spec = b.run_spec(user=user, resources={"cpu": "1..", "memory": "1GB.."})
    job = b.job_spec(spec).with_(user_permitted=permitted)
    view = b.view(LAB, *(b.host(num, LAB, **each) for num, each in enumerate(hosts)))
    assert only_plain(b.requirements(spec, job), [view], OfferBook([])) == (why and ("lab-0", why))
    notes = plan_offers(b.requirements(spec, job), [view], OfferBook([]), 10)[2]
    assert (why is None) or [note.text for note in notes] == [why.text]


def test_what_keeps_a_job_from_a_host_is_said_of_that_host() -> None:
    """Of two reasons, the one that the host has."""
    spec = b.run_spec(user="ann", resources={"cpu": "1..", "memory": "1GB.."})
    job = b.job_spec(spec).with_(isolated=True)
    for host, why in ((BARE, UNISOLATED), (USERS, NOT_PERMITTED)):
        assert only_plain(b.requirements(spec, job), [b.view(LAB, b.host(0, LAB, **host))], OfferBook([])) == (
            "lab-0",
            why,
        )


@pytest.mark.parametrize("plain", [USERS, {**USERS, "total_blocks": 2}], ids=["whole", "in blocks"])
def test_another_projects_plain_hosts_take_no_run_that_names_a_user(plain: dict[str, Any]) -> None:
    for user, permitted, host, taken in (
        (None, False, plain, 1),
        ("ann", True, plain, 0),
        ("ann", False, plain, 0),
        ("ann", False, ENGINE, 1),
    ):
        spec = b.run_spec(user=user, resources={"cpu": "1..", "memory": "1GB.."})
        job = b.job_spec(spec).with_(user_permitted=permitted)
        view = replace(b.view(LAB, b.host(0, LAB, **host)), imported=True)
        _, total, notes = plan_offers(b.requirements(spec, job), [view], OfferBook([]), 10)
        assert total == taken
        reason = "is another project's, and takes no run with `user`, because it has hosts that run plain processes"
        assert taken or [note.text for note in notes] == [reason]


@pytest.mark.parametrize(("cpus", "is_ill"), [("1..", True), ("64..", False)])
def test_only_a_host_that_would_fit_is_said_to_be_ill(cpus: str, is_ill: bool) -> None:
    ill = b.host(0, LAB, health="failure", health_message="a GPU is lost")
    spec = b.run_spec(resources={"cpu": cpus, "memory": "1GB.."})
    _, _, (note,) = plan_offers(b.requirements(spec), [b.view(LAB, ill)], OfferBook([]), 10)
    assert ("isn't healthy: a GPU is lost" in note.text) is is_ill
