"""The table of functions. Everything else about them is generated from it: `.chalice/`, and the stack in `stateless`.

`python -m infra.functions` writes `.chalice/config.json` and `.chalice/policies/*.json`, for a `chalice deploy` that
names no stage.

Retries. Hints, effects and schedules are asynchronous invocations. If the function raises, Lambda retries such an event
after one minute and again after two more. It also retries while the account has no execution free. `max_event_age` ends
that after the time that the two retries need. Lambda could keep an event for six hours, but no event here is worth
that. What a hint names is due, so the schedule finds it within a minute. A schedule's next event comes anyway. An
effect has an `act_until`, mostly within half a minute, after which the executor drops it and its unit plans it again.
So an outage leaves a bounded backlog, and no stale events have to be handled afterwards. An event that Lambda gives up
on goes to the dead-letter queue, which `dead_letters` reports.

Reserved concurrency. In a provider's outage every call hangs until its timeout, and a thousand hosts may be added or
unreachable at once. Neither may take all executions from agents and people. Only the providers' functions and
`bootstrap_host` make such calls, so these have reserved concurrency, which is a limit as much as a reservation. The
rest of their events wait in Lambda, state machines retry, and `agent_sync` and `api` have all other executions. A
reservation takes executions from all others even while it is idle, so each gets a tenth of the account's limit, 50 at
most, and all of them together a third. AWS requires 100 to stay unreserved, and a new account may have a limit of 10. A
stack with reservations can't be deployed there, so it has none (`reserved` is empty), and an outage can take all ten
for as long as a call hangs, a minute for most. Meanwhile Lambda rejects other calls: agents retry by themselves, people
have to, and events wait. Anybody who runs more than a few machines should ask AWS for a higher limit, which is free;
the next deployment then reserves some. Passes don't wait for each other, so any number may run at once. If two decide
about the same unit, one of them loses its commit and decides again.

The public functions `api` and `agent_sync` are limited for the opposite reason. AWS rejects a flood of calls beyond a
fifth of the account's limit each, 200 at most, and passes continue. API Gateway also rejects more than
`stateless.CALLS` a second; a Function URL has no such setting.

Sizes. A timeout is what the longest useful call needs. API Gateway gives up after 29 s, an agent before that, and a
pass repeats what it didn't finish. CPU grows with memory (1,769 MB are one core), and a cold start waits for CPU. So
functions that people wait for have more memory than their data needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chalicelib.backends.registry import CLOUDS, artefacts, offers_turn
from chalicelib.domain.instants import MINUTE, Micros
from infra import grants as may
from infra.policies import Grant, in_file

ROOT = Path(__file__).resolve().parents[1]
CHALICE = "chalice"  # the artefact of app.py, made by `chalice package`; plain functions without an SDK run from it too
UNNAMED = "dev"  # the stage of a `chalice deploy` that names none
HOLDS = "DSTACK_HOLDS"  # a variable of functions that look before they act on restored records
APP, ALONE = (
    "dstack",
    "dstack-chalice",
)  # prefixes of function names; Chalice's differ, or they would replace ours
SSH = "ssh"  # the artefact that logs in

NEW_ACCOUNT = 10  # the lowest limit of concurrent executions
UNRESERVED = 100  # executions that AWS requires to stay free for functions without a reservation
SHARE, RESERVED_MAX = (
    10,
    50,
)  # of a bounded function: one SHARE-th of the account's limit, and a maximum
TOGETHER = 3  # of all bounded functions together, however many artefacts there are
PUBLIC_SHARE, PUBLIC_MAX = 5, 200  # the same for a public function
REPETITIONS, PAUSES = 2, 60 + 120  # retries after an exception; the seconds that Lambda waits before them in total


@dataclass(frozen=True)
class Function:
    name: str
    memory: int  # MB
    timeout: int  # seconds
    grants: tuple[Grant, ...]
    handler: str = ""  # `functions.<name>.handler` unless it says otherwise
    artefact: str = CHALICE
    chalice: str = ""  # the logical id, if Chalice deploys it
    every: str = ""  # a rate
    async_events: bool = False  # other functions send it asynchronous events: failed ones become dead letters
    reads: tuple[str, ...] = ()  # the stage's parameters that it reads besides the settings
    bounded: bool = False  # has reserved concurrency
    public: bool = False  # anybody who knows its address may call it, so it has reserved concurrency, too
    loops: bool = False  # invokes functions that invoke it again: `runtime/event_chains.py` ends such a chain
    url: bool = False
    vpc: bool = False  # may be put into a VPC
    reads_event_log: bool = False  # from the table's stream
    traces: bool = False  # notes where a run's trace begins, or sends it

    @property
    def id(self) -> str:
        """Its logical id in the stack."""
        return self.chalice or "".join(part.title() for part in self.name.split("_"))

    @property
    def entry(self) -> str:
        return self.handler or f"functions.{self.name}.handler"

    @property
    def allowed(self) -> tuple[Grant, ...]:
        dead_letters = (may.SEND_DEAD_LETTERS,) if self.async_events or self.reads_event_log else ()
        return (may.logs(self.name), may.settings(self.parameters), *self.grants, *dead_letters)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The last parts of the parameters' names."""
        return ("settings", *self.reads)

    def environment(self, stage: str, variables: Mapping[str, str]) -> dict[str, str]:
        own = {"DSTACK_KEYS": f"/dstack-{stage}", "DSTACK_READS": ",".join(self.parameters), HOLDS: "1"}
        return {**own, **variables}

    @property
    def max_event_age(self) -> int:
        """Seconds after which Lambda gives up on an event: the start of the last retry, if each attempt takes the
        longest."""
        return PAUSES + REPETITIONS * self.timeout


def rate(every: Micros) -> str:
    """The rate as EventBridge writes it, in whole minutes."""
    minutes = max(1, every // MINUTE)
    return f"rate({minutes} minute{'' if minutes == 1 else 's'})"


def _provider(artefact: str) -> Function:
    """The function that works on the accounts of an artefact's providers."""
    return Function(
        may.provider(artefact),
        memory=512,
        timeout=180,  # a provider's call has 60 s; fetching the offers of an account makes many, most of them at once
        handler="functions.provider.handler",
        artefact=artefact,
        async_events=True,
        bounded=True,
        loops=True,
        reads=(
            "install-key",
            "master-key",
            *(("acme",) if artefact == CLOUDS else ()),
        ),  # where certificates are ordered
        grants=(
            *may.CONCLUDE,
            may.blobs("Publish", ("GetObject", "PutObject"), "agent"),
            may.blobs("Offers", ("PutObject", "DeleteObject"), "catalog"),
            *may.of_providers(artefact),
        ),
    )


FUNCTIONS = (
    Function(
        "api",
        memory=1024,  # a person waits for its cold start
        timeout=29,  # API Gateway's own limit
        chalice="APIHandler",
        handler="app.app",
        public=True,
        traces=True,
        reads=("install-key", "master-key", "sign-on"),  # the first signs tokens for services
        grants=(
            *(may.READ, may.QUERY, may.PUT, may.DELETE, may.CHECK, may.WAKE, may.ACCOUNTS, may.LIST),
            may.NEWEST,  # its digest is in the commands by which machines join
            may.blobs("Keep", ("PutObject",), "archives"),
            may.blobs("Show", ("GetObject",), "catalog", "logs"),
        ),
    ),
    Function(
        "agent_sync",
        memory=256,  # called so often that no other's memory costs as much; a call takes milliseconds
        timeout=20,  # less than the agent's own patience
        public=True,
        url=True,
        reads=("install-key", "master-key"),
        grants=(
            *(may.READ, may.QUERY_TABLE, may.PUT, may.WAKE, may.LIST),
            *(may.QUERY_INDEX, may.DELETE),  # for gateways: their services, and streams to the replicas of these
            may.blobs("Fetch", ("GetObject",), "archives", "agent"),
            may.blobs("Log", ("PutObject",), "logs"),
        ),
    ),
    Function(
        "reconcile",
        memory=256,  # every minute, mostly for nothing
        timeout=30,  # a pass stops in time by itself; the next one goes on
        chalice="Reconcile",
        every="rate(1 minute)",
        async_events=True,
        loops=True,
        traces=True,
        reads=("traces-headers",),
        grants=may.PASS,
    ),
    Function(
        "reap_idle",
        memory=256,
        timeout=30,
        chalice="ReapIdle",
        every="rate(2 minutes)",  # reads every agent's presence; what is due, `reconcile` looks at every minute
        grants=may.PASS,
    ),
    Function(
        "sweep_orphans",
        memory=256,
        timeout=120,  # sends an event for each account, a few dozen a second
        chalice="SweepOrphans",
        every="rate(5 minutes)",
        grants=(may.READ, may.PUT, may.ACCOUNTS),
    ),
    Function(
        "erase_unused",
        memory=512,
        timeout=300,  # its parts begin nothing more after two minutes; the rest is for what they have begun
        chalice="EraseUnused",
        every="rate(10 minutes)",
        reads=("master-key",),  # it seals older records anew
        grants=(
            *(may.READ, may.QUERY, may.PUT, may.DELETE, may.CHECK, may.SCAN, may.LIST),
            *(may.NEWEST, may.CARRIERS),  # which stay
            may.blobs("Erase", ("DeleteObject",), "logs", "agent", "archives", "code"),
        ),
    ),
    *(_provider(artefact) for artefact in artefacts()),
    Function(
        "refresh_catalog",
        memory=256,
        timeout=120,  # as with sweeps
        every=rate(offers_turn()),  # each time costs as much as a day of passes
        grants=(
            may.READ,
            may.PUT,
            may.ACCOUNTS,
            may.CATALOG,
            may.LIST,
            may.blobs("Offers", ("DeleteObject",), "catalog"),
        ),
    ),
    Function(
        "dead_letters",
        memory=256,
        timeout=60,
        every="rate(10 minutes)",  # an event source would poll the queue for $0.26 a month
        grants=(may.READ, may.QUERY, may.PUT, may.READ_DEAD_LETTERS),
    ),
    Function(
        "automate",
        memory=512,
        timeout=60,
        async_events=True,
        traces=True,  # its rules apply configurations
        reads=("master-key",),
        grants=(*(may.READ, may.QUERY, may.PUT, may.DELETE, may.CHECK, may.WAKE, may.CATALOG, may.LIST),),
    ),
    Function(
        "publish",
        memory=256,
        timeout=60,  # a batch is ten calls to the bus at most, or as many as its records have events
        reads_event_log=True,
        grants=(may.READ_ONE, *may.STREAM, may.ANNOUNCE),
    ),
    Function("workflow_step", memory=512, timeout=60, grants=may.PASS),  # a state gives a call a minute
    Function(
        "bootstrap_host",
        memory=512,
        timeout=240,  # the longest step has 180 s, and its outcome is committed after that
        artefact=SSH,
        async_events=True,
        bounded=True,
        loops=True,
        reads=("install-key", "master-key"),
        vpc=True,
        grants=(may.READ_ONE, may.PUT, may.DELETE, may.WAKE, *may.DRIVE),  # no bucket: the artefact contains the agent
    ),
)


BOUNDED = tuple(function for function in FUNCTIONS if function.bounded)
PUBLIC = tuple(function for function in FUNCTIONS if function.public)


def reserved(limit: int = NEW_ACCOUNT) -> dict[str, int]:
    """The reserved concurrency by function name, for an account with this limit. Functions that call providers come
    first; a small account has nothing to reserve."""
    found: dict[str, int] = {}
    of_each = max(SHARE, TOGETHER * len(BOUNDED))
    for functions, share, most in ((BOUNDED, of_each, RESERVED_MAX), (PUBLIC, PUBLIC_SHARE, PUBLIC_MAX)):
        each = min(most, limit // share)
        if limit - sum(found.values()) - each * len(functions) < UNRESERVED:
            break
        found |= {function.name: each for function in functions}
    return found


def named(name: str) -> Function:
    return next(function for function in FUNCTIONS if function.name == name)


# --- what Chalice reads ----------------------------------------------------------------------------------------------


def config(stage: str, variables: Mapping[str, str] | None = None, app: str = APP) -> dict[str, Any]:
    """The contents of `.chalice/config.json`. `policies` makes the files that it names."""
    given = variables or {}
    deployed = {function.name: _chalice(function, stage, given) for function in FUNCTIONS if function.chalice}
    api = deployed.pop("api")
    settings = {
        "manage_iam_role": True,
        "api_gateway_stage": "api",
        "api_gateway_endpoint_type": "REGIONAL",
        "minimum_compression_size": 1024,
        **api,
        "lambda_functions": {"api_handler": api, **deployed},
    }
    # For any other stage Chalice would guess the policies, so this makes it refuse.
    return {"version": "2.0", "app_name": app, "manage_iam_role": False, "stages": {stage: settings}}


def _chalice(function: Function, stage: str, variables: Mapping[str, str]) -> dict[str, Any]:
    return {
        "environment_variables": function.environment(stage, variables),
        "lambda_timeout": function.timeout,
        "lambda_memory_size": function.memory,
        "autogen_policy": False,
        "iam_policy_file": f"policies/{function.name}.json",
    }


def policies(stage: str, app: str = APP) -> dict[str, dict[str, Any]]:
    """The policies by file name."""
    return {f"policies/{each.name}.json": in_file(_allowed(each, app), stage) for each in FUNCTIONS if each.chalice}


def _allowed(function: Function, app: str) -> tuple[Grant, ...]:
    if app == APP:
        return function.allowed
    return (may.own_logs(app), *(grant for grant in function.allowed if grant.sid != "Logs"))


def files(stage: str, variables: Mapping[str, str] | None = None, app: str = APP) -> dict[str, str]:
    """The files in `.chalice/`, by path."""
    contents = {"config.json": config(stage, variables, app), **policies(stage, app)}
    return {path: json.dumps(content, indent=2) + "\n" for path, content in contents.items()}


if __name__ == "__main__":
    for path, text in files(UNNAMED, app=ALONE).items():
        (ROOT / ".chalice" / path).write_text(text, encoding="utf-8")
