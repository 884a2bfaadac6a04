"""The documents that `--json` prints, by name and version, for scripts that rely on them.

Documents that the genuine client also prints (`ps`, `run get`, `fleet get`, `offer`) keep its keys exactly, so they
can't carry a version; it is given here and on the page. Our own documents start with `shape`, their version.

The version changes when a key is removed or changes its meaning. Within a version, keys may be added and a value that
was always null may become something else. The keys of each shape are recorded from real responses, and a test compares
them with this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Shape(NamedTuple):
    version: int
    summary: str
    parts: Mapping[str, str] = MappingProxyType({})  # shapes of its parts
    versioned: bool = False  # the document begins with the shape's version


COMMANDS = {
    "apply": Shape(
        1, "The run, fleet, volume or gateway that was submitted, or that is there unchanged.", {"": "Run | Fleet"}
    ),
    "automation list": Shape(1, "Stored configurations, without their contents, and who stored each.", versioned=True),
    "backend check": Shape(1, "Whether each backend works; `error` lists everything that is wrong.", versioned=True),
    "backend list": Shape(
        1, "Backends of the project, without credentials, and the age of their offers.", versioned=True
    ),
    "event list": Shape(
        1, "Events, oldest first; `dstack event` prints the same.", {"events[]": "Event"}, versioned=True
    ),
    "export list": Shape(1, "What the project shares, and with which projects.", versioned=True),
    "fleet get": Shape(1, "One fleet.", {"": "Fleet"}),
    "fleet list": Shape(1, "Fleets, newest first.", {"fleets[]": "Fleet"}, versioned=True),
    "fleet joins": Shape(1, "The commands with which machines join a fleet, oldest first.", versioned=True),
    "import list": Shape(1, "What other projects share with this one.", versioned=True),
    "metrics": Shape(1, "The samples of each job in the last hour, newest first.", versioned=True),
    "offer": Shape(
        1,
        "Available offers, cheapest first. `offers_asked` has an entry for each request to a backend that lists none: "
        "`backend`, `request` in words, `asked_at`, `seconds`, the number of `offers`, an `error`, what is `lacking`.",
        {"offers[]": "Offer", "requirements.resources": "Resources"},
    ),
    "offer --group-by": Shape(
        1,
        "The same by accelerator. KEYS decides which location keys a group has; the others are null.",
        {"requirements.resources": "Resources"},
    ),
    "project list": Shape(1, "The projects this machine knows; `user` with -v.", versioned=True),
    "project quota": Shape(1, "The limits of a project and of its users, and what is used of them.", versioned=True),
    "project members": Shape(
        1, "Who is a member of a project, and in which role.", {"members[].user": "User"}, versioned=True
    ),
    "ps": Shape(1, "Runs, newest first, each job with its latest submission only.", {"runs[]": "Run"}),
    "run get": Shape(1, "One run, with every submission of its jobs.", {"": "Run"}),
    "secret get": Shape(1, "One secret with its value.", versioned=True),
    "server info --cost": Shape(
        1, "What a server in AWS costs a month: its `lines` by what drives them.", versioned=True
    ),
    "server info": Shape(1, "What a server's data takes, in bytes, and how many days it keeps things.", versioned=True),
    "secret list": Shape(1, "Secrets, without `value`.", versioned=True),
    "user create": Shape(1, "The new user, with the token that is shown this once.", {"user": "User"}, versioned=True),
    "user keys": Shape(1, "Your public keys, newest first.", versioned=True),
    "user list": Shape(1, "Users, newest first.", {"users[]": "User"}, versioned=True),
    "gateway get": Shape(1, "One gateway.", {"": "Gateway"}),
    "gateway list": Shape(1, "Gateways, oldest first.", {"gateways[]": "Gateway"}),
    "volume get": Shape(1, "One volume.", {"": "Volume"}),
    "volume list": Shape(1, "Volumes, oldest first.", {"volumes[]": "Volume"}, versioned=True),
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
    "Offer": Shape(1, "An available machine, and its price in dollars per hour.", {"instance": "InstanceType"}),
    "InstanceType": Shape(1, "A machine type: its name at the backend, and its resources."),
    "Resources": Shape(1, "Required resources; a range is `min` and `max`, both inclusive."),
    "Volume": Shape(1, "A volume, its price a month, what it has cost, and where it is attached."),
    "Gateway": Shape(1, "A gateway, its domain, and the machines that carry its replicas."),
    "User": Shape(1, "A user of the server, and their role on the whole of it."),
    "Event": Shape(1, "What happened, when, and to what."),
}
ERRORS = {
    "error": Shape(1, "What went wrong, and in `problems` where: `line` is 0 where that isn't known.", versioned=True),
}
SHAPES = {**COMMANDS, **NOUNS, **ERRORS}


def document(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """One of our own documents."""
    return {"shape": SHAPES[name].version, **fields}
