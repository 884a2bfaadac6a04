"""A cluster on the test's clock, and its official client."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.backends.clock import Clock
from tests.backends.kubernetes.fake.cluster import TOKEN, Cluster


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> Iterator[Cluster]:
    made = Cluster(clock.now)
    made.add_node("one")
    with made.serving():
        yield made


@pytest.fixture
def core(cluster: Cluster) -> Iterator[Any]:
    """The official client's CoreV1Api, as an administrator."""
    from kubernetes import client, config  # slow to import

    with config.new_client_from_config_dict(cluster.kubeconfig()) as api:
        yield client.CoreV1Api(api)


@pytest.fixture
def echo() -> Iterator[int]:
    """A port here that answers one connection with what it's sent."""

    def serve() -> None:
        with contextlib.suppress(OSError):  # its test has failed
            sock, _ = listener.accept()
            with sock:
                while part := sock.recv(65536):
                    sock.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


Wire = Callable[..., tuple[int, Any, dict[str, str]]]


@pytest.fixture
def wire(cluster: Cluster) -> Wire:
    """Requests as they are written, which the official client would refuse to send: status, body, headers."""
    (given,) = cluster.kubeconfig()["clusters"]
    authority = base64.b64decode(given["cluster"]["certificate-authority-data"]).decode()
    context, url = ssl.create_default_context(cadata=authority), urlsplit(given["cluster"]["server"])

    def send(
        method: str, path: str, body: Any = None, kind: str = "application/json", token: str = TOKEN
    ) -> tuple[int, Any, dict[str, str]]:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        with closing(http.client.HTTPSConnection(str(url.hostname), url.port, context=context)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, json.loads(content) if found["content-type"] == "application/json" else content, found

    return send
