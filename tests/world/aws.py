"""The functions in AWS on the world's time."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.runtime.control_plane import ControlPlane
from chalicelib.runtime.lambda_ import LambdaRoot
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import LambdaSettings
from chalicelib.store.dynamo import create_table
from chalicelib.usecases.first_start import first_start
from functions import agent_sync, erase_unused, provision, reap_idle, reconcile, refresh_catalog, sweep_orphans
from tests.emulators.ministack import Emulator
from tests.harness.lambda_host import api_event, scheduled_event, sqs_event, url_event
from tests.world.site import ADMIN, HOP, Answer, Site
from tests.world.time import Time

AGAIN = 30.0  # seconds until a failed message is redelivered


class Queue:
    """An SQS queue with its event source mapping: a message comes soon, and again later if it failed."""

    def __init__(self, time: Time, handler: Callable[[dict[str, Any]], Any]) -> None:
        self._time, self._handler, self._count = time, handler, 0

    def put(self, body: str) -> None:
        self._count += 1
        message = {"MessageId": str(self._count), "ReceiptHandle": "r", "Body": body, "MD5OfBody": ""}

        def deliver() -> None:
            answer = self._handler(sqs_event("arn:aws:sqs:us-east-1:000000000000:queue", [message])) or {}
            if answer.get("batchItemFailures"):
                self._time.after(AGAIN, deliver)

        self._time.after(HOP, deliver)


class AwsSite(Site):
    """The functions, each with its own root, over the emulator's DynamoDB, S3 and SSM. The world's time replaces queues
    and schedules."""

    long_poll = False

    def __init__(self, name: str, emulator: Emulator, cloud: str = FACTS.name) -> None:
        super().__init__(name, cloud)
        self._emulated = {service: emulator.client(service) for service in ("s3", "ssm", "dynamodb")}
        self._emulated["s3"].create_bucket(Bucket=name)
        for key in ("install-key", "master-key"):
            self._emulated["ssm"].put_parameter(Name=f"/{name}/{key}", Value="a1" * 32, Type="SecureString")
        create_table(self._emulated["dynamodb"], name)
        self._settings = LambdaSettings(
            table=name,
            bucket=name,
            wake_queue="wake",
            effect_queue="effects",
            keys=f"/{name}",
            api_url=self.url,
            endpoint=emulator.url,
        )
        self._api, self._agents = self._function(), self._function()
        first_start(self._api.plane, ADMIN)
        self._app = ControlPlane(lambda: self._api.plane)
        woken = self._deployed(reconcile.handler)
        self._queues = {"wake": Queue(self.time, woken), "effects": Queue(self.time, self._deployed(provision.handler))}
        refresh = self._deployed(refresh_catalog.handler)
        refresh(scheduled_event("refresh-catalog"))
        for rule, minutes, function in (
            ("reconcile", 1, woken),
            ("reap-idle", 1, self._deployed(reap_idle.handler)),
            ("sweep-orphans", 5, self._deployed(sweep_orphans.handler)),
            ("refresh-catalog", 15, refresh),
            ("erase-unused", 10, self._deployed(erase_unused.handler)),
        ):
            self.time.every(minutes * 60.0, lambda rule=rule, function=function: function(scheduled_event(rule)))

    def _function(self) -> Root:
        return self._here(LambdaRoot(self._settings, clock=self.time, clients=self._client))

    def _deployed(self, handler: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
        """Input and output are JSON, as in AWS."""
        root = self._function()
        return lambda event: json.loads(json.dumps(handler(json.loads(json.dumps(event)), None, root)))

    def _client(self, service: str) -> Any:
        return self if service == "sqs" else self._emulated[service]

    def send_message(self, QueueUrl: str, MessageBody: str) -> None:
        self._queues[QueueUrl].put(MessageBody)

    def close(self) -> None:
        self._api.close()

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts = urlsplit(path)
        if parts.path.startswith("/agent/"):
            answer = agent_sync.handler(url_event(method, parts.path, parts.query, headers, body), None, self._agents)
        else:
            binary = tuple(self._app.api.binary_types)
            answer = self._app(api_event(method, parts.path, parts.query, headers, body, binary=binary), None)
        answer = json.loads(json.dumps(answer))
        content = answer["body"]
        return answer["statusCode"], base64.b64decode(content) if answer.get("isBase64Encoded") else content.encode()
