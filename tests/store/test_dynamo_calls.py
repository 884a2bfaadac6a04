"""The table's calls as they are sent without most of botocore: what AWS is sent, and what is made of its answers, is
what botocore's own way would send and make. `test_dynamo_real.py` has the store itself on them."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, HTTPClientError, NoCredentialsError
from botocore.session import Session

from chalicelib.domain.keys import Key
from chalicelib.store import dynamo_calls
from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.dynamo_calls import EVENT, signed, take_over
from tests.wire.far import authority

REGION, URL = "eu-central-1", "https://dynamodb.eu-central-1.amazonaws.com/"
OWN = "amz-sdk-invocation-id"  # a header that botocore adds to the calls that it sends itself
Reply = tuple[int, bytes]
NOTHING: Reply = (200, b"{}")


@dataclass
class Table:
    """DynamoDB's side, with the answers that it will give."""

    url: str = ""
    answers: list[Reply] = field(default_factory=list)
    got: list[dict[str, str]] = field(default_factory=list)  # the headers of each request, and its target
    connections: int = 0
    then: str = "keep"  # what becomes of a connection after an answer: keep, say (that it ends), or drop
    silent: bool = False
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))  # once for each connection


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    table: Table

    def setup(self) -> None:
        super().setup()
        self.table.connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.table.got.append({**headers, "target": self.path, "body": body.decode()})
        if self.table.silent:
            self.rfile.read(1)  # until the caller has had enough
            self.close_connection = True
            return
        status, answer = self.table.answers.pop(0) if self.table.answers else NOTHING
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        if self.table.then == "say":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer)
        self.close_connection = self.close_connection or self.table.then == "drop"

    def log_message(self, format: str, *args: object) -> None:
        """Silent: a test that fails prints what it got."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    table: Table

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.table.ended.release()


Serve = Callable[..., Table]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a table's server; with `tls`, the files of its certificate and key."""
    started: list[tuple[Server, threading.Thread]] = []

    def start(tls: tuple[Path, Path] | None = None) -> Table:
        table = Table()
        server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"table": table}))
        server.table = table
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        table.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        started.append((server, thread))
        return table

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this process nothing counts that a test doesn't set."""
    for name in ("http_proxy", "https_proxy", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@cache
def descriptions() -> Any:
    """Of services, which take half a second to read."""
    return Session().get_component("data_loader")


def client(table: Table | str, *, direct: bool = True, session: Session | None = None, **config: Any) -> Any:
    """Of a session of its own, if none is given."""
    made = session or Session()
    made.register_component("data_loader", descriptions())
    if session is None:
        made.set_credentials("AKID", "secret", "session-token")
    if direct:
        take_over(made)
    else:  # where a store has been made, every session has it
        made.unregister(EVENT, unique_id=dynamo_calls.__name__)
    url = table if isinstance(table, str) else table.url
    once = Config(retries={"total_max_attempts": 1}, user_agent="tests", **config)
    return made.create_client("dynamodb", REGION, endpoint_url=url, config=once)


def get(made: Any) -> Any:
    return made.get_item(TableName="table", Key={"pk": {"S": "ü"}})


# --- what is sent


@pytest.mark.parametrize("token", [None, "a/session+token=="])
def test_a_request_is_signed_as_botocore_signs_it(token: str | None) -> None:
    credentials, now, body = Credentials("AKID", "sec/ret", token), "20261126T120000Z", '{"a":"ü"}'.encode()
    headers = {"host": URL.split("/")[2], "content-type": "application/x-amz-json-1.0"}
    headers |= {"x-amz-target": "DynamoDB_20120810.GetItem", "user-agent": "ours", "x-amzn-trace-id": "Root=1-2"}
    found = signed(headers, body, credentials, now, f"{REGION}/dynamodb")
    sent = {name: value for name, value in found.items() if name != "authorization"}
    signer, request = SigV4Auth(credentials, "dynamodb", REGION), AWSRequest("POST", URL, sent, body)
    request.context["timestamp"] = now
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert found["authorization"].rpartition("=")[2] == signer.signature(text, request)
    listed = signer.signed_headers(signer.headers_to_sign(request))
    assert f"Credential={signer.scope(request)}, SignedHeaders={listed}," in found["authorization"]
    assert found.get("x-amz-security-token") == token


@pytest.mark.slow
def test_a_request_says_what_botocores_own_would(serve: Serve) -> None:
    table = serve()
    get(client(table))
    get(client(table, direct=False))
    direct, reference = table.got
    varying = {"authorization", "x-amz-date", "user-agent"}
    botocores = {OWN, "amz-sdk-request", "accept-encoding"}
    assert (
        reference["user-agent"].split()[0] == direct["user-agent"]
    )  # Chalice and Powertools add their names to botocore's
    assert {name: direct[name] for name in direct.keys() - varying} == {
        name: reference[name] for name in reference.keys() - varying - botocores
    }


def test_whoever_has_new_credentials_signs_with_them(serve: Serve) -> None:
    table, session = serve(), Session()
    session.set_credentials("FIRST", "secret")
    made = client(table, session=session)
    get(made)
    session.get_credentials().access_key = "SECOND"
    get(made)
    assert [each["authorization"].split("/")[0].split("=")[1] for each in table.got] == ["FIRST", "SECOND"]


# --- connections


@pytest.mark.parametrize(("then", "connections"), [("keep", 1), ("say", 3), ("drop", 3)])
def test_a_connection_is_kept_for_as_long_as_the_other_side_keeps_it(serve: Serve, then: str, connections: int) -> None:
    table = serve()
    table.then = then
    made = client(table)
    for _ in range(3):
        get(made)
        if then == "drop":
            assert table.ended.acquire(timeout=120)
    assert table.connections == connections and not any(OWN in each for each in table.got)


def test_each_host_has_connections_of_its_own(serve: Serve) -> None:
    tables, session = [serve(), serve()], Session()
    session.set_credentials("AKID", "secret")
    clients = [client(table, session=session) for table in tables]
    for made in (*clients, *clients):
        get(made)
    assert [table.connections for table in tables] == [1, 1] and [len(table.got) for table in tables] == [2, 2]


def test_an_answer_that_doesnt_come_is_an_error_of_botocores(serve: Serve) -> None:
    table = serve()
    table.silent = True
    with pytest.raises(HTTPClientError, match="timed out"):
        get(client(table, read_timeout=0.05))
    with pytest.raises(HTTPClientError, match="refused"):
        get(client("http://127.0.0.1:9"))


@pytest.mark.slow
def test_the_table_is_believed_by_the_authorities_of_the_environment(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, private = authority(tmp_path)
    table = serve((trusted, private))
    with pytest.raises(HTTPClientError, match="CERTIFICATE_VERIFY_FAILED"):
        get(client(table))
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(trusted))
        get(client(table))
        monkeypatch.delenv(name)
    assert len(table.got) == 2 and not any(OWN in each for each in table.got)


# --- what is left to botocore


def test_a_proxy_is_left_to_botocore(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve()
    monkeypatch.setenv("http_proxy", proxy.url)
    get(client("http://table.invalid"))
    (got,) = proxy.got
    assert got["target"] == "http://table.invalid/" and OWN in got


def test_other_signatures_operations_and_paths_are_left_to_botocore(serve: Serve) -> None:
    table = serve()
    get(client(table, signature_version=UNSIGNED))
    client(table).list_tables()
    get(client(f"{table.url}/below"))
    assert len(table.got) == 3 and all(OWN in each for each in table.got)


def test_a_call_without_credentials_is_left_to_botocore(serve: Serve) -> None:
    table = serve()
    with pytest.raises(NoCredentialsError):
        get(client(table, session=Session()))
    assert table.got == []


@pytest.mark.slow
def test_clients_that_pynamodb_makes_anew_come_here_too(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    table = serve()
    store = DynamoStore("table", region=REGION, endpoint=table.url)
    assert store.get(Key("a", "b")) is None
    store._item._get_connection().connection._client = None
    assert store.get(Key("a", "b")) is None
    assert len(table.got) == 2 and not any(OWN in each for each in table.got)


# --- what is made of an answer

BYTES = {"B": "AAEC"}
ITEM = {"pk": {"S": '"B":'}, "packed": BYTES, "n": {"N": "1.50"}, "B": {"S": "eA=="}, "BS": {"L": [{"S": "eA=="}]}}
DEEP = {"m": {"M": {"l": {"L": [BYTES, {"NULL": True}]}}}, "set": {"BS": ["AAEC", "eA=="]}, "no": {"BOOL": False}}
READ = {"Responses": {"table": [ITEM, DEEP], "B": [ITEM]}, "UnprocessedKeys": {"table": {"Keys": [{"pk": BYTES}]}}}
CANCELLED = {
    "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
    "Message": "no",
    "CancellationReasons": [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Message": "no", "Item": ITEM}],
}
FAILED = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "message": "no", "Item": ITEM}


def parsed(made: Any) -> Any:
    try:
        found = made.batch_get_item(RequestItems={"table": {"Keys": [{"pk": {"S": "a"}}]}})
    except ClientError as error:
        found = error.response
    return {name: value for name, value in found.items() if name != "ResponseMetadata"}


@pytest.mark.parametrize(
    "answer",
    [
        NOTHING,
        (200, b""),
        (200, b'{"Responses": {"BS": [], "B": []}}'),
        (200, json.dumps(READ).encode()),
        (200, b'{"Responses": {"table": [{"t": {"S": "\\u00fc \\"B\\""}}]}}'),
        (400, json.dumps(FAILED).encode()),
        (400, json.dumps(CANCELLED).encode()),
        (400, b'{"__type": "ThrottlingException", "message": "slowly"}'),
        (500, b""),
        (503, b"<html><body>Service Unavailable</body></html>"),
    ],
)
def test_an_answer_means_what_botocores_parser_makes_of_it(serve: Serve, answer: Reply) -> None:
    table = serve()
    table.answers = [answer, answer]
    direct, botocores = parsed(client(table)), parsed(client(table, direct=False))
    assert direct == botocores
    assert [OWN in each for each in table.got] == [False, True]
