"""The AWS root on one machine: real event shapes, the real functions, an emulator for the services.

`python -m tests.harness.lambda_root --endpoint URL --home DIR` makes the table, bucket, queues and keys, and then is what
AWS is in production: an API Gateway that turns HTTP into REST proxy events for `app.app`, a Function URL for the agents,
SQS event source mappings, and a schedule (a minute is shortened to two seconds). It prints the line that `dstack server`
prints.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MINUTE = 2.0  # seconds


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--home", type=Path, required=True)
    chosen = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    url = f"http://127.0.0.1:{server.server_port}"
    configure(chosen.endpoint, chosen.home, url)
    from chalicelib.runtime import lambda_
    from chalicelib.usecases.bootstrap import first_start
    from functions import provision, reconcile, refresh_catalog

    refresh_catalog.handler(scheduled("refresh-catalog"), None)
    first_start(lambda_.plane(), os.environ["DSTACK_SERVER_ADMIN_TOKEN"])
    for queue, handler in (
        (lambda_.settings().wake_queue, reconcile.handler),
        (lambda_.settings().effect_queue, provision.handler),
    ):
        threading.Thread(target=consume, args=(queue, handler), daemon=True).start()
    threading.Thread(target=tick, args=(reconcile.handler,), daemon=True).start()
    from cli.config import set_default_project

    set_default_project(chosen.home / ".dstack" / "config.yml", "main", url, os.environ["DSTACK_SERVER_ADMIN_TOKEN"])
    print(f"The server is running at {url}", flush=True)
    server.serve_forever()
    return 0


def configure(endpoint: str, home: Path, url: str) -> None:
    """What CloudFormation would make, and what it would tell the functions."""
    name = f"dstack-{secrets.token_hex(4)}"
    os.environ.update(
        {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            "DSTACK_AWS_ENDPOINT": endpoint,
            "DSTACK_TABLE": name,
            "DSTACK_BUCKET": name,
            "DSTACK_KEYS": f"/{name}",
            "DSTACK_API_URL": url,
            "DSTACK_FAKE_CLOUD": str(home / "fake-cloud"),
        }
    )
    import boto3

    sqs = boto3.client("sqs", endpoint_url=endpoint)
    for variable in ("DSTACK_WAKE_QUEUE", "DSTACK_EFFECT_QUEUE"):
        os.environ[variable] = sqs.create_queue(QueueName=f"{name}-{variable[7:].lower()}")["QueueUrl"]
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    ssm = boto3.client("ssm", endpoint_url=endpoint)
    for key in ("install-key", "master-key"):
        ssm.put_parameter(Name=f"/{name}/{key}", Value=secrets.token_hex(32), Type="SecureString")
    from chalicelib.store.dynamo import create_table

    create_table(boto3.client("dynamodb", endpoint_url=endpoint), name)


class Front(BaseHTTPRequestHandler):
    """API Gateway for the app, a Function URL for what agents ask."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        answer = (
            self.agent(parts.path, parts.query, body) if parts.path.startswith("/agent/") else self.api(parts, body)
        )
        content = answer.get("body") or ""
        import base64

        raw = base64.b64decode(content) if answer.get("isBase64Encoded") else content.encode()
        self.send_response(answer["statusCode"])
        for name, value in (answer.get("headers") or {}).items():
            self.send_header(name, value)
        for name, values in (answer.get("multiValueHeaders") or {}).items():
            self.send_header(name, ", ".join(values))
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer

    def api(self, parts: Any, body: bytes) -> dict[str, Any]:
        import app
        from chalicelib.api.dispatch import match
        from chalicelib.runtime.asgi import gateway_event

        found = match(parts.path)
        resource, params = (parts.path, {}) if found is None else (found.template, found.params)
        headers = dict(self.headers.items())
        event = gateway_event(self.command, parts.path, resource, params, parts.query.encode(), headers, body)
        answer: dict[str, Any] = app.app(event, None)
        return answer

    def agent(self, path: str, query: str, body: bytes) -> dict[str, Any]:
        import base64

        from functions import agent_sync

        event = {
            "version": "2.0",
            "rawPath": path,
            "rawQueryString": query,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "requestContext": {"http": {"method": self.command, "path": path, "sourceIp": "127.0.0.1"}},
            "body": base64.b64encode(body).decode(),
            "isBase64Encoded": True,
        }
        return agent_sync.handler(event, None)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: what went wrong is in the answer."""


def consume(queue: str, handler: Any) -> None:
    """An SQS event source mapping: batches of ten, deleted when the function took them."""
    from chalicelib.runtime import lambda_

    sqs = lambda_.client("sqs")
    while True:
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", [])
        if not messages:
            continue
        records = [
            {
                "messageId": m["MessageId"],
                "receiptHandle": m["ReceiptHandle"],
                "body": m["Body"],
                "attributes": {},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "awsRegion": "us-east-1",
            }
            for m in messages
        ]
        try:
            failed = {item["itemIdentifier"] for item in handler({"Records": records}, None)["batchItemFailures"]}
        except Exception as error:  # as Lambda does: the whole batch comes again
            print(f"a function failed: {error!r}", file=sys.stderr, flush=True)
            continue
        for message in messages:
            if message["MessageId"] not in failed:
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def scheduled(name: str) -> dict[str, Any]:
    """What EventBridge sends for a rule with a rate."""
    return {
        "version": "0",
        "id": secrets.token_hex(8),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "000000000000",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "region": "us-east-1",
        "resources": [f"arn:aws:events:us-east-1:000000000000:rule/{name}"],
        "detail": {},
    }


def tick(handler: Any) -> None:
    while True:
        time.sleep(MINUTE)
        try:
            handler(scheduled("reconcile"), None)
        except Exception as error:  # a schedule goes on whatever one run came to
            print(f"the schedule failed: {json.dumps(str(error))}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
