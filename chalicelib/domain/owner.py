"""Whose a resource at a provider is: said by its tags where it has tags, and by its name everywhere.

A name is all that some providers keep. The shortest limit that they set is 60 characters, of lower-case letters, digits
and hyphens, after a letter. Two ids of 128 bits take 50 of them, so the install, which is compared and never looked up,
is a hash of six, its mark:

    kind  mark of install  project or fleet  instance, volume or group  epoch
       1                6                25                         25      3

A group is looked up in its fleet, so its name has the fleet, and not the project. Every part has its width: two owners
never have one name, and a name has one reading. Anybody can give a resource tags or a name: whatever can't be read
whole belongs to somebody else, and what can is ours only if its install is (`is_ours`).
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
EPOCHS = 36**3  # how many a name can tell apart
ANY = "?*"  # in a policy, a tag that is there; what knows the installation's id puts it in its place
CALLED = "dstack-name"  # the tag with what people call it; nothing is read from it
OFFERED = "dstack-projects"  # the tag by which a disk's owner lets the projects that it names register the disk
DIGITS = string.digits + string.ascii_lowercase

_NAME = re.compile(r"([a-z])([0-9a-z]{6})([0-9a-z]{25})([0-9a-z]{25})([0-9a-z]{3})")
_EPOCH = re.compile(r"[0-9]{1,9}")


class OwnedKind(StrEnum):
    """What is owned; as a tag, `dstack-instance` and so on."""

    instance = "instance"
    volume = "volume"
    group = "group"


_LETTERS = {kind: kind.value[0] for kind in OwnedKind}


@dataclass(frozen=True)
class Owner:
    kind: OwnedKind
    install: str  # the install's id; its mark, if the name is all that there is
    project_id: str  # empty for a group of which only the name is known
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
        """The same for the same owner, and for no other."""
        if not 0 <= self.epoch < EPOCHS:
            raise Bug(f"{self.kind} {self.id} has had {self.epoch} epochs, and a name can tell {EPOCHS} apart")
        within = self.fleet_id if self.kind is OwnedKind.group else self.project_id
        return _LETTERS[self.kind] + mark(self.install) + _short(within) + _short(self.id) + _in_36(self.epoch, 3)


def mark(install: str) -> str:
    """An install, in a name."""
    number = int.from_bytes(hashlib.sha256(install.encode()).digest()[:8], "big")
    return _in_36(number % 36**6, 6)


def is_ours(install: str, install_id: str) -> bool:
    """Does what a resource says of its install name this one?"""
    return install in (install_id, mark(install_id))


def read(tags: Mapping[str, str], name: str = "") -> Owner | None:
    """Whose it is. Tags count first: what an earlier version created has another name."""
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
