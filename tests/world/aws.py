"""The functions in AWS on the world's time."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from chalicelib.backends.registry import CLOUDS
from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.domain.instants import SECOND
from chalicelib.runtime.chalice_app import ControlPlane
from chalicelib.runtime.lambda_ import LambdaRoot
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import LambdaSettings
from chalicelib.store.dynamo import create_table
from chalicelib.usecases.context import Plane
from chalicelib.usecases.operator.first_start import first_start
from functions import agent_sync, erase_unused, provider, reap_idle, reconcile, refresh_catalog, sweep_orphans
from tests.emulators.ministack import Emulator
from tests.harness.lambda_host import api_event, scheduled_event, url_event
from tests.world.calls import Policed, readable
from tests.world.site import ADMIN, HOP, Answer, Site
from tests.world.time import Time

PAUSES = (60.0, 120.0)  # seconds until an event whose function raised comes again

log = logging.getLogger(__name__)


class Events:
    """A function's asynchronous events: each comes soon, and again later if the function raised."""

    def __init__(self, time: Time, handler: Callable[[dict[str, Any]], Any]) -> None:
        self._time, self._handler = time, handler

    def put(self, payload: bytes, attempt: int = 0) -> None:
        def deliver() -> None:
            try:
                self._handler(json.loads(payload))
            except Exception:  # as Lambda, which asks no function why
                log.exception("an event failed: %s", payload)
                if attempt < len(PAUSES):
                    self.put(payload, attempt + 1)

        self._time.after(PAUSES[attempt - 1] if attempt else HOP, deliver)


class AwsSite(Site):
    """The functions, each with its own root, over the emulator's DynamoDB and S3. The world's time replaces Lambda's
    own queues, and schedules."""

    long_poll = False

    def __init__(self, name: str, emulator: Emulator, cloud: str = FACTS.name) -> None:
        super().__init__(name, cloud)
        self.policed, self._open = Policed(), ExitStack()
        self._open.enter_context(self.policed.listening())
        self._emulated = {service: emulator.client(service) for service in ("s3", "dynamodb")}
        self._emulated["s3"].create_bucket(Bucket=name)
        create_table(self._emulated["dynamodb"], name)
        self._settings = LambdaSettings(
            table=name,
            bucket=name,
            wake_function="reconcile",
            provider_functions={CLOUDS: "provider_clouds"},
            api_url=self.url,
            agent_url=self.url,
            install_key=b"\xa1" * 32,
            master_key=b"\xa1" * 32,
            endpoint=emulator.url,
        )
        self._api, self._agents = self._function("api"), self._function("agent_sync")
        first_start(self._api.plane, ADMIN)
        self._app = ControlPlane(lambda: self._api.plane)
        woken = self._deployed("reconcile", reconcile.handler)
        self._async_functions = {
            "reconcile": Events(self.time, woken),
            "provider_clouds": Events(self.time, self._deployed("provider_clouds", provider.handler)),
        }
        refresh = self._deployed("refresh_catalog", refresh_catalog.handler)
        refresh({})
        for rule, minutes, function in (
            ("reconcile", 1, woken),
            ("reap-idle", 2, self._deployed("reap_idle", reap_idle.handler)),
            ("sweep-orphans", 5, self._deployed("sweep_orphans", sweep_orphans.handler)),
            ("refresh-catalog", 15, refresh),
            ("erase-unused", 10, self._deployed("erase_unused", erase_unused.handler)),
        ):
            self.time.every(minutes * 60.0, partial(self._fire, function, rule))

    def _fire(self, function: Callable[[Any], Any], rule: str) -> None:
        function(scheduled_event(rule, self.time.at / SECOND))

    def _function(self, name: str) -> Root:
        """It has the keys that it reads, and no other."""
        return self._here(LambdaRoot(readable(self._settings, name), clock=self.time, clients=self._client))

    def _deployed(self, name: str, handler: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
        """Input and output are JSON, as in AWS, and its policy is kept."""
        root = self._function(name)

        def invoke(event: dict[str, Any]) -> Any:
            with self.policed.running(name):
                root.check_fence()
                return json.loads(json.dumps(handler(json.loads(json.dumps(event)), None, root)))

        return invoke

    def _client(self, service: str) -> Any:
        return self if service == "lambda" else self._emulated[service]

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> None:
        assert InvocationType == "Event", "nobody waits for a function"
        self.policed.check_call("lambda", "Invoke", {"FunctionName": FunctionName})
        self._async_functions[FunctionName].put(Payload)

    def written(self) -> int:
        return self.policed.writes

    @property
    def plane(self) -> Plane:
        """That of the API's function."""
        return self._api.plane

    def close(self) -> None:
        self._api.close()
        self._open.close()
        assert self.policed.refused == []

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts = urlsplit(path)
        if parts.path.startswith("/agent/"):
            event = url_event(method, parts.path, parts.query, headers, body)
            with self.policed.running("agent_sync"):
                answer = agent_sync.handler(event, None, self._agents)
        else:
            binary = tuple(self._app.api.binary_types)
            with self.policed.running("api"):
                answer = self._app(api_event(method, parts.path, parts.query, headers, body, binary=binary), None)
        answer = json.loads(json.dumps(answer))
        content = answer["body"]
        return answer["statusCode"], base64.b64decode(content) if answer.get("isBase64Encoded") else content.encode()
