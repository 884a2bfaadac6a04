"""A resource's owner: read from its tags or name, and written as tags or labels that the provider accepts.

`domain.owner` has the codec. A resource whose owner can't be read completely isn't ours, whatever one of its tags says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chalicelib.backends.spi import CreateRequest, GroupRequest, Owned, OwnedGroup, OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import CALLED, OwnedKind, read
from chalicelib.errors import Unfit

REQUEST_TAG = "dstack-token"  # the tag by which a repeated call finds what the first one created


def owned(handle: Handle, tags: Mapping[str, str], name: str = "", *, only: str | None = None) -> Iterator[Owned]:
    """`name`: for providers without tags, or where tags may be lost. `only`: of this instance."""
    owner = read(tags, name)
    if owner is not None and owner.kind is OwnedKind.instance and only in (None, owner.id):
        yield Owned(handle, owner.install, owner.project_id, owner.id, owner.epoch)


def owned_volume(
    handle: Handle, tags: Mapping[str, str], name: str = "", *, only: str | None = None
) -> Iterator[OwnedVolume]:
    owner = read(tags, name)
    if owner is not None and owner.kind is OwnedKind.volume and only in (None, owner.id):
        yield OwnedVolume(handle, owner.install, owner.project_id, owner.id, owner.epoch)


def owned_group(handle: Handle, tags: Mapping[str, str], name: str = "") -> Iterator[OwnedGroup]:
    owner = read(tags, name)
    if owner is not None and owner.kind is OwnedKind.group:
        yield OwnedGroup(handle, owner.install, owner.project_id, owner.fleet_id, owner.id)


def all_tags(
    request: CreateRequest | VolumeRequest | GroupRequest, account: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The account's own tags, the request's, which take precedence, and its token."""
    return {**(account or {}), **dict(request.tags), REQUEST_TAG: request.token}


@dataclass(frozen=True)
class LabelRule:
    """What a provider accepts as labels: patterns for a whole key and a whole value, and the maximum number."""

    key: str
    value: str
    most: int


def labels(tags: Mapping[str, str], rule: LabelRule, provider: str) -> dict[str, str]:
    """The tags as labels. Raises Unfit if the provider doesn't accept one of them. Only the name that users gave a
    machine is left out in that case, because nothing is read from it."""
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
