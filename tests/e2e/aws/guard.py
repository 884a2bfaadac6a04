"""A proxy between the deploying commands and the emulator, which stands for IAM: it notes each call that they make, and
refuses those that the policies don't allow. What the functions call doesn't pass here."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.emulators.ministack import REGION
from tests.harness.iam import Call, Document, allowed

ACCOUNT = "0" * 12
_SIGNED = re.compile(r"Credential=[^/]+/\d+/[^/]+/(?P<service>[a-z0-9-]+)/aws4_request")
_OWN = ("host", "content-length", "connection", "proxy-connection", "keep-alive", "transfer-encoding")
_FREE = ("sts",)  # anybody may ask who they are
_WRITES = {"Put": "PutItem", "Delete": "DeleteItem", "Update": "UpdateItem", "ConditionCheck": "ConditionCheckItem"}
_LAMBDA = (
    ("GET", r"account-settings/?", "GetAccountSettings"),
    ("GET", r"functions/(?P<name>[^/]+)", "GetFunction"),
    ("GET", r"functions/(?P<name>[^/]+)/concurrency", "GetFunctionConcurrency"),
    ("POST", r"functions/(?P<name>[^/]+)/invocations", "InvokeFunction"),
)


_ORDER = ("deploy", "token", "destroy")
_PASSING = {
    r"(stack/[\w-]+)/.*": r"\1/ID",
    r"(deploy/[a-z]+)-[0-9a-f]+\.": r"\1-DIGEST.",
    r"agent/[0-9a-f]{64}": "agent/DIGEST",
}


class Guard(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, documents: Sequence[Document]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.documents = documents
        self.of = ""  # the command that is called now
        self.calls: list[tuple[str, Call]] = []  # those that were allowed, each with its command
        self.refused: list[Call] = []

    def let(self, call: Call) -> bool:
        if allowed(self.documents, call):
            self.calls.append((self.of, call))
            return True
        self.refused.append(call)
        return False

    def seen(self) -> str:
        """A line for each different call, without what is another each time."""
        lines = dict.fromkeys(f"{of} {_lasting(str(call))}\n" for of, call in self.calls)
        return "".join(sorted(lines, key=lambda line: (_ORDER.index(line.split()[0]), line)))


@contextmanager
def on_guard(documents: Sequence[Document]) -> Iterator[Guard]:
    guard = Guard(documents)
    thread = threading.Thread(target=guard.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield guard
    finally:
        guard.shutdown()
        guard.server_close()
        thread.join()


def calls_of(method: str, url: str, headers: Message, body: bytes) -> Iterator[Call]:
    """What IAM is asked for a request. A request that isn't known here is asked for as `?`, which nothing allows."""
    signed = _SIGNED.search(headers.get("Authorization", ""))
    if signed is None or signed["service"] in _FREE:
        return
    service, parts = signed["service"], urlsplit(url)
    if service == "s3":
        yield from _of_s3(method, unquote(parts.path), parts.query, headers)
    elif service == "lambda":
        yield _of_lambda(method, unquote(parts.path))
    elif target := headers.get("X-Amz-Target"):
        yield from _of_json(service, target.rpartition(".")[2], json.loads(body))
    else:
        yield _of_query(service, {name: values[0] for name, values in parse_qs(body.decode()).items()})


def _lasting(call: str) -> str:
    for pattern, instead in _PASSING.items():
        call = re.sub(pattern, instead, call)
    return call


def arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{rest}"


def _of_s3(method: str, path: str, query: str, headers: Message) -> Iterator[Call]:
    bucket, _, key = path.strip("/").partition("/")
    if not key:
        yield Call("s3:ListBucket" if method == "GET" and "list-type" in query else "s3:?", f"arn:aws:s3:::{bucket}")
        return
    if source := unquote(headers.get("x-amz-copy-source", "")).strip("/"):
        yield Call("s3:GetObject", f"arn:aws:s3:::{source}")
    action = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}.get(method, "?")
    action = "PutObject" if method == "POST" and "upload" in query else action  # in parts
    yield Call(f"s3:{action}", f"arn:aws:s3:::{bucket}/{key}")


def _of_lambda(method: str, path: str) -> Call:
    rest = path.lstrip("/").partition("/")[2]  # without the API's version
    for of, pattern, action in _LAMBDA:
        if of == method and (found := re.fullmatch(pattern, rest)):
            name = found.groupdict().get("name")
            return Call(f"lambda:{action}", arn("lambda", f"function:{name}") if name else "*")
    return Call("lambda:?", path)


def _of_json(service: str, operation: str, body: Mapping[str, Any]) -> Iterator[Call]:
    if operation == "TransactWriteItems":
        for item in body["TransactItems"]:
            ((kind, asked),) = item.items()
            yield Call(f"dynamodb:{_WRITES[kind]}", arn("dynamodb", f"table/{asked['TableName']}"))
    elif service == "dynamodb":
        index = f"/index/{body['IndexName']}" if "IndexName" in body else ""
        tables = [body["TableName"]] if "TableName" in body else body["RequestItems"]
        yield from (Call(f"dynamodb:{operation}", arn("dynamodb", f"table/{each}{index}")) for each in tables)
    elif service == "ssm":
        for name in body.get("Names") or [body.get("Name", "/?")]:
            yield Call(f"ssm:{operation}", arn("ssm", f"parameter{name}"))
    else:
        yield Call(f"{service}:{operation}", "?")


def _of_query(service: str, body: Mapping[str, str]) -> Call:
    action = f"{service}:{body.get('Action', '?')}"
    name = body.get("StackName", "")
    if service == "cloudformation" and name:
        return Call(action, name if name.startswith("arn:") else arn(service, f"stack/{name}/any"))
    return Call(action, "*")  # of EC2 and of templates: AWS has no narrower resource for what is read there


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Guard

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        denied = [call for call in calls_of(self.command, self.path, self.headers, body) if not self.server.let(call)]
        status, headers, content = _refusal(denied[0]) if denied else self._forwarded(body)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("content-length", str(len(content)))
        with contextlib.suppress(ConnectionError):  # whoever called has gone
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = urlsplit(self.path)
        connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=120)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            path = target._replace(scheme="", netloc="").geturl() or "/"
            connection.request(self.command, path, body, headers)
            reply = connection.getresponse()
            dropped = _OWN if self.command != "HEAD" else tuple(name for name in _OWN if name != "content-length")
            return reply.status, [each for each in reply.getheaders() if each[0].lower() not in dropped], reply.read()
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: errors are in the response."""


def _refusal(call: Call) -> tuple[int, list[tuple[str, str]], bytes]:
    message = f"User is not authorized to perform: {call.action} on resource: {call.resource}"
    if call.action.startswith(("dynamodb:", "ssm:", "lambda:")):
        told = {"__type": "AccessDeniedException", "message": message}
        return 403, [("x-amzn-errortype", "AccessDeniedException")], json.dumps(told).encode()
    error = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>"
    wrapped = error if call.action.startswith("s3:") else f"<ErrorResponse>{error}</ErrorResponse>"
    return 403, [("content-type", "text/xml")], wrapped.encode()
