"""What AWS does around functions: sandboxes that start when an event comes, events that nobody waits for, schedules
that wake them, and HTTP turned into the events of API Gateway and of a Function URL.

Each sandbox is a separate process (`lambda_worker`), so they share only what the emulated services store.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any
from urllib.parse import parse_qs, unquote

from chalicelib.api.dispatch import match
from chalicelib.runtime.chalice_app import RESOURCES
from tests.harness.lambda_worker import COPIES, work

LARGEST = 6 * 1024 * 1024  # bytes of an event, and of a response

Event = dict[str, Any]


class FunctionFailed(Exception):
    """The function raised, or its sandbox died; AWS would report that to the caller and log the traceback."""


@dataclass(frozen=True)
class Sandbox:
    process: BaseProcess
    events: Connection

    @staticmethod
    def start(handler: str, environment: Mapping[str, str]) -> Sandbox:
        ours, theirs = COPIES.Pipe()
        process = COPIES.Process(target=work, args=(handler, environment, theirs), daemon=True)
        process.start()
        theirs.close()
        return Sandbox(process, ours)

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.events.close()


class Function:
    """A deployed function: up to `concurrency` sandboxes, each started by the first event that finds none idle."""

    def __init__(self, handler: str, environment: Mapping[str, str], concurrency: int = 1) -> None:
        self.handler, self._environment = handler, dict(environment)
        self._idle: queue.LifoQueue[Sandbox | None] = queue.LifoQueue()
        self._all: list[Sandbox] = []
        for _ in range(concurrency):
            self._idle.put(None)

    def __call__(self, event: Event) -> Any:
        text = json.dumps(event)
        if len(text) > LARGEST:
            raise FunctionFailed(f"an event of {len(text)} bytes is larger than Lambda takes")
        sandbox = self._idle.get()
        try:
            sandbox = sandbox or self._start()
            sandbox.events.send(text)
            response = sandbox.events.recv()
        except (OSError, EOFError) as error:
            sandbox = None
            raise FunctionFailed(f"the sandbox of {self.handler} died: {error}") from error
        finally:
            self._idle.put(sandbox)
        if len(response) > LARGEST:
            raise FunctionFailed(f"an answer of {len(response)} bytes is larger than Lambda gives")
        reply = json.loads(response)
        if "errorType" in reply:
            raise FunctionFailed(f"{self.handler}: {reply['errorType']}: {reply['errorMessage']}")
        return reply["answer"]

    def _start(self) -> Sandbox:
        sandbox = Sandbox.start(self.handler, self._environment)
        self._all.append(sandbox)
        return sandbox

    def close(self) -> None:
        for sandbox in self._all:
            sandbox.close()


# --- events -----------------------------------------------------------------------------------------------------------


def proxy_event(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    resource: str,
    params: Mapping[str, str],
    binary: tuple[str, ...],
) -> Event:
    """What API Gateway sends for a REST API: a body of a binary media type as base64, others as text."""
    media = next((value for name, value in headers.items() if name.lower() == "content-type"), "").split(";")[0].strip()
    encoded = media in binary
    fields = parse_qs(query, keep_blank_values=True)
    return {
        "resource": resource,
        "path": path,
        "httpMethod": method,
        "headers": dict(headers),
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": {name: values[-1] for name, values in fields.items()} or None,
        "multiValueQueryStringParameters": fields or None,
        "pathParameters": {name: unquote(value) for name, value in params.items()} or None,
        "stageVariables": None,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "local",
            "httpMethod": method,
            "identity": {"sourceIp": "127.0.0.1", "userAgent": headers.get("User-Agent")},
            "path": f"/api{path}",
            "protocol": "HTTP/1.1",
            "requestId": secrets.token_hex(16),
            "requestTimeEpoch": time.time_ns() // 1_000_000,
            "resourceId": "abc123",
            "resourcePath": resource,
            "stage": "api",
        },
        "body": (base64.b64encode(body).decode() if encoded else body.decode(errors="replace")) or None,
        "isBase64Encoded": encoded,
    }


def api_event(
    method: str, path: str, query: str, headers: Mapping[str, str], body: bytes, *, binary: tuple[str, ...]
) -> Event:
    """What API Gateway makes of a request, by the route that it matches."""
    found = match(path)
    resource = path if found is None else found.template
    params = {} if found is None else found.params
    for prefix, proxy in RESOURCES.items():
        if path.startswith(prefix):
            resource, params = proxy, {"proxy": path.removeprefix(prefix)}
    return proxy_event(method, path, query, headers, body, resource=resource, params=params, binary=binary)


def url_event(method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Event:
    """What a Function URL sends: payload format 2.0, header names in lower case, no body key for an empty body."""
    fields = parse_qs(query, keep_blank_values=True)
    event: Event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "local",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": headers.get("User-Agent"),
            },
            "requestId": secrets.token_hex(16),
            "routeKey": "$default",
            "stage": "$default",
            "timeEpoch": time.time_ns() // 1_000_000,
        },
        "isBase64Encoded": False,
    }
    if fields:
        event["queryStringParameters"] = {name: ",".join(values) for name, values in fields.items()}
    if body:
        event |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    return event


def scheduled_event(rule: str, at: float | None = None) -> Event:
    """What EventBridge sends for a rule with a rate, at its turn: in seconds since the epoch, if it isn't now."""
    return {
        "version": "0",
        "id": secrets.token_hex(16),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "000000000000",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
        "region": "us-east-1",
        "resources": [f"arn:aws:events:us-east-1:000000000000:rule/{rule}"],
        "detail": {},
    }


# --- what brings them -------------------------------------------------------------------------------------------------


PAUSES = (2.0, 4.0)  # seconds until an event whose function raised comes again; in AWS they are minutes


def deliver(event: Event, function: Function) -> None:
    """An asynchronous invocation: its caller doesn't wait, and a failed one is repeated."""
    for pause in (*PAUSES, None):
        try:
            function(event)
            return
        except FunctionFailed as failure:
            print(failure, file=sys.stderr, flush=True)
        if pause is not None:
            time.sleep(pause)


def keep_time(rule: str, every: float, function: Function) -> None:
    """A schedule, for ever; a failed run is logged, and the next one comes anyway."""
    while True:
        time.sleep(every)
        try:
            function(scheduled_event(rule))
        except FunctionFailed as failure:
            print(failure, file=sys.stderr, flush=True)


def in_background(target: Any, *args: Any) -> None:
    threading.Thread(target=target, args=args, daemon=True).start()


def own_environment() -> dict[str, str]:
    """What every function gets in addition to its settings."""
    names = ("PATH", "LANG", "HOME", "no_proxy", "http_proxy", "https_proxy", "GIT_SSL_CAINFO")
    return {name: os.environ[name] for name in names if name in os.environ}
