"""The control plane in AWS: DynamoDB, S3, SQS, SSM.

Wake-ups and effects travel through two SQS queues, so that a pass that dies is repeated and a slow cloud never blocks a
request. A Lambda's process creates its root with its first event and keeps it; importing this module creates no client.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.spi import Backend
from chalicelib.domain.usage import Usage
from chalicelib.engine.ports import Clock
from chalicelib.planning.hosts import ON_PREM
from chalicelib.planning.plan import Effect
from chalicelib.runtime.clock import SystemClock, random_id, random_token
from chalicelib.runtime.ports import Ports
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import LambdaSettings
from chalicelib.usecases.pace import PER_CALL

log = logging.getLogger(__name__)

BATCH = 100  # hints per message; SQS allows 256 KB, and a unit's name is about 50 bytes

Clients = Callable[[str], Any]  # the client of an AWS service, by the service's name


class LambdaRoot(Root):
    """Created from its settings alone, so one process can have any number."""

    def __init__(self, settings: LambdaSettings, *, clock: Clock | None = None, clients: Clients | None = None) -> None:
        from chalicelib.hosts.connection import Ssh
        from chalicelib.store.blobs import S3Blobs
        from chalicelib.store.dynamo import DynamoStore
        from chalicelib.store.expiring import ExpiringStore
        from chalicelib.store.log_blobs import BlobLogs
        from chalicelib.store.seal import Sealer

        clients, clock = clients or Boto(settings.endpoint), clock or SystemClock()
        keys = InstallKeys(clients, settings.keys)
        blobs = S3Blobs(settings.bucket, lambda: clients("s3"))
        super().__init__(
            Ports(
                store=ExpiringStore(DynamoStore(settings.table, endpoint=settings.endpoint), settings.retention),
                blobs=blobs,
                logs=BlobLogs(blobs),
                seal=Sealer(keys.read("master-key")),
                install_key=keys.read("install-key"),
                backends=_backends(settings),
                wake=Hints(clients, settings.wake_queue),
                effects=QueuedEffects(clients, settings.effect_queue, _own_queues(settings)),
                news=nobody_waits,
                pace=PER_CALL.at(settings.sync_seconds),
                server_url=settings.api_url,
                clock=clock,
                random_id=random_id,
                random_token=random_token,
                measure=Usage,
                logins=Ssh() if settings.host_queue else None,
                tunnels=False,
                images=settings.images,
                retention=settings.retention,
            )
        )


_here: LambdaRoot | None = None


def root() -> LambdaRoot:
    """The root of this process, created with its first event. A Lambda handles one event at a time."""
    global _here
    if _here is None:
        _here = LambdaRoot(LambdaSettings.from_env())
    return _here


class Boto:
    """boto3 clients, each created on first use."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint
        self._made: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        if service not in self._made:
            import boto3

            self._made[service] = boto3.client(service, endpoint_url=self._endpoint)
        return self._made[service]


class InstallKeys:
    """The 32-byte keys of the install, kept as SSM SecureStrings."""

    def __init__(self, clients: Clients, prefix: str) -> None:
        self._clients, self._prefix = clients, prefix

    def read(self, name: str) -> bytes:
        answer = self._clients("ssm").get_parameter(Name=f"{self._prefix}/{name}", WithDecryption=True)
        return bytes.fromhex(answer["Parameter"]["Value"])


class Hints:
    """Wake-ups for the reconcile function. They follow a commit, so a failure here must not fail the request: what was
    committed is due, and the schedule finds it within a minute. `lost` counts the hints that couldn't be sent."""

    def __init__(self, clients: Clients, queue: str) -> None:
        self._clients, self._queue = clients, queue
        self.lost = 0

    def __call__(self, units: Iterable[str]) -> None:
        names = sorted(set(units))
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            try:
                self._clients("sqs").send_message(QueueUrl=self._queue, MessageBody=json.dumps({"units": batch}))
            except Exception:  # whatever the SDK raises: the queue, the network, the permissions
                self.lost += len(batch)
                log.exception("%d wake-ups were lost, %d since this process started", len(batch), self.lost)


def nobody_waits(instance_ids: Iterable[str]) -> None:
    """No calls are held here: this root's agents call again by themselves."""


class QueuedEffects:
    """Effects go to the provision function, which has the clouds' SDKs; those of backends with a queue of their own go
    there."""

    def __init__(self, clients: Clients, queue: str, own: Mapping[str, str] | None = None) -> None:
        self._clients, self._queue, self._own = clients, queue, own or {}

    def submit(self, effect: Effect) -> None:
        from chalicelib.engine.effects.table import to_message

        queue = self._own.get(effect.backend, self._queue)
        self._clients("sqs").send_message(QueueUrl=queue, MessageBody=json.dumps(to_message(effect)))


def execute(root: Root, event: Mapping[str, Any]) -> dict[str, Any]:
    """An SQS batch of effects. A failed one returns to the queue alone, without its neighbours."""
    from chalicelib.engine.effects.table import from_message

    failed = []
    for record in event["Records"]:
        try:
            root.executor.execute(from_message(json.loads(record["body"])))
        except Exception:  # one bad effect must not hold back the batch; SQS redelivers it, then sets it aside
            log.exception("effect failed: %s", record["body"])
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}


def _own_queues(settings: LambdaSettings) -> dict[str, str]:
    """Hosts have a queue of their own: a step there takes minutes, and only one function logs in."""
    return {ON_PREM: settings.host_queue} if settings.host_queue else {}


def _backends(settings: LambdaSettings) -> Accounts:
    if not settings.fake_cloud:
        return Accounts()
    from chalicelib.backends.simulated.cloud import FACTS

    return Accounts([Account(FACTS, lambda: _simulated(settings, Path(settings.fake_cloud or "")))])


def _simulated(settings: LambdaSettings, folder: Path) -> Backend:
    from chalicelib.agent.build import write
    from chalicelib.backends.simulated.local import local_cloud

    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "agent.pyz"
    write(str(program))
    return local_cloud(folder, settings.api_url, program)
