"""Whose a resource is: read from its tags or its name, and written as tags or labels that a provider takes.

`domain.owner` has the codec. What can't be read whole is nobody's of ours, whatever one of its tags looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chalicelib.backends.spi import CreateRequest, Owned, OwnedGroup, OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import CALLED, OwnedKind, read
from chalicelib.errors import Unfit

REQUEST_TAG = "dstack-token"  # the tag by which a repeated call finds what the first one made


def owned(handle: Handle, tags: Mapping[str, str], name: str = "") -> Iterator[Owned]:
    """`name`: where the provider has no tags, or they may have been lost."""
    owner = read(tags, name)
    if owner is not None and owner.kind is OwnedKind.instance:
        yield Owned(handle, owner.install, owner.project_id, owner.id, owner.epoch)


def owned_volume(handle: Handle, tags: Mapping[str, str], name: str = "") -> Iterator[OwnedVolume]:
    owner = read(tags, name)
    if owner is not None and owner.kind is OwnedKind.volume:
        yield OwnedVolume(handle, owner.install, owner.project_id, owner.id, owner.epoch)


def owned_group(handle: Handle, tags: Mapping[str, str], name: str = "") -> Iterator[OwnedGroup]:
    owner = read(tags, name)
    if owner is not None and owner.kind is OwnedKind.group:
        yield OwnedGroup(handle, owner.install, owner.project_id, owner.fleet_id, owner.id)


def all_tags(request: CreateRequest | VolumeRequest, account: Mapping[str, str] | None = None) -> dict[str, str]:
    """The account's own tags, then the request's, which win, and its token."""
    return {**(account or {}), **dict(request.tags), REQUEST_TAG: request.token}


@dataclass(frozen=True)
class LabelRule:
    """What a provider takes as a label: patterns of a whole key and of a whole value, and how many."""

    key: str
    value: str
    most: int


def labels(tags: Mapping[str, str], rule: LabelRule, provider: str) -> dict[str, str]:
    """The tags as labels. Raises Unfit if the provider doesn't take one of them; the name that people gave a machine is
    left out then, because nothing is read from it."""
    wrong = {key for key, value in tags.items() if not _fits(rule, key, value)}
    if unfit := sorted(wrong - {CALLED}):
        raise Unfit(
            f"{provider} takes no such tags: {', '.join(f'`{key}`' for key in unfit)}.",
            hint=f"A key has the form {rule.key} there, and a value {rule.value}.",
        )
    found = {key: value for key, value in tags.items() if key not in wrong}
    if len(found) > rule.most:
        raise Unfit(f"{provider} takes {rule.most} tags, and {len(found)} are set.", hint="Set fewer.")
    return found


def _fits(rule: LabelRule, key: str, value: str) -> bool:
    return bool(re.fullmatch(rule.key, key) and re.fullmatch(rule.value, value))
