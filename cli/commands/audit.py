"""`dstack audit`: the log of events that a server writes for auditors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from chalicelib.domain.audit_chain import Broken, Head, rotated, verified
from chalicelib.errors import Refused
from cli.screen.parameters import command, new_group
from cli.screen.terminal import terminal

app = new_group("Check the audit log that a server writes.")

PlaceArgument = Annotated[str, typer.Argument(metavar="FILE", help="The audit log: a file, or s3://BUCKET/PREFIX.")]
S3 = "s3://"
FILE_EXAMPLE, S3_EXAMPLE = (
    f"dstack audit verify {place}" for place in ("/var/log/audit.jsonl", "s3://company-audit/gpu")
)


@app.callback()
def audit() -> None:
    """Check the audit log that a server writes."""


@command(app, "verify", FILE_EXAMPLE, S3_EXAMPLE)
def verify(ctx: typer.Context, file: PlaceArgument) -> None:
    """Check that nothing in an audit log was changed, removed, added or moved.

    The server writes it to the file that DSTACK_SERVER_AUDIT_FILE names, or to the bucket in DSTACK_SERVER_AUDIT_S3. Of
    a log in several files name the present one: those before it, beside it, are read first, and a missing one is found.
    Lines that are missing at the end can't be found by the log alone: keep the hash that this prints elsewhere, and
    look whether the log still has it later. No --json: it prints one line.
    """
    head = Head()
    for name, lines in _in_bucket(file) if file.startswith(S3) else _files(Path(file)):
        try:
            head = verified(lines, head)
        except Broken as broken:
            hint = "Up to there it is as the server wrote it. Compare the rest with a copy of it."
            raise Refused(f"{name}: {broken}.", hint=hint) from broken
    terminal(ctx).print(f"{head.number} events, none changed. The last one's hash: {head.hash}")


def _files(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """The files of a log, each with its lines, oldest first."""
    try:
        earlier = rotated(path, (each.name for each in path.parent.iterdir()))
        for each in (*(path.with_name(name) for name in earlier), path):
            yield str(each), each.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise Refused(f"{path} can't be read: {error.strerror}.", hint="Name the file of the audit log.") from error


def _in_bucket(place: str) -> Iterator[tuple[str, list[bytes]]]:
    """The objects of a log, each with its lines, oldest first."""
    bucket, _, prefix = place.removeprefix(S3).partition("/")
    s3, prefix = _s3(), f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    found = False
    try:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for each in page.get("Contents", ()):
                found = True
                data: bytes = s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
                yield f"{S3}{bucket}/{each['Key']}", data.splitlines(keepends=True)
    except Exception as error:  # whatever the SDK raises
        raise Refused(f"{place} can't be read: {error}.", hint="Check its name, and your credentials.") from error
    if not found:
        raise Refused(f"There is nothing in {place}.", hint="Name it as in DSTACK_SERVER_AUDIT_S3.")


def _s3() -> Any:
    from chalicelib.runtime.s3_client import s3_client

    return s3_client("Audit logs")
