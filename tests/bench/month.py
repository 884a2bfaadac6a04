"""A month of the control plane in AWS in small: its functions and agents' sessions on the world's time, and
every billed call counted.

Four stretches, each less what the one before uses anyway: nothing at all; an account of a provider; machines whose
agents report; and runs on them, submitted, looked at and followed by the command line itself. A month is these times
what there is of each. Then, elsewhere, runs on several nodes; and a gateway and a service, which add something beyond
what they use as machines and as a run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.billing.plane import (
    ACCOUNT,
    BUSY,
    CHANGE,
    DOOR,
    HOURS,
    INSTANCE,
    NODE,
    REPLICA,
    RETENTION_MONTHS,
    RUN,
    SCHEDULES,
    START,
    Usage,
)
from chalicelib.domain.instants import SECOND
from chalicelib.store import request_units
from infra import charges
from tests.scenarios.stages import Virtual
from tests.world.metered import BUS, MeteredSite, Written, metered_logs

HOUR = 3600.0
POLLS = 6  # of a person at each run: its status and its log, a second apart
RESOURCES = "resources: {cpu: 2.., memory: 8GB..}\n"
LINE = "x" * 99
SCRIPT = " && ".join([f"echo {LINE} && sleep 60"] * 60)  # an hour
TURN = 6  # hours, in which every schedule fires as often as in any other six
PAUSE = 10  # seconds between a gateway's questions, and between its reports of a busy service
GATEWAY = (
    f"type: gateway\nname: edge\nbackend: {FACTS.name}\nregion: sim-north\ndomain: example.com\ncertificate: null\n"
)
SERVICE = f"type: service\nname: chat\nport: 8000\ngateway: edge\n{RESOURCES}commands: [sleep 1000000]\n"


@dataclass
class Measured:
    """What each driver uses, and how it came to that."""

    rates: dict[str, Usage]
    steps: list[Written]  # the commits of one run until it has ended,
    erased: list[Written]  # and from its deletion until nothing of it is left
    a_sync: float  # write units of a steady agent's call
    changes: dict[str, float]  # state changes that one of a driver makes
    plays: list[str]  # the arithmetic, in words


@contextmanager
def opened() -> Iterator[tuple[MeteredSite, Virtual]]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        site = MeteredSite("month", home / "blobs", FACTS.name)
        with metered_logs(site.meter):
            yield site, Virtual(site, home, "work")


def measured(machines: int = 10, idle: float = 24, steady: float = 6) -> Measured:
    """With so many machines, and so many hours without and with them."""
    with opened() as (site, stage):
        site.time.pass_(HOUR)  # what happens once
        schedules = charges.scaled(_during(site, idle), HOURS / idle)
        site.open_account()
        site.time.pass_(HOUR)
        an_account = charges.less(charges.scaled(_during(site, idle), HOURS / idle), schedules)
        standing = charges.less(schedules, an_account, -1)
        fleet = f"type: fleet\nname: machines\nnodes: {machines}\n{RESOURCES}idle_duration: off\n"
        _apply(stage, "fleet", fleet)
        site.time.pass_(HOUR)
        reported = charges.scaled(_during(site, steady), HOURS / steady)
        changed, _ = _announced(site)
        a_sync = site.meter.counts["write", "agent_sync"] / site.meter.counts["lambda", "agent_sync"]
        an_instance = charges.scaled(charges.less(reported, standing), 1 / machines)
        worked, hours = _runs(site, stage, machines)
        announced, _ = _announced(site)
        beside = charges.scaled(charges.less(standing, an_instance, -machines), hours / HOURS)
        a_run = charges.scaled(charges.less(worked, beside), 1 / machines)
        site.meter.take()
        steps, erased = _steps(site, stage)
        alone, calls = _announced(site)  # of a run by itself, whose changes no others' are announced with
    plays = [
        f"{SCHEDULES}: {idle:g} h without an account × {HOURS / idle:.4g}",
        f"{ACCOUNT}: {idle:g} h with one × {HOURS / idle:.4g} - the schedules",
        f"{INSTANCE}: ({steady:g} h of {machines} × {HOURS / steady:.4g} - the schedules and the account) / {machines}",
        f"{RUN}: ({machines} of an hour each - {hours:.2f} h of the schedules and {machines} instances) / {machines}",
    ]
    changes = {INSTANCE: changed * HOURS / steady / machines, RUN: announced / machines}
    rates: dict[str, Usage] = {SCHEDULES: schedules, ACCOUNT: an_account, INSTANCE: an_instance, RUN: a_run}
    with opened() as (site, stage):
        site.open_account()
        rates |= _nodes(site, stage, changes)
    plays.append(f"{NODE}: a run on 3 - one on 2; {START}: a run on 2 - one on 1 - a further node")
    with opened() as (site, stage):
        site.open_account()
        rates |= _services(site, stage)
    plays.append(f"{REPLICA}, {DOOR}, {BUSY}: {TURN} h × {HOURS / TURN:.4g}, less {TURN} h before it was there")
    rates[CHANGE] = charges.announced(alone, calls)
    return Measured(rates, steps, erased, a_sync, changes, plays)


def _announced(site: MeteredSite) -> tuple[float, float]:
    """State changes since the last count, and the calls that would announce them."""
    return site.meter.counts["change", BUS], site.meter.counts["announcement", BUS]


def _during(site: MeteredSite, hours: float) -> dict[str, float]:
    site.meter.take()
    site.time.pass_(hours * HOUR)
    return charges.usage(site.meter.counts)


def _apply(stage: Virtual, name: str, text: str) -> None:
    (stage.home / f"{name}.dstack.yml").write_text(text)
    output, status = stage.dstack(["apply", "-y", "-d", "-f", f"{name}.dstack.yml"])
    assert status == 0, output


def _runs(site: MeteredSite, stage: Virtual, count: int) -> tuple[dict[str, float], float]:
    """So many runs of an hour that write a line every minute, from before their submission until nothing more follows:
    what they used, and how many hours that took."""
    began, before = site.time.at, _stored(site)
    site.meter.take()
    names = [f"run-{number}" for number in range(count)]
    for name in names:
        _apply(stage, name, f'type: task\nname: {name}\n{RESOURCES}commands: ["{SCRIPT}"]\n')
        for _ in range(POLLS):
            site.time.pass_(1)
            job = stage.ask("runs/get", {"run_name": name})["jobs"][0]["job_submissions"][-1]
            stage.ask("logs/poll", {"run_name": name, "job_submission_id": job["id"], "limit": 1000})
    site.time.pass_(HOUR + 600)
    assert [task.exit_status for task in site.hosts.tasks.values()] == [0] * count
    for name in names:
        assert stage.dstack(["logs", name]) == (f"{LINE}\n" * 60, 0)
    used = charges.usage(site.meter.counts)
    left = charges.usage({(what, ""): amount - before[what] for what, amount in _stored(site).items()})
    return {**used, **charges.scaled(left, RETENTION_MONTHS)}, (site.time.at - began) / SECOND / HOUR


def _nodes(site: MeteredSite, stage: Virtual, changes: dict[str, float]) -> dict[str, Usage]:
    """What a run on several nodes uses beyond one on a single one: each further node, and that they start together."""
    fleet = f"type: fleet\nname: machines\nplacement: cluster\nnodes: 3\n{RESOURCES}idle_duration: off\n"
    _apply(stage, "fleet", fleet)
    site.time.pass_(HOUR)
    used, announced = list[dict[str, float]](), list[float]()
    for nodes in (1, 2, 3):
        site.meter.take()
        name = f"on-{nodes}"
        _apply(stage, name, f'type: task\nname: {name}\nnodes: {nodes}\n{RESOURCES}commands: ["{SCRIPT}"]\n')
        site.time.pass_(HOUR + 600)
        assert stage.ask("runs/get", {"run_name": name})["status"] == "done"
        announced.append(_announced(site)[0])
        used.append(charges.usage(site.meter.counts))
    one, two, three = used
    further = charges.less(three, two)
    changes |= {NODE: announced[2] - announced[1], START: 2 * announced[1] - announced[0] - announced[2]}
    return {NODE: further, START: charges.less(charges.less(two, one), further)}


def _services(site: MeteredSite, stage: Virtual) -> dict[str, Usage]:
    """What a month of one adds to its machines and its run: while it does nothing but wait for requests; of the gateway
    that asks what to serve; and of this gateway's reports, while there are requests."""
    _apply(stage, "fleet", f"type: fleet\nname: machines\nnodes: 1\n{RESOURCES}idle_duration: off\n")
    _apply(stage, "gateway", GATEWAY)
    site.time.pass_(2 * HOUR)
    stretches = [_during(site, TURN)]
    _apply(stage, "service", SERVICE)
    site.time.pass_(HOUR)
    stretches.append(_during(site, TURN))
    door = _Door(site)
    site.time.every(PAUSE, door.ask)
    site.time.pass_(600)
    stretches.append(_during(site, TURN))
    run_id = stage.ask("runs/get", {"run_name": "chat"})["id"]
    site.time.every(PAUSE, lambda: door.report(run_id))
    site.time.pass_(600)
    stretches.append(_during(site, TURN))
    added = (charges.less(more, part) for part, more in pairwise(stretches))
    return {
        driver: charges.scaled(used, HOURS / TURN) for driver, used in zip((REPLICA, DOOR, BUSY), added, strict=True)
    }


class _Door:
    """A gateway's control program, as far as it costs: what it asks and says, and how often."""

    def __init__(self, site: MeteredSite) -> None:
        (self._credential,) = (host.credential for host in site.hosts.hosts.values() if host.carried is not None)
        self._site, self._version, self._buckets = site, "", list[dict[str, float]]()

    def ask(self) -> None:
        answer = self._call("GET", f"/agent/gateway?since={self._version}&wait=25", b"", 200)
        assert answer["ask_in"] == PAUSE
        self._version = answer.get("version", self._version)

    def report(self, run_id: str) -> None:
        at = self._site.time.at
        self._buckets = [*self._buckets, {"at": at - at % (PAUSE * SECOND), "requests": 50, "busy": 1.5}][-30:]
        report = {"run_id": run_id, "at": at, "quiet": False, "held": 0, "let_go": []}
        body = json.dumps({"reports": [{**report, "buckets": self._buckets}]}).encode()
        self._call("POST", "/agent/gateway/traffic", body, 204)

    def _call(self, method: str, path: str, body: bytes, wanted: int) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._credential}"}
        status, answer = self._site.request(method, path, headers, body)
        assert status == wanted, (path, status, answer)
        found: dict[str, Any] = json.loads(answer or b"{}")
        return found


def _stored(site: MeteredSite) -> dict[str, float]:
    table = sum(request_units.size(record) + request_units.OVERHEAD for record in site.store.below.records())
    return {"table-bytes": table, "kept-bytes": site.blobs.bytes("logs/")}


def one_run() -> tuple[list[Written], list[Written]]:
    """`steps` and `erased`, by themselves."""
    with opened() as (site, stage):
        site.open_account()
        _apply(stage, "fleet", f"type: fleet\nname: machines\nnodes: 1\n{RESOURCES}idle_duration: off\n")
        site.time.pass_(HOUR)
        _apply(stage, "first", f'type: task\nname: first\n{RESOURCES}commands: ["true"]\n')  # makes the repository
        site.time.pass_(HOUR)
        return _steps(site, stage)


def _steps(site: MeteredSite, stage: Virtual) -> tuple[list[Written], list[Written]]:
    """The commits of a simple run: from its submission until its machine idles again, and from its deletion until it is
    erased. All but those that only say that an agent is there, and what happens to machines meanwhile."""
    site.store.log.clear()
    _apply(stage, "simple", f'type: task\nname: simple\n{RESOURCES}commands: ["echo hello && sleep 5"]\n')
    site.time.pass_(90)
    life = [each for each in site.store.log if each.families != "instance/presence"]
    site.store.log.clear()
    output, status = stage.dstack(["delete", "-y", "-f", "simple.dstack.yml"])
    assert status == 0, output
    site.time.pass_(26 * HOUR)
    its = ("run/", "log/", "run-name", "events/")
    return life, [each for each in site.store.log if any(family in each.families for family in its)]
