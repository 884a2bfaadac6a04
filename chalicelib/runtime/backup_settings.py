"""Where a server is copied to: its backups, and the copies for the other server of its pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chalicelib.errors import Invalid


@dataclass(frozen=True)
class BackupSettings:
    """Where a server is backed up to, and with which key."""

    to: str = ""  # a folder, a file or s3://bucket/prefix; a running server with none makes no backups
    every: int = 3_600  # seconds between a running server's
    keep: int = 604_800  # seconds for which they are kept
    key_file: Path | None = None  # with the key, made by the first backup
    passphrase: str = field(default="", repr=False)  # instead of a file


@dataclass(frozen=True)
class PairSettings:
    """The pair that a server belongs to. Its copies are sealed with the key of the backups."""

    every: int = 10  # seconds between two copies
    lease: int = 15  # seconds for which a server decides that can't renew its lease

    @staticmethod
    def read(env: Mapping[str, str]) -> PairSettings:
        return PairSettings(
            every=lasting(env, "DSTACK_PAIR_EVERY", PairSettings.every, least=1),
            lease=lasting(env, "DSTACK_PAIR_LEASE", PairSettings.lease, least=2),
        )


def lasting(env: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    """The seconds of a duration such as `1h`."""
    from pydantic_core import PydanticCustomError

    from chalicelib.domain.specs.quantities import positive_seconds

    try:
        found = positive_seconds(env.get(name, default))
    except PydanticCustomError as error:
        raise Invalid(f"{name} is {env[name]!r}, not a duration.", hint=f"Set it as in {name}=1h.") from error
    if found < least:
        raise Invalid(f"{name} is {env[name]!r}; at least {least} s.", hint=f"Set it as in {name}=1h.")
    return found
