"""The owner of a resource at a provider, encoded in its tags where there are tags, and in its name everywhere.

Some providers store only a name. The lowest limit is 60 characters: a letter, then lower-case letters, digits and
hyphens. Two ids of 128 bits take 50 of them, so the install, which is compared and never looked up, is a hash of six
characters, its mark:

    kind  mark of install  project or fleet  instance, volume or group  epoch
       1                6                25                         25      3

A group is looked up in its fleet, so its name contains the fleet and not the project. Every part has a fixed width, so
two owners never share a name, and a name can be read in one way only. Anybody can give a resource tags or a name: a
resource belongs to this installation only if its owner can be read completely and names it (`same_install`).
"""

from __future__ import annotations

import hashlib
import re
import string
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from chalicelib.errors import Bug

LONGEST = 60
EPOCHS = 36**3  # how many epochs a name can distinguish
ANY = "?*"  # in a policy: any value of a tag; replaced by the installation's id where that is known
CALLED = "dstack-name"  # the tag with the name that people know; never read
OFFERED = "dstack-projects"  # the tag in which a disk's owner lists the projects that may register the disk
DIGITS = string.digits + string.ascii_lowercase

_NAME = re.compile(r"([a-z])([0-9a-z]{6})([0-9a-z]{25})([0-9a-z]{25})([0-9a-z]{3})")
_EPOCH = re.compile(r"[0-9]{1,9}")


class OwnedKind(StrEnum):
    """The kind of noun that owns a resource; its tag is `dstack-instance` and so on."""

    instance = "instance"
    volume = "volume"
    group = "group"


_LETTERS = {kind: kind.value[0] for kind in OwnedKind}


@dataclass(frozen=True)
class Owner:
    kind: OwnedKind
    install: str  # the install's id, or its mark if only the name is known
    project_id: str  # empty for a group if only its name is known
    id: str
    epoch: int = 0  # of an instance or a volume
    fleet_id: str = ""  # of a group

    @property
    def tags(self) -> tuple[tuple[str, str], ...]:
        return (
            ("dstack-install", self.install),
            ("dstack-project", self.project_id),
            *((("dstack-fleet", self.fleet_id),) if self.kind is OwnedKind.group else ()),
            (f"dstack-{self.kind}", self.id),
            *((("dstack-epoch", str(self.epoch)),) if self.kind is not OwnedKind.group else ()),
        )

    @property
    def name(self) -> str:
        """The name that encodes this owner, and no other."""
        if not 0 <= self.epoch < EPOCHS:
            raise Bug(f"{self.kind} {self.id} has had {self.epoch} epochs, and a name can tell {EPOCHS} apart")
        within = self.fleet_id if self.kind is OwnedKind.group else self.project_id
        return _LETTERS[self.kind] + mark(self.install) + _short(within) + _short(self.id) + _in_36(self.epoch, 3)


def mark(install: str) -> str:
    """The hash that stands for an install in names."""
    number = int.from_bytes(hashlib.sha256(install.encode()).digest()[:8], "big")
    return _in_36(number % 36**6, 6)


def same_install(install: str, install_id: str) -> bool:
    """Does an install's id or mark, read from a resource, stand for this install?"""
    return install in (install_id, mark(install_id))


def read(tags: Mapping[str, str], name: str = "") -> Owner | None:
    """The owner of a resource, or None. Tags take precedence, because earlier versions created other names."""
    return from_tags(tags) or from_name(name)


def from_tags(tags: Mapping[str, str]) -> Owner | None:
    kinds = [kind for kind in OwnedKind if tags.get(f"dstack-{kind}")]
    install, project_id, fleet_id = (tags.get(f"dstack-{name}", "") for name in ("install", "project", "fleet"))
    if len(kinds) != 1 or not install or not project_id:
        return None
    (kind,) = kinds
    if kind is OwnedKind.group:
        return Owner(kind, install, project_id, tags["dstack-group"], fleet_id=fleet_id) if fleet_id else None
    epoch = tags.get("dstack-epoch", "")
    return Owner(kind, install, project_id, tags[f"dstack-{kind}"], int(epoch)) if _EPOCH.fullmatch(epoch) else None


def from_name(name: str) -> Owner | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    letter, install, within, owned, epoch = found.groups()
    kind = next((kind for kind in OwnedKind if _LETTERS[kind] == letter), None)
    first, second, number = _long(within), _long(owned), int(epoch, 36)
    if kind is None or first is None or second is None:
        return None
    if kind is OwnedKind.group:
        return Owner(kind, install, "", second, fleet_id=first) if number == 0 else None
    return Owner(kind, install, first, second, number)


def _short(identity: str) -> str:
    try:
        return _in_36(uuid.UUID(identity).int, 25)
    except ValueError as error:
        raise Bug(f"{identity!r} is no id, so no name can be made of it") from error


def _long(text: str) -> str | None:
    number = int(text, 36)
    return str(uuid.UUID(int=number)) if number < 1 << 128 else None


def _in_36(number: int, width: int) -> str:
    text = ""
    for _ in range(width):
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text
