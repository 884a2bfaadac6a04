"""An event as one line, or as many as the screen needs: time, actor, targets, and message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.printable import printable
from cli.screen.render import paint, wrap
from cli.tables.cells import local_time

if TYPE_CHECKING:
    from chalicelib import contract

INDENT = "  "  # of continued lines


def event_line(event: contract.Event, width: int | None = None, colour: bool = False) -> str:
    targets = ", ".join(f"{target['type']} {target['name']}" for target in event["targets"])
    actor, token = event["actor_user"], event["actor_token"]
    by = f"[{actor} by token {token}]" if token else f"[{actor}]" if actor else ""
    time = f"[{local_time(event['recorded_at'])}]"
    text = printable(f"{time}{by}[{targets}] {event['message']}")
    if width:
        text = f"\n{INDENT}".join(wrap(text, width - len(INDENT)))
    return paint(time, "dim", colour) + text[len(time) :]
