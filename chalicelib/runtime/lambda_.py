"""The control plane in AWS: DynamoDB, S3, Lambda, SSM.

Wake-ups and work on providers (`provider_functions.py`) are asynchronous invocations. Lambda queues the event, so a
slow cloud never blocks a request; it repeats the event twice if the function fails, and then puts it on the dead-letter
queue, whose events are reported. Nothing polls for events, so they cost nothing while nothing happens. They arrive at
least once, and in any order.

A Lambda's process creates its root with its first event and keeps it; importing this module creates no client.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.backends.accounts import Account
from chalicelib.backends.spi import Backend
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.objectives import OBJECTIVES
from chalicelib.domain.usage import StorageUsage
from chalicelib.engine.measures import measured_or_logged
from chalicelib.engine.ports import Clock
from chalicelib.errors import Invalid, Moved
from chalicelib.planning.machines.hosts import ON_PREM
from chalicelib.runtime import telemetry
from chalicelib.runtime.clock import SystemClock, random_id, random_token
from chalicelib.runtime.event_chains import EventChain
from chalicelib.runtime.ports import Ports, nothing
from chalicelib.runtime.provider_functions import PATIENCE, WAITED, Clients, ProviderFunctions, invoke
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import LambdaSettings, Parameters, authority_in, emulator
from chalicelib.runtime.tracing import lazy_trace_ports
from chalicelib.usecases.pace import PER_CALL

if TYPE_CHECKING:
    from chalicelib.domain.state_changes import StateChange
    from chalicelib.engine.certificate_authority import CertificateAuthority
    from chalicelib.engine.executions import StartCalls, WorkflowCalls
    from chalicelib.engine.ports import Count

log = logging.getLogger(__name__)

ENTRIES = 10  # that EventBridge takes at once: each is a few kilobytes, and together they may have 256
BATCH = 100  # hints per event; Lambda allows 256 KB at least, and a unit's name is about 50 bytes

SOURCE, DETAIL_TYPE = "dstack", "State Change"  # as rules name them


class LambdaRoot(Root):
    """Created from its settings alone, so one process can have any number."""

    def __init__(self, settings: LambdaSettings, *, clock: Clock | None = None, clients: Clients | None = None) -> None:
        from chalicelib.engine.hold import EventHold
        from chalicelib.hosts.connection import SshLogins
        from chalicelib.runtime.accounts import StoredAccounts, providers
        from chalicelib.runtime.step_functions import ExecutionEffects, StepFunctions
        from chalicelib.store.announcing_store import AnnouncingStore
        from chalicelib.store.blobs import S3Blobs
        from chalicelib.store.dynamo import DynamoStore
        from chalicelib.store.history import HistoryStore
        from chalicelib.store.log_blobs import BlobLogs
        from chalicelib.store.log_uploads import S3Uploads
        from chalicelib.store.seal import NoSealer, Sealer

        clients, clock = clients or Boto(settings.endpoint), clock or SystemClock()
        chain = EventChain(settings.longest_chain)
        workflows = StepFunctions(clients, settings.state_machines) if settings.state_machines else None
        work = ProviderFunctions(clients, settings.provider_functions, chain, _own_functions(settings))
        blobs = S3Blobs(settings.bucket, lambda: clients("s3"))
        count = partial(telemetry.count, settings.table)
        table = DynamoStore(settings.table, endpoint=settings.endpoint)
        took = partial(_took, count)
        store = AnnouncingStore(
            HistoryStore(table, settings.retention), partial(measured_or_logged, table, clock, took)
        )
        logs = BlobLogs(store, blobs)
        seal: Sealer = Sealer(settings.master_key) if settings.master_key else NoSealer()
        known = providers(endpoints=settings.endpoints, catalog_url=settings.catalog_url, tags=settings.tags)
        queue = settings.dead_letter_queue
        super().__init__(
            Ports(
                store=store,
                blobs=blobs,
                logs=logs,
                uploads=S3Uploads(logs, blobs),
                seal=seal,
                install_key=settings.install_key,
                given_install_id=settings.install_id,
                publishes=False,
                backends=StoredAccounts(store, seal, clock, known, _always(settings), changed=work.refresh),
                providers=known,
                wake=WakeUps(clients, settings.wake_function, chain),
                chain=chain,
                effects=ExecutionEffects(workflows, work),
                account_work=work,
                workflows=workflows,
                notify_agents=nobody_waits,
                pace=PER_CALL.at(settings.sync_seconds),
                server_url=settings.agent_url,
                api_url=settings.api_url,
                clock=clock,
                random_id=random_id,
                random_token=random_token,
                measure=StorageUsage,
                logins=SshLogins() if settings.host_function else None,
                tunnels=False,
                serves=False,
                hold=EventHold(store, clock),
                dead_letters=SqsDeadLetters(clients, queue) if queue else nothing,
                count=count,
                **lazy_trace_ports(settings.traces, settings.trace_headers),
                bus=EventBus(clients, settings.bus) if settings.bus else None,
                authority=_authority(settings.acme),
                images=settings.images,
                retention=settings.retention,
                **_sign_on(settings.sign_on, clock),
            )
        )


def _sign_on(text: str, clock: Clock) -> dict[str, Any]:
    """Who may sign on: people and programs. A mistake in these settings must not affect users who have a token."""
    if not text:
        return {}
    from chalicelib.configuration.server import parse_server_bytes
    from chalicelib.runtime.sign_on import sign_on_ports

    try:
        config = parse_server_bytes(f"projects: []\n{text}".encode(), filename="sign-on").config
    except Invalid as wrong:
        log.error("the parameter sign-on can't be used, so nobody can sign on: %s", wrong)
        return {}
    return sign_on_ports(config, clock)


def _authority(text: str) -> CertificateAuthority | None:
    """The certificate authority. A mistake in its settings must affect nothing but certificates."""
    try:
        return authority_in(text).build()
    except Invalid as wrong:
        log.error("no certificates can be ordered: %s", wrong)
        return None


def _took(count: Count, objective: str, duration: Micros) -> None:
    """Count the events of an objective that took too long. The others have no metric, which would cost money."""
    if duration > OBJECTIVES[objective].within:
        count(telemetry.SLOW[objective], 1)


_here: LambdaRoot | None = None


def root() -> LambdaRoot:
    """The root of this process, of a stage that decides. Raises Moved otherwise."""
    here = any_root()
    here.check_fence()
    return here


def any_root() -> LambdaRoot:
    """The root of this process, created with its first event. A Lambda handles one event at a time."""
    global _here
    if _here is None:
        telemetry.structure_logs()
        clients = Boto(emulator())
        _here = LambdaRoot(LambdaSettings.read(parameters(clients)), clients=clients)
        gc.freeze()  # both as in `dstack server`: objects from the start stay, and the offers of a large catalog
        gc.set_threshold(10_000)  # aren't scanned again and again while they are read
    return _here


def only_if_deciding(handler: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """For schedules, and for hints about what is due: a stage that doesn't decide has nothing to do for them. As errors
    they would be repeated, and become dead letters, every minute."""

    @wraps(handler)
    def handle(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
        try:
            return handler(event, context, root)
        except Moved as why:
            log.info("%s", why)
            return {}

    return handle


def parameters(clients: Clients) -> Parameters:
    """Read the parameters by one call: there are five at most, and a call may name ten."""

    def read(path: str, names: Sequence[str]) -> dict[str, str]:
        found = clients("ssm").get_parameters(Names=[f"{path}/{name}" for name in names], WithDecryption=True)
        return {one["Name"].rpartition("/")[2]: one["Value"] for one in found["Parameters"]}

    return read


class Boto:
    """boto3 clients, each created on first use."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint
        self._made: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        if service not in self._made:
            import boto3
            from botocore.config import Config

            # Presigned URLs must fix the content, which only this version of S3's signatures can. They name the
            # bucket's region: elsewhere, requests to a new bucket are redirected, and the signature isn't valid there.
            style = None if self._endpoint else {"addressing_style": "virtual"}
            configs = {
                "s3": Config(signature_version="s3v4", s3=style),
                WAITED: Config(read_timeout=PATIENCE, connect_timeout=5, retries={"total_max_attempts": 1}),
            }
            name = service.partition("/")[0]
            self._made[service] = boto3.client(name, endpoint_url=self._endpoint, config=configs.get(service))
        return self._made[service]


class WakeUps:
    """Wake-ups for the reconcile function. They follow a commit, so a failure here must not fail the request: the
    committed units are due, and the schedule finds them within a minute. `lost` counts the hints that couldn't be
    sent."""

    def __init__(self, clients: Clients, function: str, chain: EventChain) -> None:
        self._clients, self._function, self._chain = clients, function, chain
        self.lost = 0

    def __call__(self, units: Iterable[str]) -> None:
        names = sorted(set(units))
        if self._chain.over:
            log.warning(
                "a chain of events ends here because it is too long; the schedule continues with %s", names[:BATCH]
            )
            return
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            try:
                invoke(self._clients, self._function, self._chain.next({"units": batch}))
            except Exception:  # whatever the SDK raises: the function, the network, the permissions
                self.lost += len(batch)
                log.exception("%d wake-ups were lost, %d since this process started", len(batch), self.lost)


def nobody_waits(instance_ids: Iterable[str]) -> None:
    """Do nothing: there are no long polls here, and the agents call again by themselves."""


class SqsDeadLetters:
    """The dead-letter queue, to which Lambda sends the events that it gives up, with details of the failure."""

    def __init__(self, clients: Clients, queue: str) -> None:
        self._clients, self._queue = clients, queue

    def __call__(self) -> Iterator[str]:
        sqs = self._clients("sqs")
        while found := sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages"):
            for message in found:
                yield message["Body"]
                sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])


class EventBus:
    """Publishes state changes to an EventBridge bus, which accepts or rejects each entry separately."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients, self._name = clients, name

    def __call__(self, changes: Sequence[StateChange]) -> set[str]:
        rejected: set[str] = set()
        for start in range(0, len(changes), ENTRIES):
            batch = changes[start : start + ENTRIES]
            answer = self._clients("events").put_events(Entries=[self._entry(change) for change in batch])
            results = zip(batch, answer["Entries"], strict=True)
            refused = {change.id: entry for change, entry in results if entry.get("ErrorCode")}
            if refused:
                log.error("the bus %s didn't take %d of %d state changes: %s", self._name, len(refused), len(batch),
                          next(iter(refused.values())))  # fmt: skip
            rejected |= refused.keys()
        return rejected

    def _entry(self, change: StateChange) -> dict[str, Any]:
        return {
            "EventBusName": self._name,
            "Source": SOURCE,
            "DetailType": DETAIL_TYPE,
            "Time": datetime.fromisoformat(change.time),
            "Detail": change.model_dump_json(),
        }


def fired_at(event: Mapping[str, Any]) -> Micros | None:
    """The time of a schedule's event, which is the same if it fires twice; None if it isn't a schedule's."""
    if event.get("source") != "aws.events":
        return None
    return round(datetime.fromisoformat(event["time"]).timestamp()) * SECOND


def refresh(root: Root, event: Mapping[str, Any]) -> list[str]:
    """Have the offers fetched that are due on a schedule; all, if somebody else asks."""
    from chalicelib.backends.registry import offers_turn

    at = fired_at(event)
    return root.refresh_accounts() if at is None else root.refresh_due(offers_turn(), at)


def run_step(workflow_calls: WorkflowCalls | StartCalls, event: Mapping[str, Any]) -> dict[str, str]:
    """Handle a call from a workflow's state machine. Raises the step's error under its class name."""
    from chalicelib.planning.kernel.executions import StepCall

    call = StepCall(event["step"], event["undo"], event.get("token", ""))
    return dict(workflow_calls.call(event["workflow"], call))


def _own_functions(settings: LambdaSettings) -> dict[str, str]:
    """The functions of backends that have their own: only one logs in to hosts, where a step takes minutes."""
    return {ON_PREM: settings.host_function} if settings.host_function else {}


def _always(settings: LambdaSettings) -> list[Account]:
    if not settings.fake_cloud:
        return []
    from chalicelib.backends.simulated.cloud import FakeCloud
    from chalicelib.backends.spi import facts_of

    facts = facts_of(FakeCloud).with_(name=settings.fake_cloud_name)
    return [Account(facts, lambda: _simulated(settings, Path(settings.fake_cloud or "")))]


def _simulated(settings: LambdaSettings, folder: Path) -> Backend:
    from chalicelib.agent.program.build import write
    from chalicelib.backends.simulated.local import local_cloud

    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "agent.pyz"
    write(str(program))
    return local_cloud(folder, settings.agent_url, program, name=settings.fake_cloud_name)
