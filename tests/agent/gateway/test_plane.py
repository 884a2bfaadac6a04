"""What a gateway's program says to the control plane, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.gateway.plane import WAIT, PlaneClient
from chalicelib.agent.gateway.worker_requests import TokenVerdict
from chalicelib.agent.kernel.link import LinkError
from chalicelib.domain.tenants import hash_token
from chalicelib.usecases.services.service_tokens import LONGEST, PREFIX, claims_of
from tests.agent.played_plane import Answer, Plane


@pytest.fixture
def plane() -> Iterator[Plane]:
    with Plane().serving() as plane:
        yield plane


@pytest.fixture
def client(plane: Plane, tmp_path: Path) -> Iterator[PlaneClient]:
    (tmp_path / "server").write_text(plane.url + "\n")
    (tmp_path / "credential").write_text("i.secret\n")
    client = PlaneClient(str(tmp_path))
    yield client
    while not client._links.empty():
        client._links.get().close()


def last_request(plane: Plane) -> tuple[str, str, str, Any]:
    """Method, path, credential and body of the last request."""
    _, method, path, headers, data = plane.calls[-1]
    return method, path, headers["Authorization"], json.loads(data or b"null")


def test_what_is_to_be_served_is_asked_for_by_what_is_known(plane: Plane, client: PlaneClient) -> None:
    plane.answers = [Answer(body=b'{"version": "2"}'), Answer(204, b"")]
    assert [client.configuration("a/b&c"), client.configuration("2")] == [{"version": "2"}, {}]
    assert last_request(plane) == ("GET", f"/agent/gateway?since=2&wait={WAIT}", "Bearer i.secret", None)
    assert plane.calls[0][2] == f"/agent/gateway?since=a%2Fb%26c&wait={WAIT}" and plane.connections == 1


def test_what_was_counted_and_which_streams_are_wanted_is_told(
    plane: Plane, client: PlaneClient, tmp_path: Path
) -> None:
    client.report([{"run": "r"}])
    assert last_request(plane) == ("POST", "/agent/gateway/traffic", "Bearer i.secret", {"reports": [{"run": "r"}]})
    (tmp_path / "credential").write_text("i.newer\n")
    client.streams([{"id": "s"}], "pin")
    body = {"streams": [{"id": "s"}], "pin": "pin"}
    assert last_request(plane) == ("POST", "/agent/gateway/streams", "Bearer i.newer", body)
    plane.answers = [Answer(500)]
    with pytest.raises(LinkError):
        client.report([])


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Answer(body=b'{"allowed": true}'), TokenVerdict(200)),
        (Answer(body=b'{"allowed": true, "ends_in": 7.5}'), TokenVerdict(200, 7.5)),
        (Answer(body=b'{"allowed": true, "ends_in": 0}'), TokenVerdict(200, 0.0)),
        (Answer(body=b'{"allowed": false}'), TokenVerdict(403)),
        (Answer(body=b'{"allowed": "yes"}'), TokenVerdict(403)),
        (Answer(body=b"{}"), TokenVerdict(403)),
        (Answer(500), TokenVerdict(503)),
        (Answer(status=0), TokenVerdict(503)),
    ],
)
def test_who_may_call_is_asked_and_503_means_that_nobody_can_say(
    plane: Plane, client: PlaneClient, answer: Answer, verdict: TokenVerdict
) -> None:
    plane.answers = [answer]
    assert client.rights("token", "project", "run") == verdict
    body = {"token_hash": hash_token("token"), "claims": "", "project": "project", "run": "run"}
    assert last_request(plane) == ("POST", "/agent/gateway/rights", "Bearer i.secret", body)


def test_no_token_leaves_the_gateway(plane: Plane, client: PlaneClient) -> None:
    token = f"{PREFIX}claims.signature"
    client.rights(token, "project", "run")
    body = last_request(plane)[3]
    assert (body["token_hash"], body["claims"]) == (hash_token(token), claims_of(token))
    assert "signature" not in json.dumps(body)


def test_claims_that_are_too_long_are_nobodys(plane: Plane, client: PlaneClient) -> None:
    longest = PREFIX + "a" * (LONGEST - len(PREFIX))
    assert client.rights(f"{longest}a.signature", "project", "run") == TokenVerdict(403)
    assert plane.calls == []
    client.rights(f"{longest}.signature", "project", "run")
    assert last_request(plane)[3]["claims"] == longest
