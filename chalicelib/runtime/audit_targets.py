"""Where the embedded server writes its audit log: a file, a bucket, a syslog server, or several of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.errors import Invalid, Refused
from chalicelib.runtime.audit_syslog import Address, address_of

if TYPE_CHECKING:
    from chalicelib.engine.ports import Feed
    from chalicelib.runtime.audit_log import AuditLog

FILE, FILE_SIZE = "DSTACK_SERVER_AUDIT_FILE", "DSTACK_SERVER_AUDIT_FILE_MB"
BUCKET, SYSLOG = "DSTACK_SERVER_AUDIT_S3", "DSTACK_SERVER_AUDIT_SYSLOG"
S3_EVERY = 60.0  # seconds between two objects


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


def logs_of(file: Path | None, targets: AuditTargets, folder: Path, feed: Feed) -> Iterator[AuditLog]:
    from chalicelib.runtime.audit_file import FileSink
    from chalicelib.runtime.audit_log import AuditLog
    from chalicelib.runtime.audit_s3 import S3Sink
    from chalicelib.runtime.audit_syslog import SyslogSink

    if file is not None:
        yield AuditLog(FileSink(file, targets.file_bytes), feed)
    if targets.s3 is not None:
        yield AuditLog(S3Sink(*targets.s3, s3_client(), S3_EVERY), feed)
    if targets.syslog is not None:
        yield AuditLog(SyslogSink(targets.syslog, folder), feed)


def s3_client() -> Any:
    from chalicelib.runtime.settings import emulator

    try:
        import boto3
    except ImportError as error:
        raise Refused(
            "An audit log in S3 needs boto3, which isn't installed here.",
            hint="Install dstack-serverless with its extra `aws`.",
        ) from error
    return boto3.client("s3", endpoint_url=emulator())
