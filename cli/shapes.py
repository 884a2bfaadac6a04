"""What `--json` prints, by name and version, for scripts that rely on it.

Documents of the client that people know (`ps`, `run get`, `fleet get`, `offer`) keep its keys exactly, so their version
can't stand in them; it stands here and on the page. Documents of our own begin with `shape`, their version.

A version rises when a key goes or says something else. Keys may come, and a value that was always null may come to say
something, within a version. What each shape holds is recorded from real answers, and a test holds it against this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Shape(NamedTuple):
    version: int
    about: str
    parts: Mapping[str, str] = MappingProxyType({})  # where other shapes stand in it
    ours: bool = False


COMMANDS = {
    "apply": Shape(1, "What was submitted: the run, or the fleet.", {"": "Run | Fleet"}),
    "event list": Shape(1, "Events, oldest first; `dstack event` prints the same.", {"events[]": "Event"}, ours=True),
    "fleet get": Shape(1, "One fleet.", {"": "Fleet"}),
    "fleet list": Shape(1, "Fleets in the order of the server.", {"fleets[]": "Fleet"}, ours=True),
    "metrics": Shape(1, "For each job its samples of the last hour, the newest first.", ours=True),
    "offer": Shape(
        1, "What could be had, cheapest first.", {"offers[]": "Offer", "requirements.resources": "Resources"}
    ),
    "offer --group-by": Shape(
        1,
        "The same by accelerator; which of the places a group has depends on KEYS, the others are null.",
        {"requirements.resources": "Resources"},
    ),
    "project list": Shape(1, "The projects this machine knows; `user` with -v.", ours=True),
    "ps": Shape(1, "Runs, the newest first, each job with its newest submission alone.", {"runs[]": "Run"}),
    "run get": Shape(1, "One run, with every submission of its jobs.", {"": "Run"}),
    "secret get": Shape(1, "One secret with its value.", ours=True),
    "secret list": Shape(1, "Secrets; `value` is never told here.", ours=True),
}
NOUNS = {
    "Run": Shape(
        1,
        "A run. `run_spec.configuration` and `.profile` are in the language of [configuration](configuration.md).",
        {
            "jobs[].job_spec.requirements.resources": "Resources",
            "jobs[].job_submissions[]": "Submission",
            "latest_job_submission": "Submission",
        },
    ),
    "Submission": Shape(
        1,
        "One attempt of a job.",
        {"job_provisioning_data.instance_type": "InstanceType", "job_runtime_data.offer": "Offer"},
    ),
    "Fleet": Shape(1, "A fleet and its machines.", {"instances[]": "Instance"}),
    "Instance": Shape(1, "A machine of a fleet.", {"instance_type": "InstanceType"}),
    "Offer": Shape(1, "A machine that can be had, and its price an hour in dollars.", {"instance": "InstanceType"}),
    "InstanceType": Shape(1, "What a machine is: its name at its backend and what it has."),
    "Resources": Shape(1, "What is asked of a machine; a range is `min` and `max`, both included."),
    "Event": Shape(1, "What happened to what."),
}
SHAPES = {**COMMANDS, **NOUNS}


def document(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A document of our own."""
    return {"shape": COMMANDS[name].version, **fields}
