"""`dstack audit`: the log of events that a server writes for auditors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chalicelib.domain.audit_chain import Broken, verified
from chalicelib.errors import Refused
from cli.screen.parameters import command, new_group
from cli.screen.terminal import terminal

app = new_group("Check the audit log that a server writes.")

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The audit log.")]


@app.callback()
def audit() -> None:
    """Check the audit log that a server writes."""


@command(app, "verify", "dstack audit verify /var/log/dstack/audit.jsonl", "dstack audit verify ./audit.jsonl")
def verify(ctx: typer.Context, file: FileArgument) -> None:
    """Check that nothing in an audit log was changed, removed, added or moved.

    The server writes it to the file that DSTACK_SERVER_AUDIT_FILE names. Lines that are missing at the end can't be
    found by the file alone: keep the hash that this prints elsewhere, and look whether the log still has it later.
    No --json: it prints one line.
    """
    try:
        with Path(file).open("rb") as lines:
            head = verified(lines)
    except Broken as broken:
        raise Refused(
            f"{file}: {broken}.", hint="Up to there it is as the server wrote it. Compare the rest with a copy of it."
        ) from broken
    except OSError as error:
        raise Refused(f"{file} can't be read: {error.strerror}.", hint="Name the file of the audit log.") from error
    terminal(ctx).print(f"{head.number} events, none changed. The last one's hash: {head.hash}")
