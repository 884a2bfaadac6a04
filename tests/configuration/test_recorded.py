"""The same file means the same to the genuine client: 740 files, and what dstack 0.22.5 put on the wire for each.

`recorded.json` holds file, flags and the configuration that arrived at a recording server, or null where the client
refused. Within a type an entry holds what differs from the type's first one (`-`: keys that were left out), so that the
file can be read. Where we differ on purpose, `STRICTER`, `KINDER` and `REWORDED` say why; a difference that isn't there
fails, and so does an entry there that is no difference any more.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chalicelib.configuration.overrides import Overrides, overridden
from chalicelib.configuration.parse import parse
from chalicelib.configuration.resolution import resolved
from chalicelib.errors import Invalid

RECORDED = Path(__file__).with_name("recorded.json")
ENVIRONMENT = {"HOME": "/home/me"}

# Part of the file or flags -> why we read it differently.
STRICTER = {
    "C: 1.10, D: 0x10, E: 010": "numbers that YAML misreads are refused",
    "commands: [1, 2.50]": "numbers that YAML misreads are refused",
    "max_price: .inf": "infinity can't travel as JSON",
    "name: 'A100,H100'": "one GPU called `A100,H100` was never meant",
    "memory: -1": "an amount below zero is refused at once, not by the cloud",
    "{gpu: -1}": "an amount below zero is refused at once, not by the cloud",
    "{count: -1}": "an amount below zero is refused at once, not by the cloud",
    "retry: {duration: -1}": "refused by the server anyway",
    "priority: true": "a switch isn't a number",
    "nodes: true": "a switch isn't a number",
    "name: a\nname: b": "a key that appears twice would lose one value",
    "nodes: 1\nssh_config": "refused by the server anyway",
    "internal_ip: 10.0.0.1}": "half the hosts have an address: refused by the server anyway",
    "port: 70000": "no such port",
    "backend: aws\nregion: us\n ": "a volume without a size: refused by the server anyway",
    "volume_id: x\nname: n\nauto_cleanup": "what was there before isn't cleaned up: refused by the server anyway",
    "volume_id: x\nauto_cleanup": "what was there before isn't cleaned up: refused by the server anyway",
    "type: fleet\n ": "neither nodes nor hosts: refused by the server anyway",
    "region: r\npublic_ip: false\n ": "Let's Encrypt must reach the gateway: refused by the server anyway",
    "backend: vultr\nregion: r\ncertificate: {type: acm": "refused by the server anyway",
    "--max-price 0": "refused in a file there too",
}
KINDER = {
    "tags: {a: 1}": "a crash there",
    "env: {A: 2024-01-01}": "a date is the text that was written",
    "metric: queue": "read beside `rps`",
    "{compute_capability: 8}": "8 is 8.0",
    "files: ['C:": "the file was missing when this was recorded",
    "--spot --on-demand": "two flags that the command line, not this, tells apart",
}
REWORDED = {
    "--fleet": "the client sends what was typed; the reference it means is the same",
    "commands: ['$${{": "the server takes the escape out, so that it can tell it from a reference",
}


class Recorded(NamedTuple):
    file: str
    flags: list[str]
    wire: dict[str, Any] | None

    def __str__(self) -> str:
        return f"{self.file} {' '.join(self.flags)}"

    def reason(self, reasons: dict[str, str]) -> str | None:
        return next((why for part, why in reasons.items() if part in str(self)), None)


@cache
def recorded() -> list[Recorded]:
    found = []
    first: dict[str, dict[str, Any]] = {}
    for entry in json.loads(RECORDED.read_text(encoding="utf-8")):
        wire = entry["wire"]
        if wire is not None and wire["type"] != "volume":
            base = first.setdefault(wire["type"], wire)
            gone = wire.get("-", [])
            wire = {k: v for k, v in {**base, **wire}.items() if k != "-" and k not in gone}
        found.append(Recorded(entry["file"], entry.get("flags", []), wire))
    return found


def overrides(flags: list[str]) -> tuple[Overrides, Sequence[str]]:
    """The few flags that were recorded, as the command line would hand them on."""
    one = {"-n": "name", "--max-price": "max_price"}
    many = {"-b": "backends", "-r": "regions", "--instance-type": "instance_types", "-e": "env", "-p": "ports"}
    many["--fleet"] = "fleets"
    switches: dict[str, tuple[str, Any]] = {
        "-R": ("creation_policy", "reuse"),
        "--dont-destroy": ("idle_duration", "off"),
        "--spot": ("spot_policy", "spot"),
        "--on-demand": ("spot_policy", "on-demand"),
        "--spot-auto": ("spot_policy", "auto"),
        "--retry": ("retry", True),
        "--no-retry": ("retry", False),
    }
    fields: dict[str, Any] = {}
    arguments: list[str] = []
    left = iter(flags)
    for flag in left:
        if flag in many:
            fields[many[flag]] = (*fields.get(many[flag], ()), next(left))
        elif flag in switches:
            field, value = switches[flag]
            fields[field] = value
        elif flag.startswith("-") and flag not in ("--", "--no-profile"):
            field = one.get(flag, flag.removeprefix("--").replace("-", "_"))
            fields[field] = float(next(left)) if field == "max_price" else next(left)
        elif flag not in ("--", "--no-profile"):
            arguments.append(flag)
    return Overrides(**fields), arguments


def resolve(file: str, flags: list[str]) -> dict[str, Any] | None:
    fields, arguments = overrides(flags)
    try:
        found = resolved(overridden(parse(file), fields), environment=ENVIRONMENT, arguments=arguments)
    except Invalid as error:
        assert error.problems
        assert all(problem.message and problem.code for problem in error.problems)
        return None
    return found.model_dump(mode="json")


def difference(case: Recorded) -> str | None:
    """What is read unlike the genuine client does, but for what differs on purpose."""
    found = resolve(case.file, case.flags)
    if found is None and case.wire is not None:
        return None if case.reason(STRICTER) else "we refuse what the client takes"
    if found is not None and case.wire is None:
        return None if case.reason(KINDER) else "we take what the client refuses"
    return None if found == case.wire or case.reason(REWORDED) else f"we read it as {found}, the client as {case.wire}"


@pytest.mark.slow
def test_each_reads_like_the_genuine_client() -> None:
    differences = [f"{why}:\n{case}" for case in recorded() if (why := difference(case))]
    assert not differences, "\n\n".join(differences)


def test_every_deliberate_difference_is_one() -> None:
    seen: set[str] = set()
    for case in recorded():
        parts = {part for table in (STRICTER, KINDER, REWORDED) for part in table if part in str(case)}
        found = resolve(case.file, case.flags) if parts else case.wire
        if found != case.wire:
            table = STRICTER if found is None else KINDER if case.wire is None else REWORDED
            seen |= parts & table.keys()
    assert seen == {*STRICTER, *KINDER, *REWORDED}


def test_what_is_recorded_is_much() -> None:
    entries = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert sum(entry["wire"] is not None for entry in entries) >= 400
    assert sum(entry["wire"] is None for entry in entries) >= 250
