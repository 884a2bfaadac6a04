"""The table's calls, sent without most of botocore.

Nearly all that a warm function's request costs is its calls of the table, and botocore takes up to two milliseconds of
CPU for each. DynamoDB needs little of that: a call is one signed POST of JSON, and its answer is JSON in the very form
in which PynamoDB takes it. So botocore still serialises the body, finds the endpoint and the credentials, and raises
errors; `TableCalls` does the rest: it signs, sends and reads, in half the time. (`botocore.auth` takes ten times as
long to sign a call, and urllib3's pool twice as long to send it.)

It handles only the usual case, and leaves everything else to botocore: proxies, missing credentials, other signatures,
other operations. It doesn't retry either, because the store counts its tries itself: a missing response is one of
botocore's errors, and an error response is parsed by botocore.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import ssl
import time
from base64 import b64decode
from collections import defaultdict
from functools import cache, lru_cache
from hashlib import sha256
from http.client import HTTP_PORT, HTTPS_PORT, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson
from botocore.awsrequest import AWSResponse
from botocore.exceptions import HTTPClientError
from botocore.httpsession import get_cert_path
from botocore.parsers import create_parser
from botocore.utils import get_environ_proxies

EVENT = "before-call.dynamodb"
CALLS = {"GetItem", "BatchGetItem", "Query", "Scan", "PutItem", "DeleteItem", "TransactWriteItems"}
_UNSIGNED = {"user-agent", "x-amzn-trace-id"}  # may change in transit

Answer = tuple[int, dict[str, str], bytes]


def take_over(session: Any) -> None:
    """Handle the table's calls of all clients of this session, including those that PynamoDB creates later."""
    session.register(EVENT, TableCalls(session), unique_id=__name__)


class TableCalls:
    """An event handler for botocore: it returns the call's response, or None to let botocore make the call."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._idle: dict[tuple[str, str], list[socket.socket]] = defaultdict(list)  # connections, by host

    def __call__(self, *, model: Any, params: Any, request_signer: Any, context: Any, **_: Any) -> Any:
        url, config = urlsplit(params["url"]), context["client_config"]
        v4 = (context.get("auth_type") or config.signature_version) == "v4" and "signing" not in context
        if model.name not in CALLS or not v4 or url.path not in ("", "/") or url.query or _proxied(url):
            return None
        region, service = request_signer.region_name, request_signer.signing_name
        credentials = request_signer.get_auth_instance(service, region, "v4").credentials  # as of now: they rotate
        if credentials is None:
            return None
        headers = {name.lower(): value for name, value in params["headers"].items()} | {"host": url.netloc}
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        try:
            lines = signed(headers, params["body"], credentials, now, f"{region}/{service}")
            answer = self._send(url, lines, params["body"], config)
        except (OSError, HTTPException) as error:
            raise HTTPClientError(error=error) from error
        return AWSResponse(params["url"], answer[0], answer[1], None), parsed(model, answer)

    def _send(self, url: SplitResult, headers: dict[str, str], body: bytes, config: Any) -> Answer:
        idle = self._idle[url.scheme, url.netloc]
        connection = _alive(idle) or self._opened(url, config.connect_timeout)
        try:
            connection.settimeout(config.read_timeout)
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            connection.sendall(f"POST / HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
            answer = HTTPResponse(connection, method="POST")
            answer.begin()
            found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            idle.append(connection)
        return found

    def _opened(self, url: SplitResult, timeout: float) -> socket.socket:
        host, secure = url.hostname or "", url.scheme == "https"
        connection = socket.create_connection((host, url.port or (HTTPS_PORT if secure else HTTP_PORT)), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not secure:
            return connection
        bundle = self._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        return _tls(bundle or get_cert_path(True)).wrap_socket(connection, server_hostname=host)


@cache
def _proxied(url: SplitResult) -> bool:
    return url.scheme in get_environ_proxies(url.geturl())


@cache
def _tls(authorities: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authorities)


def _alive(idle: list[socket.socket]) -> socket.socket | None:
    """The latest idle connection that isn't readable: a readable one has been closed by the other side."""
    while True:
        try:
            connection, poll = idle.pop(), select.poll()
        except IndexError:
            return None
        poll.register(connection, select.POLLIN)
        if not poll.poll(0):
            return connection
        connection.close()


def signed(headers: dict[str, str], body: bytes, credentials: Any, now: str, where: str) -> dict[str, str]:
    """The headers of a POST to `/` with its AWS signature, version 4. `where`: the region and the service."""
    headers = {**headers, "x-amz-date": now}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names, scope = sorted(headers.keys() - _UNSIGNED), f"{now[:8]}/{where}/aws4_request"
    listed, lines = ";".join(names), "".join(f"{name}:{headers[name]}\n" for name in names)
    request = f"POST\n/\n\n{lines}\n{listed}\n{sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    signature = hmac.digest(_key(credentials.secret_key, scope), text.encode(), "sha256").hex()
    value = f"Credential={credentials.access_key}/{scope}, SignedHeaders={listed}, Signature={signature}"
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {value}"}


@lru_cache(maxsize=4)  # a new key each day, and with new credentials
def _key(secret: str, scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def parsed(model: Any, answer: Answer) -> Any:
    """The parsed response, as botocore returns it but without checking each value against the service's description.
    For an error: its code and message, and the fields of its own description, such as cancellation reasons."""
    status, headers, body = answer
    if status == 200:
        found = orjson.loads(body or b"{}")
        if b'"B' in body:
            _decode(found)
        return found
    service, response = model.service_model, {"status_code": status, "headers": headers, "body": body, "context": {}}
    parser = create_parser(service.resolved_protocol)
    found = parser.parse(response, model.output_shape)
    shape = service.shape_for_error_code(found["Error"]["Code"])
    return found if shape is None else {**found, **parser.parse(response, shape)}


def _decode(value: Any) -> None:
    """Decode bytes and sets of bytes, the only values that JSON can't represent directly."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if key == "B" and isinstance(each, str):
            value[key] = b64decode(each)
        elif key == "BS" and isinstance(each, list) and all(isinstance(one, str) for one in each):
            value[key] = list(map(b64decode, each))
        elif isinstance(each, dict | list):
            _decode(each)
