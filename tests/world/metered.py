"""The functions in AWS on the world's time, with every billed call counted.

Which functions schedules call, and how often, is the stack's to say. The table and the bucket are in memory, so that an
hour of a hundred machines takes seconds; what each call would cost is computed as DynamoDB does
(`store/request_units.py`). The functions and the agents' sessions are the real ones.
"""

from __future__ import annotations

import base64
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.registry import CLOUDS
from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.keys import Due, Key
from chalicelib.domain.retention import Retention
from chalicelib.domain.usage import StorageUsage
from chalicelib.engine import asl
from chalicelib.errors import Conflict
from chalicelib.planning.placing.gang_workflow import START_CLUSTER
from chalicelib.runtime.chalice_app import ControlPlane
from chalicelib.runtime.event_chains import EventChain
from chalicelib.runtime.lambda_ import SqsDeadLetters, WakeUps, nobody_waits
from chalicelib.runtime.ports import Ports
from chalicelib.runtime.provider_functions import ProviderFunctions
from chalicelib.runtime.root import Root
from chalicelib.runtime.step_functions import ExecutionEffects
from chalicelib.runtime.telemetry import structured
from chalicelib.store import request_units
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.history import HistoryStore, events_in
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change, Index, Page, Put, Record
from chalicelib.store.seal import Sealer
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.pace import PER_CALL
from functions import agent_sync
from infra.functions import FUNCTIONS, named
from infra.stateless import PUBLISH_WINDOW
from tests.harness.lambda_host import api_event, scheduled_event, url_event
from tests.world.aws import Events
from tests.world.site import ADMIN, HOP, Answer, Site
from tests.world.step_functions import Invoke, StepFunctions
from tests.world.time import Time

BUS = "bus"
PROVIDER = "provider_clouds"
INVOKED = ("reconcile", PROVIDER)  # by events of other functions
PERIODS = {"minute": 60.0, "minutes": 60.0, "hours": 3600.0}
OF_A_LINE = 26  # bytes that CloudWatch adds to each


def seconds(rate: str) -> float:
    """Between two invocations by a schedule, as the template has it."""
    number, period = rate.removeprefix("rate(").removesuffix(")").split()
    return float(number) * PERIODS[period]


@dataclass
class Meter:
    """What was used, by service and what for. `within` names the function that is running."""

    counts: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    within: str = ""

    def add(self, what: str, amount: float, detail: str = "") -> None:
        self.counts[what, detail or self.within] += amount

    @contextmanager
    def during(self, function: str) -> Iterator[None]:
        before, self.within = self.within, function
        try:
            yield
        finally:
            self.within = before

    def take(self) -> dict[tuple[str, str], float]:
        """All since the last time."""
        taken, self.counts = self.counts, defaultdict(float)
        return taken


class LogMeter(logging.Handler):
    """What functions log, in bytes, as CloudWatch counts them."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def emit(self, record: logging.LogRecord) -> None:
        if self._meter.within:
            self._meter.add("log-bytes", len(self.format(record).encode()) + OF_A_LINE)


@contextmanager
def metered_logs(meter: Meter) -> Iterator[None]:
    """All that is logged meanwhile, down to the level that functions have."""
    root, handler = logging.getLogger(), structured(LogMeter(meter))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


class Announced:
    """What a bus would be told: state changes, and the calls that bring them there, each after changes gathered."""

    def __init__(self, meter: Meter, now: Callable[[], Micros]) -> None:
        self._meter, self._now, self._until = meter, now, 0

    def __call__(self, changes: Sequence[Change]) -> None:
        written = [each.record for each in changes if isinstance(each, Put) and each.key.pk.startswith(keys.EVENTS)]
        if not written:
            return
        self._meter.add("change", sum(len(events_in(record)) for record in written), BUS)
        if self._now() >= self._until:
            self._meter.add("announcement", 1, BUS)
            self._until = self._now() + PUBLISH_WINDOW * SECOND


@dataclass(frozen=True)
class Written:
    """A commit of a function."""

    within: str
    items: tuple[request_units.Item, ...]

    @property
    def units(self) -> int:
        return sum(item.units for item in self.items)

    @property
    def families(self) -> str:
        return " ".join(family(item.key) for item in self.items)


def family(key: Key) -> str:
    """What a record is: its key without ids and numbers."""
    if key.pk.startswith(keys.EVENTS):
        return keys.EVENTS
    if key.pk.startswith("log/"):
        return "log/"
    return "/".join(part.partition("/")[0] for part in key)


class MeteredStore:
    """`Store`: another one, with its units counted."""

    def __init__(self, below: Any, meter: Meter, announced: Announced) -> None:
        self.below, self._meter, self._announced = below, meter, announced
        self.next_due, self.close = lambda: 0, below.close
        self.log: list[Written] = []

    def get(self, key: Key) -> Record | None:
        record: Record | None = self.below.get(key)
        self._meter.add("read", request_units.got([record]))
        return record

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        records: list[Record | None] = self.below.get_many(keys)
        self._meter.add("read", request_units.got(records))
        return records

    def query(self, index: Index, partition: str, **more: Any) -> Page:
        page: Page = self.below.query(index, partition, **more)
        self._meter.add("read", request_units.listed(page.records, index=index != "main"))
        return page

    def scan(self, after: Key | None = None, *, limit: int = 500) -> list[Record]:
        records: list[Record] = self.below.scan(after, limit=limit)
        self._meter.add("read", request_units.listed(records, index=False))
        return records

    def commit(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        before = [self.below.get(change.key) for change in changes]
        try:
            self.below.commit(changes)
        except Conflict:
            self._meter.add("write", request_units.refused(changes, before))
            raise
        commit = Written(self._meter.within, tuple(request_units.items(changes, before)))
        self._meter.add("write", commit.units)
        self._announced(changes)
        self.log.append(commit)

    def due(self, kinds: Sequence[str], shard: int, now: int, limit: int) -> list[Due]:
        found: list[Due] = self.below.due(kinds, shard, now, limit)
        self._meter.add("read", request_units.entries(len(found)))
        return found


class MeteredBlobs:
    """`Blobs`: another one, with S3's requests and bytes counted."""

    def __init__(self, below: FileBlobs, meter: Meter) -> None:
        self._below, self._meter = below, meter
        self.tidy, self.link = below.tidy, below.link

    def put(self, name: str, data: bytes) -> None:
        self._meter.add("s3-put", 1)
        self._meter.add("s3-bytes", len(data))
        self._below.put(name, data)

    def get(self, name: str) -> bytes | None:
        self._meter.add("s3-get", 1)
        return self._below.get(name)

    def delete(self, *names: str) -> None:
        self._below.delete(*names)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        self._meter.add("s3-put", 1)  # a listing has the price of a PUT
        return self._below.list(prefix, after, limit)

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, int]]:
        self._meter.add("s3-put", 1)
        return self._below.dated(prefix, after, limit)

    def bytes(self, prefix: str) -> int:
        return sum(len(self._below.get(name) or b"") for name in self._below.list(prefix, limit=1_000_000))


class MeteredExecutions:
    """`Executions`: state machines on the world's time, whose function is the one that makes the stages of a start."""

    def __init__(self, time: Time, meter: Meter, invoke: Invoke) -> None:
        self._time, self._meter = time, meter
        self._below = StepFunctions({START_CLUSTER.name: asl.render(START_CLUSTER)}, time.now, invoke)
        self._counted = 0

    def start(self, definition: str, name: str) -> None:
        self._below.start(definition, name)
        self._soon()

    def succeed(self, token: str, made: Mapping[str, str]) -> None:
        self._below.succeed(token, made)
        self._soon()

    def fail(self, token: str, error: str, message: str) -> None:
        self._below.fail(token, error, message)
        self._soon()

    def _soon(self) -> None:
        self._time.after(HOP, self._go_on)

    def _go_on(self) -> None:
        self._below.run()
        made = sum(one.transitions for one in self._below.executions.values())
        self._meter.add("transition", made - self._counted)
        self._counted = made
        if (at := self._below.next_due) is not None:
            self._time.after((at - self._time.at) / SECOND, self._go_on)


class DeferredAccounts:
    """`Backends`: none, until there are some."""

    def __init__(self) -> None:
        self.now = Accounts()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


class MeteredSite(Site):
    long_poll = False

    def __init__(self, name: str, folder: Path, cloud: str = "simulated") -> None:
        super().__init__(name, cloud)
        self.backends: Any = DeferredAccounts()
        self.meter = Meter()
        announced = Announced(self.meter, self.time.now)
        self.store = MeteredStore(MemoryStore(clock=self.time.now), self.meter, announced)
        self.blobs = MeteredBlobs(FileBlobs(folder), self.meter)
        self._executions = MeteredExecutions(self.time, self.meter, lambda payload: self._stage(dict(payload)))
        self._api, self._agents = self._function(), self._function()
        first_start(self._api.plane, ADMIN)
        self._app = ControlPlane(lambda: self._api.plane)
        made = {function.name: self._deployed(function.name) for function in FUNCTIONS if function.every}
        self._invoked = {name: Events(self.time, made.get(name) or self._deployed(name)) for name in INVOKED}
        self._stage = self._deployed("workflow_step")
        for name, function in made.items():
            self.time.every(seconds(named(name).every), partial(self._fire, name, function))
        self.meter.take()

    def _fire(self, name: str, function: Callable[[dict[str, Any]], Any]) -> None:
        function(scheduled_event(name, self.time.at / SECOND))

    def open_account(self) -> None:
        """As somebody configures it."""
        self.backends.now = Accounts([Account.of(self.cloud)])
        self._api.ports.account_work.refresh(self.backends.accounts()[0].key)

    def _function(self) -> Root:
        retention = Retention()
        work = ProviderFunctions(self._client, {CLOUDS: PROVIDER}, EventChain())
        made = self._here(
            Root(
                Ports(
                    store=HistoryStore(self.store, retention),
                    blobs=self.blobs,
                    logs=BlobLogs(self.store, self.blobs),
                    seal=Sealer(b"k" * 32),
                    install_key=b"i" * 32,
                    backends=self.backends,
                    wake=WakeUps(self._client, "reconcile", EventChain()),
                    effects=ExecutionEffects(self._executions, work),
                    account_work=work,
                    workflows=self._executions,
                    notify_agents=nobody_waits,
                    pace=PER_CALL,
                    server_url=self.url,
                    clock=self.time,
                    random_id=self._id,
                    random_token=self._id,
                    measure=StorageUsage,
                    logins=None,
                    tunnels=False,
                    dead_letters=SqsDeadLetters(self._client, "aside"),
                    retention=retention,
                )
            )
        )
        return Root(replace(made.ports, backends=self.backends))

    def _deployed(self, name: str) -> Callable[[dict[str, Any]], Any]:
        module, _, handler_name = named(name).entry.rpartition(".")
        root, handler = self._function(), getattr(import_module(module), handler_name)

        def run(event: dict[str, Any]) -> Any:
            with self.meter.during(f"{name}/refresh" if "refresh" in event else name):
                self.meter.add("lambda", 1)
                return handler(event, None, root)

        return run

    def _client(self, service: str) -> Any:
        assert service in ("lambda", "sqs"), f"nothing here calls {service}"
        return self

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> None:
        """Billed is the function's run."""
        self._invoked[FunctionName].put(Payload)

    def receive_message(self, QueueUrl: str, MaxNumberOfMessages: int) -> dict[str, Any]:
        self.meter.add("sqs", 1)
        return {}

    def close(self) -> None:
        """Nothing is open."""

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts = urlsplit(path)
        of_agents = parts.path.startswith("/agent/")
        with self.meter.during("agent_sync" if of_agents else "api"):
            self.meter.add("lambda", 1)
            if of_agents:
                answer = agent_sync.handler(
                    url_event(method, parts.path, parts.query, headers, body), None, self._agents
                )
            else:
                self.meter.add("api-request", 1)
                binary = tuple(self._app.api.binary_types)
                answer = self._app(api_event(method, parts.path, parts.query, headers, body, binary=binary), None)
        content = answer["body"]
        return answer["statusCode"], base64.b64decode(content) if answer.get("isBase64Encoded") else content.encode()
