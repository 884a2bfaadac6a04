"""Answers that no API server gives, and connections without one."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import yaml

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from chalicelib.backends.kubernetes.kubeconfig import clusters
from chalicelib.backends.spi import IncompleteOffers
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import (
    BackendError,
    Bug,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.fakes.script import Fault
from tests.backends.kubernetes.bodies import node
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.faults import unavailable
from tests.backends.kubernetes.provider import config_of, populate

TOKEN = "a-token-that-nobody-may-see"
Answer = Callable[[http.server.BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self)
            self.send_response(status)
            for name, text in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def config_for(server: str) -> KubernetesBackendConfig:
    kubeconfig = {
        "current-context": "odd",
        "contexts": [{"name": "odd", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    raw = {"type": "kubernetes", "kubeconfig": {"data": yaml.safe_dump(kubeconfig)}}
    return KubernetesBackendConfig.model_validate(raw)


def backend(server: str, clock: Clock) -> KubernetesBackend:
    return KubernetesBackend(config_for(server), now=clock.now)


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "text"),
    [
        (200, {}, b"<html>Sign in</html>", Transient, "no JSON"),
        (200, {}, b"", Transient, "no JSON"),
        (200, {}, b"[]", Transient, "no JSON"),
        (502, {}, b"Bad gateway", Transient, "502"),
        (401, {}, b"no", InvalidCredentials, "refused the credentials"),
        (429, {"Retry-After": "7"}, b'{"reason": "TooManyRequests"}', Throttled, "TooManyRequests"),
        (400, {}, b'{"reason": "BadRequest", "message": "your token a-token-that-nobody-may-see"}', Unfit, "hidden"),
        (302, {"Location": "http://127.0.0.1:9/elsewhere"}, b"", Transient, "no JSON"),
        (404, {}, b"404 page not found", Transient, "404"),
        (404, {}, b'{"reason": "NotFound", "message": "no route"}', Transient, "no route"),
        (410, {}, b'{"message": "moved"}', Transient, "moved"),
        (404, {}, b'{"kind": "Status", "reason": "NotFound", "message": "not found"}', Transient, "not found"),
        (200, {}, b'{"items": []}', Transient, "no list"),
    ],
)
def test_an_answer_that_isnt_one_is_no_success(
    clock: Clock, status: int, headers: dict[str, str], body: bytes, kind: type[BackendError], text: str
) -> None:
    with answering(lambda request: (status, headers, body)) as server:
        found = backend(server, clock)
        with pytest.raises(kind, match=text) as refused:
            list(found.list_owned())
        assert TOKEN not in str(refused.value) and "Sign in" not in str(refused.value)
        if isinstance(refused.value, Throttled):
            assert refused.value.retry_after == 7
        found.close()


@pytest.mark.parametrize("answer", [b"404 page not found", b'{"message": "no Route matched", "reason": "NotFound"}'])
def test_a_404_of_something_in_between_proves_nothing(clock: Clock, answer: bytes) -> None:
    with answering(lambda request: (404, {}, answer)) as server:
        found = backend(server, clock)
        with pytest.raises(BackendError) as refused:
            found._client.call("odd", "GET", ("api", "v1", "namespaces", "n", "pods", "one"))
        assert type(refused.value) is Transient
        found.close()
    status = b'{"kind": "Status", "reason": "NotFound", "message": "pods \\"one\\" not found"}'
    with answering(lambda request: (404, {}, status)) as server:
        found = backend(server, clock)
        with pytest.raises(Gone):
            found._client.call("odd", "GET", ("api", "v1", "namespaces", "n", "pods", "one"))
        found.close()


def test_the_token_is_sent_and_so_is_the_query(clock: Clock) -> None:
    seen: list[tuple[str, str]] = []

    def answer(request: http.server.BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        seen.append((request.path, request.headers["Authorization"]))
        return 200, {}, b'{"kind": "PodList", "items": []}'

    with answering(answer) as server:
        found = backend(server, clock)
        assert list(found.list_owned("i-1")) == []
        found.close()
    path = "/api/v1/namespaces/default/pods?labelSelector=dstack-instance%3Di-1&limit=500"
    assert seen == [(path, f"Bearer {TOKEN}")]


def test_nobody_who_answers_is_an_unknown_outcome(clock: Clock) -> None:
    found = backend("http://127.0.0.1:9", clock)
    with pytest.raises(Transient, match="GET /api/v1/namespaces/default/pods in odd has no answer") as refused:
        list(found.list_owned())
    assert TOKEN not in str(refused.value)
    found.close()


def test_a_path_cant_lead_elsewhere(clock: Clock) -> None:
    found = backend("http://127.0.0.1:9", clock)
    for part in ("", ".", ".."):
        with pytest.raises(Bug):
            found._client.call("odd", "GET", ("api", "v1", part))
    found.close()


def test_a_name_that_leads_to_this_machine_is_refused_before_anything_is_sent(clock: Clock) -> None:
    """Such as one that resolves to a loopback address, or to the metadata service's; written as an address, only a
    global admin can have stored it."""
    paths: list[str] = []

    def answer(request: http.server.BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        paths.append(request.path)
        return 200, {}, b'{"kind": "PodList", "items": []}'

    with answering(answer) as server:
        (allowed,) = clusters(config_for(server))
        assert allowed.may_be_local
        for local, calls in ((False, 0), (True, 1)):
            found = Clusters([replace(allowed, may_be_local=local)], clock.now)
            try:
                list(found.listed("odd", ("api", "v1", "pods")))
            except InvalidCredentials as refused:
                assert not local and "127.0.0.1 leads to the control plane's own machine. If that is meant" in str(
                    refused
                )
            assert len(paths) == calls
            found.close()
    (far,) = clusters(config_for("https://cluster.example:6443"))
    assert not far.may_be_local


def test_nodes_whose_devices_dra_manages_are_named_in_a_plan(clock: Clock) -> None:
    slices = [{"spec": {"nodeName": "a", "driver": "gpu.nvidia.com"}}, {"spec": {"allNodes": True, "driver": "net"}}]
    lists = {"/api/v1/nodes": [node("a")], "/apis/resource.k8s.io/v1/resourceslices": slices}

    def answer(request: http.server.BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        items = lists.get(request.path.partition("?")[0], [])
        return 200, {}, json.dumps({"kind": "List", "items": items}).encode()

    with answering(answer) as server:
        found = backend(server, clock)
        request = OfferRequest(resources=ResourcesSpec.model_validate({"gpu": "H100"}))
        with pytest.raises(InsufficientCapacity, match=r"odd: a \(only devices of gpu\.nvidia\.com, a driver of DRA"):
            found.offers_for(request)
        found.close()


def test_a_context_that_doesnt_answer_is_named_beside_the_offers_of_the_others(clock: Clock) -> None:
    clusters = [Cluster(clock.now, name) for name in ("east", "west")]
    with ExitStack() as stack:
        for cluster in clusters:
            populate(cluster)
            stack.enter_context(cluster.serving())
        found = KubernetesBackend(config_of(clusters), now=clock.now)
        request = OfferRequest(resources=ResourcesSpec.model_validate({"cpu": "1", "disk": "1GB.."}))
        assert not isinstance(found.offers_for(request), IncompleteOffers)
        clusters[1].faults.script.faults.append(Fault("list nodes", unavailable(), times=100))
        offers = found.offers_for(request)
        assert {offer.region for offer in offers} == {"east"} and isinstance(offers, IncompleteOffers)
        assert offers.missing.startswith("west: GET /api/v1/nodes in west: ServiceUnavailable")
        found.close()
