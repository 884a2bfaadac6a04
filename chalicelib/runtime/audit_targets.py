"""Where the embedded server writes its audit log: a file, a bucket, a syslog server, or several of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from chalicelib.errors import Invalid
from chalicelib.runtime.audit_syslog import Address, address_of

FILE, FILE_SIZE = "DSTACK_SERVER_AUDIT_FILE", "DSTACK_SERVER_AUDIT_FILE_MB"
BUCKET, SYSLOG = "DSTACK_SERVER_AUDIT_S3", "DSTACK_SERVER_AUDIT_SYSLOG"


@dataclass(frozen=True)
class AuditTargets:
    file_bytes: int = 0  # after which a new file begins; 0: never
    s3: tuple[str, str] | None = None  # bucket, prefix
    syslog: Address | None = None

    @staticmethod
    def read(env: Mapping[str, str]) -> AuditTargets:
        """Raises Invalid, naming the variable."""
        size = env.get(FILE_SIZE, "0")
        if not (size.isascii() and size.isdigit() and len(size) < 8):
            raise Invalid(
                f"{FILE_SIZE} is {size[:80]!r}, not a number of megabytes.", hint=f"Set it as in {FILE_SIZE}=100."
            )
        if int(size) and FILE not in env:
            raise Invalid(f"{FILE_SIZE} is set without {FILE}.", hint=f"Set {FILE} to the name of the file.")
        return AuditTargets(
            int(size) * 2**20,
            bucket_of(env[BUCKET], BUCKET) if BUCKET in env else None,
            address_of(env[SYSLOG]) if SYSLOG in env else None,
        )


def bucket_of(text: str, name: str) -> tuple[str, str]:
    """The bucket and the prefix in `s3://bucket/prefix`. Raises Invalid."""
    found = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([\w./=+-]*?))?/?", text)
    if found is None:
        raise Invalid(f"{name} is {text[:200]!r}, not a place in S3.", hint="Write it as in s3://bucket/audit.")
    return found[1], found[2] or ""
