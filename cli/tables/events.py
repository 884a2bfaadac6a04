"""One event as one line: when, who, about what, and what happened."""

from __future__ import annotations

from cli.render import paint
from cli.tables.cells import Json, local_time


def event_line(event: Json, colour: bool = False) -> str:
    targets = ", ".join(f"{target['type']} {target['name']}" for target in event.get("targets") or ())
    who = f"[{event['actor_user']}]" if event.get("actor_user") else ""
    when = paint(f"[{local_time(event['recorded_at'])}]", "dim", colour)
    return f"{when}{who}[{targets}] {event['message']}"
