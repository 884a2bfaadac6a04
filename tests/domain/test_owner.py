"""The owner of a resource: written into tags and names, read back whole, and never read out of anything else."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from chalicelib.domain.ids import derive
from chalicelib.domain.owner import EPOCHS, LONGEST, OwnedKind, Owner, from_name, from_tags, mark, read, same_install
from chalicelib.errors import Bug

IDS = st.uuids().map(str)
INSTALLS = st.one_of(IDS, st.text(min_size=1, max_size=20))
EPOCH = st.integers(0, EPOCHS - 1)
INSTALL, PROJECT = derive("here", "install"), derive("tests", "project")


@st.composite
def owners(draw: st.DrawFn) -> Owner:
    kind = draw(st.sampled_from(OwnedKind))
    if kind is OwnedKind.group:
        return Owner(kind, draw(INSTALLS), draw(IDS), draw(IDS), fleet_id=draw(IDS))
    return Owner(kind, draw(INSTALLS), draw(IDS), draw(IDS), draw(EPOCH))


def one(**changes: object) -> Owner:
    given: dict[str, object] = {"kind": OwnedKind.instance, "install": INSTALL, "project_id": PROJECT}
    return Owner(**{**given, "id": derive("one", "instance"), **changes})  # type: ignore[arg-type]


def known_by_name(owner: Owner) -> Owner:
    project = "" if owner.kind is OwnedKind.group else owner.project_id
    return Owner(owner.kind, mark(owner.install), project, owner.id, owner.epoch, owner.fleet_id)


@given(owners())
@pytest.mark.slow
def test_tags_are_read_back(owner: Owner) -> None:
    assert from_tags(dict(owner.tags)) == owner == read(dict(owner.tags), "anything")


@given(owners())
@pytest.mark.slow
def test_a_name_fits_every_provider_and_is_read_back_whole(owner: Owner) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9-]*", owner.name) and len(owner.name) <= LONGEST
    assert from_name(owner.name) == known_by_name(owner) == read({}, owner.name)
    assert same_install(mark(owner.install), owner.install)


@given(owners(), owners())
def test_two_owners_never_have_one_name(a: Owner, b: Owner) -> None:
    assume(known_by_name(a) != known_by_name(b))
    assert a.name != b.name


@pytest.mark.parametrize("extreme", [uuid.UUID(int=0), uuid.UUID(int=(1 << 128) - 1)])
@pytest.mark.parametrize("epoch", [0, 1, 10_000, EPOCHS - 1])
def test_the_extremes_have_names(extreme: uuid.UUID, epoch: int) -> None:
    owner = one(project_id=str(extreme), id=str(extreme), epoch=epoch)
    assert from_name(owner.name) == known_by_name(owner)


@given(st.text(max_size=70))
@example("web-1")
@example("")
@example("dstack-fleet-0-12345678-0")
@example("i" + "0" * 58)
@example("i" + "0" * 60)
@example("x" + "0" * 59)
@example("I" + "0" * 59)
@example("i" + "0" * 6 + "z" * 50 + "000")  # more than 128 bits
@example("g" + "0" * 56 + "001")  # groups have no epochs
@example("i" + "0" * 58 + "\u0660")
@example("i" + "0" * 59 + "\n")
@pytest.mark.slow
def test_foreign_names_are_not_ours(name: str) -> None:
    found = from_name(name)
    assert found is None or not same_install(found.install, INSTALL)


@given(st.from_regex(r"\A[ivg][0-9a-z]{59}\Z"))
@pytest.mark.slow
def test_what_is_read_of_a_name_has_that_name(name: str) -> None:
    """So no second spelling of an owner is taken for it."""
    found = from_name(name)
    if found is not None:
        assert name[:1] + name[7:] == found.name[:1] + found.name[7:] and found.install == name[1:7]


@pytest.mark.parametrize(
    "changes",
    [
        {"dstack-install": ""},
        {"dstack-project": ""},
        {"dstack-instance": ""},
        {"dstack-epoch": ""},
        {"dstack-epoch": "-1"},
        {"dstack-epoch": "1_0"},
        {"dstack-epoch": "\u0661"},
        {"dstack-epoch": "9" * 5000},
        {"dstack-volume": "also"},
        {"dstack-instance": "", "dstack-group": "without a fleet"},
    ],
    ids=str,
)
def test_tags_that_cannot_be_read_belong_to_somebody_else(changes: dict[str, str]) -> None:
    assert from_tags({**dict(one().tags), **changes}) is None


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)))
@pytest.mark.slow
def test_foreign_tags_are_nobodys(tags: dict[str, str]) -> None:
    assert from_tags(tags) is None


def test_another_install_is_not_this_one() -> None:
    other = derive("there", "install")
    assert same_install(INSTALL, INSTALL) and same_install(mark(INSTALL), INSTALL)
    assert not same_install(other, INSTALL) and not same_install(mark(other), INSTALL) and not same_install("", INSTALL)


def test_tags_count_before_the_name() -> None:
    """What an earlier version created has a name that says nothing, and tags as today's."""
    assert read(dict(one(epoch=3).tags), "dstack-fleet-0-12345678-3") == one(epoch=3)
    assert read(dict(one().tags), one(epoch=1).name) == one()


def test_what_has_no_name_is_refused_before_anything_is_bought() -> None:
    with pytest.raises(Bug, match="tell 46656 apart"):
        assert one(epoch=EPOCHS).name
    with pytest.raises(Bug, match="'main' is no id"):
        assert one(project_id="main").name
