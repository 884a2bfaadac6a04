"""The control plane in AWS: DynamoDB, S3, SQS, SSM.

Everything is made on first use and kept for the life of the Lambda's process; importing this makes no client. Wake-ups
and effects travel through two SQS queues, so that a pass that dies is repeated and a slow cloud never holds a request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from chalicelib.backends.spi import Backend
from chalicelib.domain.facts import BackendFacts
from chalicelib.engine.execute import Executor
from chalicelib.engine.reconcile import Reconciler
from chalicelib.engine.sweep import Sweeper
from chalicelib.errors import Invalid
from chalicelib.planning.plan import Create, Describe, Effect, Terminate
from chalicelib.runtime.clock import SystemClock, random_id, random_token
from chalicelib.usecases.context import Images, Plane

BATCH = 100  # hints a message; SQS takes 256 KB, a unit's name is some 50 bytes


@dataclass(frozen=True)
class LambdaSettings:
    """What the stack tells its functions."""

    table: str
    bucket: str
    wake_queue: str
    effect_queue: str
    keys: str  # SSM prefix of `install-key` and `master-key`, both hex
    api_url: str
    sync_seconds: float = Plane.sync_fast  # between an agent's calls while something changes
    endpoint: str | None = None  # an emulator's address, in tests
    fake_cloud: str | None = None  # a folder: only where the functions run on one machine, in tests


@cache
def settings() -> LambdaSettings:
    names = {
        "table": "DSTACK_TABLE",
        "bucket": "DSTACK_BUCKET",
        "wake_queue": "DSTACK_WAKE_QUEUE",
        "effect_queue": "DSTACK_EFFECT_QUEUE",
        "keys": "DSTACK_KEYS",
        "api_url": "DSTACK_API_URL",
    }
    missing = [name for name in names.values() if not os.environ.get(name)]
    if missing:
        raise Invalid(f"The function lacks the settings {', '.join(missing)}.", hint="Deploy the stack of infra/ anew.")
    found = {field: os.environ[name] for field, name in names.items()}
    return LambdaSettings(
        **found,
        sync_seconds=_seconds("DSTACK_SYNC_SECONDS", Plane.sync_fast),
        endpoint=os.environ.get("DSTACK_AWS_ENDPOINT"),
        fake_cloud=os.environ.get("DSTACK_FAKE_CLOUD"),
    )


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name) or str(default)
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 60:
        raise Invalid(f"{name} is {text!r}.", hint="Set a number of seconds over 0 and up to 60.")
    return found


@cache
def client(service: str) -> Any:
    import boto3

    return boto3.client(service, endpoint_url=settings().endpoint)


@cache
def key(name: str) -> bytes:
    """A 32-byte key of the install, kept as an SSM SecureString."""
    answer = client("ssm").get_parameter(Name=f"{settings().keys}/{name}", WithDecryption=True)
    return bytes.fromhex(answer["Parameter"]["Value"])


def wake(units: Iterable[str]) -> None:
    """A hint to the reconcile function. Losing it costs the minute until the schedule."""
    names = sorted(set(units))
    for start in range(0, len(names), BATCH):
        body = json.dumps({"units": names[start : start + BATCH]})
        client("sqs").send_message(QueueUrl=settings().wake_queue, MessageBody=body)


def no_news(instance_ids: Iterable[str]) -> None:
    """Nobody waits here: agents of this root poll every two seconds while something changes."""


class QueuedEffects:
    """Effects go to the provision function, which has the clouds' SDKs."""

    def submit(self, effect: Effect) -> None:
        body = json.dumps({"effect": type(effect).__name__, **asdict(effect)})
        client("sqs").send_message(QueueUrl=settings().effect_queue, MessageBody=body)


def effect_from(message: Mapping[str, Any]) -> Effect:
    """What `QueuedEffects.submit` sent, whole: a purchase is known by the `act_until` it was committed under."""
    kinds: dict[str, type[Create | Describe | Terminate]] = {k.__name__: k for k in (Create, Describe, Terminate)}
    fields = {name: value for name, value in message.items() if name != "effect"}
    return kinds[message["effect"]](**fields)


@cache
def backends() -> Mapping[str, Backend]:
    folder = settings().fake_cloud
    if not folder:
        return {}
    from pathlib import Path

    from chalicelib.agent.build import write
    from chalicelib.backends.registry import simulated

    program = Path(folder) / "agent.pyz"
    program.parent.mkdir(parents=True, exist_ok=True)
    write(str(program))
    return simulated(Path(folder), settings().api_url, program)


@cache
def facts() -> Mapping[str, BackendFacts]:
    return {name: backend.facts for name, backend in backends().items()}


@cache
def plane() -> Plane:
    from chalicelib.catalog.offers import StoredCatalog
    from chalicelib.domain.ids import derive
    from chalicelib.store.blobs import S3Blobs
    from chalicelib.store.dynamo import DynamoStore
    from chalicelib.store.log_blobs import BlobLogs
    from chalicelib.store.seal import Sealer

    chosen, clock = settings(), SystemClock()
    blobs = S3Blobs(chosen.bucket, lambda: client("s3"))
    install_key = key("install-key")
    return Plane(
        store=DynamoStore(chosen.table, endpoint=chosen.endpoint),
        blobs=blobs,
        logs=BlobLogs(blobs),
        seal=Sealer(key("master-key")),
        catalog=StoredCatalog(blobs, clock),
        clock=clock,
        wake=wake,
        news=no_news,
        random_id=random_id,
        random_token=random_token,
        install_id=derive(install_key.hex(), "install"),
        install_key=install_key,
        facts=facts(),
        server_url=chosen.api_url,
        sync_fast=chosen.sync_seconds,
        images=Images(base=os.environ.get("DSTACK_DOCKER_BASE_IMAGE", Images.base)),
    )


@cache
def reconciler() -> Reconciler:
    here = plane()
    return Reconciler(
        here.store, here.clock, wake=wake, news=no_news, effects=QueuedEffects(), catalog=here.catalog, facts=here.facts
    )


@cache
def executor() -> Executor:
    here = plane()
    return Executor(
        here.store,
        here.clock,
        backends(),
        install_id=here.install_id,
        install_key=here.install_key,
        wake=wake,
        server_url=settings().api_url,
    )


@cache
def sweeper() -> Sweeper:
    here = plane()
    return Sweeper(here.store, here.clock, backends(), install_id=here.install_id)
