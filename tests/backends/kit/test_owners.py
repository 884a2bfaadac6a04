"""Whose a resource is, and which tags a provider takes."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.owners import REQUEST_TAG, LabelRule, all_tags, labels, owned, owned_group, owned_volume
from chalicelib.backends.spi import OwnedGroup, OwnedVolume
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import CALLED, OwnedKind, Owner, mark
from chalicelib.errors import Unfit
from tests.backends.conformance.requests import FLEET, INSTALL, PROJECT, volume_request

HANDLE = Handle(kind="thing", id="1")
INSTANCE = Owner(OwnedKind.instance, INSTALL, PROJECT, FLEET, 7)
# As two clouds have them: labels of lower-case letters, and tags of nearly anything.
NARROW = LabelRule(r"[a-z][a-z0-9_-]{0,62}", r"[a-z0-9_-]{0,63}", 6)
WIDE = LabelRule(r"[^<>%&]{1,512}", r".{0,256}", 50)


def test_an_owner_is_read_from_tags_and_from_the_name_alone() -> None:
    (by_tags,), (by_name,) = owned(HANDLE, dict(INSTANCE.tags)), owned(HANDLE, {}, INSTANCE.name)
    assert (by_tags.install, by_name.install) == (INSTALL, mark(INSTALL))
    for found in (by_tags, by_name):
        assert (found.handle, found.project_id, found.instance_id, found.epoch) == (HANDLE, PROJECT, FLEET, 7)


def test_a_name_counts_where_tags_say_nothing_whole() -> None:
    tags = dict(INSTANCE.tags)
    del tags["dstack-project"]
    assert list(owned(HANDLE, tags)) == []
    assert len(list(owned(HANDLE, tags, INSTANCE.name))) == 1


def test_each_kind_is_taken_for_itself_alone() -> None:
    volume = Owner(OwnedKind.volume, INSTALL, PROJECT, FLEET, 2)
    group = Owner(OwnedKind.group, INSTALL, PROJECT, "g", fleet_id=FLEET)
    assert list(owned_volume(HANDLE, dict(volume.tags))) == [OwnedVolume(HANDLE, INSTALL, PROJECT, FLEET, 2)]
    assert list(owned_group(HANDLE, dict(group.tags))) == [OwnedGroup(HANDLE, INSTALL, PROJECT, FLEET, "g")]
    for read in (owned, owned_volume, owned_group):
        own = {owned: INSTANCE, owned_volume: volume, owned_group: group}[read]
        others = [each for each in (INSTANCE, volume, group) if each is not own]
        assert [list(read(HANDLE, dict(each.tags))) for each in others] == [[], []]


def test_the_requests_own_tags_win() -> None:
    request = volume_request("r")
    tags = all_tags(request, {"team": "ml", "dstack-install": "forged", REQUEST_TAG: "forged"})
    assert tags == {"team": "ml", **dict(request.tags), REQUEST_TAG: request.token}


@pytest.mark.parametrize("rule", [NARROW, WIDE])
def test_our_own_tags_fit_the_narrowest_labels(rule: LabelRule) -> None:
    tags = {**dict(INSTANCE.tags), REQUEST_TAG: volume_request("r").token}
    assert labels(tags, rule, "Example") == tags


def test_tags_that_a_provider_doesnt_take_are_named_and_never_dropped() -> None:
    with pytest.raises(Unfit, match=r"Example takes no such tags: `Team`, `cost`\. .*\[a-z\]"):
        labels({"Team": "ml", "cost": "Ab c", "fine": "x"}, NARROW, "Example")
    assert len(labels({f"t{n}": "" for n in range(6)}, NARROW, "Example")) == 6
    with pytest.raises(Unfit, match="takes 6 tags, and 7 are set"):
        labels({f"t{n}": "" for n in range(7)}, NARROW, "Example")


def test_a_name_for_people_is_left_out_where_it_doesnt_fit() -> None:
    assert labels({CALLED: "x" * 64, "a": "b"}, NARROW, "Example") == {"a": "b"}
    assert labels({CALLED: "fleet-0"}, NARROW, "Example") == {CALLED: "fleet-0"}
