"""The progress of an SSH fleet's hosts while they are added: a line for each step of each host, and for each attempt
that is repeated, which may take minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.connection import calls
from cli.connection.session import Session

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

STEPS = ("done: ", "undone: ")  # how the events of steps begin
RETRIED = "Transient: "  # how the events of failed attempts that are repeated begin


class HostProgress:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: tuple[str, str] | None = None  # time and id of the last event that was read
        self._last_lines: dict[str, str] = {}  # by host

    def news(self, fleet: contract.Fleet) -> list[str]:
        """The lines since the last call. A fleet of cloud machines has none."""
        if not fleet["spec"]["configuration"].get("ssh_config"):
            return []
        hosts = {one["id"]: f"{one.get('hostname') or one['name']}" for one in fleet["instances"]}
        body: bodies.ListEventsBody = {
            "within_fleets": [fleet["id"]],
            "include_target_types": ["instance"],
            "ascending": True,
        }
        if self._last:
            body["prev_recorded_at"], body["prev_id"] = self._last
        found = calls.events_list(self._session.client, body)
        if found:
            self._last = found[-1]["recorded_at"], found[-1]["id"]
        return [line for event in found for line in self._lines(event, hosts)]

    def _lines(self, event: contract.Event, hosts: dict[str, str]) -> list[str]:
        host = next((hosts[target["id"]] for target in event["targets"] if target["id"] in hosts), None)
        text = str(event["message"])
        if host is None or not text.startswith((*STEPS, RETRIED)):
            return []
        line = f"  {host}: {text.removeprefix('done: ')}"
        if text.startswith(RETRIED):
            line = f"  {host}: {text.removeprefix(RETRIED)}; trying again"
        before, self._last_lines[host] = self._last_lines.get(host), line
        return [] if line == before else [line]
