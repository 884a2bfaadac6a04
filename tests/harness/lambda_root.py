"""The AWS root on one machine: real event shapes, the real functions, an emulator for the services.

`python -m tests.harness.lambda_root --endpoint URL --home DIR` creates the table, bucket and keys, and then plays AWS:
an API Gateway that turns HTTP into REST proxy events for `app.app`, a Function URL for the agents, Lambda's own API for
asynchronous invocations, and schedules (a minute is shortened to two seconds). It prints the line that `dstack server`
prints.
The agents' pace is a setting of the stack; here it is quick.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import signal
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chalicelib.backends.simulated.cloud import FACTS
from tests.harness.lambda_host import (
    LARGEST,
    Event,
    Function,
    FunctionFailed,
    api_event,
    deliver,
    in_background,
    keep_time,
    own_environment,
    url_event,
)

MINUTE = 2.0  # seconds
INVOKE = "/2015-03-31/functions/"  # NAME/invocations, in Lambda's API
PACE = 0.3  # seconds between an agent's calls while something changes


@dataclass(frozen=True)
class Stack:
    """What CloudFormation would create."""

    name: str
    environment: dict[str, str]  # of every function


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--home", type=Path, required=True)
    chosen = parser.parse_args()
    server = Gateway(("127.0.0.1", 0), Front)
    url = f"http://127.0.0.1:{server.server_port}"
    stack = make_stack(chosen.endpoint, chosen.home, url)
    first_start(stack.environment)

    def deployed(handler: str, concurrency: int = 1) -> Function:
        function = Function(handler, stack.environment, concurrency)
        server.functions.append(function)
        return function

    server.api, server.agent_sync = deployed("app.app", 2), deployed("functions.agent_sync.handler", 2)
    reconcile, provider = deployed("functions.reconcile.handler", 2), deployed("functions.provider.handler", 2)
    reap, sweep = deployed("functions.reap_idle.handler"), deployed("functions.sweep_orphans.handler")
    refresh = deployed("functions.refresh_catalog.handler")
    provider({"refresh": f"{FACTS.name}-all"})
    server.by_event = {"reconcile": reconcile, "provider": provider}
    for rule, minutes, function in (
        ("reconcile", 1, reconcile),
        ("reap-idle", 1, reap),
        ("sweep-orphans", 5, sweep),
        ("refresh-catalog", 15, refresh),
        ("erase-unused", 10, deployed("functions.erase_unused.handler")),
    ):
        in_background(keep_time, rule, minutes * MINUTE, function)
    from cli.connection.config import set_default_project

    set_default_project(chosen.home / ".dstack" / "config.yml", "main", url, os.environ["DSTACK_SERVER_ADMIN_TOKEN"])
    print(f"The server is running at {url}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve_forever()
    finally:
        for function in server.functions:
            function.close()
    return 0


def make_stack(endpoint: str, home: Path, url: str) -> Stack:
    """The resources, and the functions' settings for them."""
    credentials = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_LAMBDA": url,
    }
    os.environ.update(credentials)
    import boto3

    from chalicelib.store.dynamo import create_table

    name = f"dstack-{secrets.token_hex(4)}"
    boto3.client("s3").create_bucket(Bucket=name)
    ssm = boto3.client("ssm")
    for key in ("install-key", "master-key"):
        ssm.put_parameter(Name=f"/{name}/{key}", Value=secrets.token_hex(32), Type="SecureString")
    create_table(boto3.client("dynamodb"), name)
    settings = {
        "DSTACK_TABLE": name,
        "DSTACK_BUCKET": name,
        "DSTACK_KEYS": f"/{name}",
        "DSTACK_WAKE_FUNCTION": "reconcile",
        "DSTACK_PROVIDER_FUNCTION": "provider",
        "DSTACK_API_URL": url,
        "DSTACK_SYNC_SECONDS": str(PACE),
        "DSTACK_FAKE_CLOUD": str(home / "server" / "fake-cloud"),
    }
    return Stack(name, {**own_environment(), **credentials, **settings})


def first_start(environment: dict[str, str]) -> None:
    """What the deploy command does once: the admin and the project `main`."""
    from chalicelib.runtime.lambda_ import Boto, LambdaRoot, parameters
    from chalicelib.runtime.settings import LambdaSettings
    from chalicelib.usecases.operator.first_start import first_start as start

    clients = Boto(None)
    settings = LambdaSettings.read(parameters(clients), environment)
    start(LambdaRoot(settings, clients=clients).plane, os.environ["DSTACK_SERVER_ADMIN_TOKEN"])


class Gateway(ThreadingHTTPServer):
    """API Gateway for the app, a Function URL for the agents, Lambda for what functions ask of each other."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        import app

        self.functions: list[Function] = []
        self.api: Function
        self.agent_sync: Function
        self.by_event: dict[str, Function] = {}  # by asynchronous events
        self._binary = tuple(app.app.api.binary_types)

    def ask(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> Event:
        if path.startswith(INVOKE):
            function = self.by_event[path.removeprefix(INVOKE).partition("/")[0]]
            if headers.get("X-Amz-Invocation-Type") == "RequestResponse":
                return {"statusCode": 200, "body": json.dumps(function(json.loads(body)))}
            in_background(deliver, json.loads(body), function)
            return {"statusCode": 202}
        try:
            if path.startswith("/agent/"):
                answer: Event = self.agent_sync(url_event(method, path, query, headers, body))
                return answer
            event = api_event(method, path, query, headers, body, binary=self._binary)
            answer = self.api(event)
        except FunctionFailed as failure:
            print(failure, file=sys.stderr, flush=True)
            return {"statusCode": 502, "body": '{"message": "Internal server error"}'}
        return answer


class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gateway

    def answer(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if length > LARGEST:
            answer: Event = {"statusCode": 413, "body": '{"message": "Request Too Long"}'}
        else:
            headers = dict(self.headers.items())
            answer = self.server.ask(self.command, parts.path, parts.query, headers, body)
        content = answer.get("body") or ""
        raw = base64.b64decode(content) if answer.get("isBase64Encoded") else content.encode()
        self.send_response(answer["statusCode"])
        for name, value in (answer.get("headers") or {}).items():
            self.send_header(name, value)
        for name, values in (answer.get("multiValueHeaders") or {}).items():
            for value in values:
                self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: errors are in the response."""


if __name__ == "__main__":
    sys.exit(main())
