"""What exists on Nebius is found wherever the account sees it, whatever the settings say by now."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.domain.instances import Handle
from chalicelib.errors import MissingPermission, Transient, Unfit
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, request_for, volume_request
from tests.backends.fakes.script import Call, Fault
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.kinds import CPU, EIGHT, bought, offer
from tests.backends.nebius.provider import INSTANCES, answer, client, config

NORTH, CENTRAL = "eu-north1", "us-central1"
REFUSED = answer("PERMISSION_DENIED", "permission_denied")


def of_project(project: str) -> Callable[[Call], bool]:
    return lambda call: bool(call.body.get("parent_id") == project)


def other(fake: Nebius, clock: Clock, **settings: list[str]) -> NebiusBackend:
    """A backend with other settings, which remembers nothing."""
    return NebiusBackend(config(**settings), client(fake, clock.now), clock.now)


@pytest.fixture
def made(backend: NebiusBackend, clock: Clock) -> list[Handle]:
    found = bought(backend)
    clock.passes(60)
    return found


@pytest.mark.parametrize("kind", ["resource_not_found", ""])
def test_a_list_that_isnt_found_proves_the_end_of_no_machine(
    backend: NebiusBackend, fake: Nebius, made: list[Handle], kind: str
) -> None:
    for call, ask in (
        ("BatchGet", lambda: backend.describe(made)),
        ("BatchGet", lambda: backend.describe_several([made])),
        ("List", lambda: list(backend.list_owned())),
    ):
        fake.script.faults.append(Fault(f"{INSTANCES}.{call}", answer("NOT_FOUND", kind)))
        with pytest.raises(Transient):
            ask()
    assert backend.describe(made).state == "running"


def test_what_is_wrong_elsewhere_in_the_tenant_hides_nothing(
    backend: NebiusBackend, fake: Nebius, clock: Clock, made: list[Handle]
) -> None:
    """Another default project in another region: its own offers and machines need a decision, and nothing else."""
    fake.projects["project-u00again"] = ("default-again", CENTRAL)
    clock.passes(700)
    for region in (NORTH, ""):
        assert [each.handle for each in backend.list_owned(region=region)] == made
    assert list(backend.create(request_for(offer(CPU), "two"))), "its region has one project to choose"
    for ask in (backend.offers, backend.check, lambda: list(backend.create(request_for(offer(CPU, CENTRAL), "three")))):
        with pytest.raises(Unfit, match="us-central1 has several projects"):
            ask()


def test_a_second_tenant_hides_nothing(backend: NebiusBackend, fake: Nebius, clock: Clock, made: list[Handle]) -> None:
    both = Fault(
        "nebius.iam.v1.TenantService.List",
        lambda body: {"items": [*body["items"], {"metadata": {"id": "tenant-e00else", "name": "else"}, "spec": {}}]},
        times=100,
    )
    fake.script.faults.append(both)
    clock.passes(700)
    assert [each.handle for each in backend.list_owned()] == made
    with pytest.raises(Unfit, match="several tenants"):
        bought(backend)


def test_a_project_in_the_settings_that_is_no_longer_there_hides_nothing(
    fake: Nebius, clock: Clock, made: list[Handle]
) -> None:
    changed = other(fake, clock, projects=["project-e00north", "project-u00gone"])
    assert [each.handle for each in changed.list_owned()] == made
    with pytest.raises(Unfit, match="no project project-u00gone"):
        changed.check()


@pytest.mark.parametrize("settings", [{"regions": [CENTRAL]}, {"projects": ["project-u00central"]}])
def test_what_is_in_a_region_that_isnt_used_any_more_is_still_listed(
    backend: NebiusBackend, fake: Nebius, clock: Clock, made: list[Handle], settings: dict[str, list[str]]
) -> None:
    disk, group = backend.create_volume(volume_request(NORTH)), backend.create_group(group_request_for(offer(EIGHT)))
    changed = other(fake, clock, **settings)
    for region in (NORTH, ""):
        assert [each.handle for each in changed.list_owned(region=region)] == made
        assert [each.handle for each in changed.list_owned_volumes(region=region)] == [disk]
    assert [each.handle for each in changed.list_owned_groups()] == [group]
    with pytest.raises(Unfit, match="no project in eu-north1"):
        list(changed.create(request_for(offer(CPU), "two")))


def test_a_region_whose_projects_have_disappeared_isnt_empty(fake: Nebius, clock: Clock, made: list[Handle]) -> None:
    fake.projects = {id: where for id, where in fake.projects.items() if where[1] != NORTH}
    with pytest.raises(Unfit, match="sees no project in eu-north1"):
        list(other(fake, clock).list_owned(region=made[0].data["region"]))


def test_a_project_with_something_of_ours_is_never_left_out(
    fake: Nebius, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = "project-e00other"
    made = bought(other(fake, clock, projects=[theirs]))
    backend = other(fake, clock)
    clock.passes(60)
    assert [each.handle for each in backend.list_owned()] == made
    fake.script.faults = [Fault("*Service.List", REFUSED, times=100, fits=of_project(theirs))]
    with pytest.raises(MissingPermission):
        list(backend.list_owned())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert list(other(fake, clock).list_owned()) == [], "the project may be anybody's"
    assert f"the project {theirs} isn't listed, though it may be billed" in caplog.text


def test_the_used_project_is_never_left_out(backend: NebiusBackend, fake: Nebius, made: list[Handle]) -> None:
    fake.script.faults = [Fault("*Service.List", REFUSED, times=100, fits=of_project("project-e00north"))]
    with pytest.raises(MissingPermission):
        list(backend.list_owned())
    fake.script.faults = [Fault("*Service.List", REFUSED, times=100, fits=of_project("project-e00other"))]
    assert [each.handle for each in backend.list_owned()] == made
