"""One request after the other on a kept connection, and what is made of answers that are none."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.agent.kernel.link import Link, LinkError
from tests.agent.played_plane import Answer, Plane


@pytest.fixture
def plane() -> Iterator[Plane]:
    with Plane().serving() as plane:
        yield plane


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link()
    yield link
    link.close()


def sync(link: Link, base: str, **body: Any) -> dict[str, Any]:
    return link.sync(base, body, "secret", 1.0)


def test_a_message_is_json_with_the_credential(plane: Plane, link: Link) -> None:
    plane.answers = [Answer(body=b'{"ok": [1]}')]
    assert sync(link, plane.url + "/base/", seq=1, text="ä") == {"ok": [1]}
    (_, method, path, headers, data), *_ = plane.calls
    assert (method, path) == ("POST", "/base/agent/sync")
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer secret", "application/json")
    assert data == b'{"seq":1,"text":"\\u00e4"}'


def test_a_connection_is_kept_and_a_new_address_gets_its_own(plane: Plane, link: Link) -> None:
    sync(link, plane.url)
    sync(link, plane.url)
    assert plane.connections == 1
    sync(link, plane.url.replace("127.0.0.1", "localhost"))
    assert plane.connections == 2
    link.close()
    link.close()
    sync(link, plane.url)
    assert plane.connections == 3


@pytest.mark.parametrize(
    ("address", "host"),
    [("http://plane.test:443", "plane.test:443"), ("http://plane.test:80", "plane.test"), ("http://a:99", "a:99")],
)
def test_the_server_hears_by_which_name_it_is_called(plane: Plane, address: str, host: str) -> None:
    link = Link(lambda: f"127.0.0.1:{plane.server.server_port}")
    sync(link, address)
    link.close()
    assert plane.calls[0][3]["Host"] == host


def test_a_kept_connection_that_was_closed_costs_nothing(plane: Plane, link: Link) -> None:
    plane.answers = [Answer(hangs_up=True), Answer(body=b'{"second": 1}')]
    sync(link, plane.url)
    assert sync(link, plane.url) == {"second": 1}
    assert plane.connections == 2


def test_a_fresh_connection_that_breaks_isnt_tried_again(plane: Plane, link: Link) -> None:
    plane.answers = [Answer(status=0)]
    with pytest.raises(LinkError, match=plane.url) as caught:
        sync(link, plane.url)
    assert (caught.value.problem, caught.value.retry_after, len(plane.calls)) == ("network", 0.0, 1)


def test_a_kept_connection_that_breaks_is_tried_once_more_only(plane: Plane, link: Link) -> None:
    plane.answers = [Answer(), Answer(status=0), Answer(status=0), Answer()]
    sync(link, plane.url)
    with pytest.raises(LinkError):
        sync(link, plane.url)
    assert len(plane.calls) == 3


@pytest.mark.parametrize("body", [b"[]", b"3", b"no json", b""])
def test_an_answer_that_is_no_object_is_none(plane: Plane, link: Link, body: bytes) -> None:
    plane.answers = [Answer(body=body)]
    with pytest.raises(LinkError, match="isn't a JSON object") as caught:
        sync(link, plane.url)
    assert caught.value.problem == "network"


@pytest.mark.parametrize(
    ("status", "headers", "problem", "after"),
    [
        (401, {}, "refused", 0.0),
        (403, {}, "refused", 0.0),
        (413, {}, "unacceptable", 0.0),
        (422, {}, "unacceptable", 0.0),
        (400, {}, "network", 0.0),
        (402, {}, "network", 0.0),
        (201, {}, "network", 0.0),
        (503, {"Retry-After": "17"}, "network", 17.0),
        (503, {"Retry-After": "Wed, 21 Oct"}, "network", 0.0),
    ],
)
def test_an_unwelcome_answer(
    plane: Plane, link: Link, status: int, headers: dict[str, str], problem: str, after: float
) -> None:
    plane.answers = [Answer(status, b"w" * 400, headers)] * 2
    with pytest.raises(LinkError) as caught:
        sync(link, plane.url)
    assert (caught.value.problem, caught.value.retry_after) == (problem, after)
    assert str(caught.value) == f"HTTP {status} " + "w" * 300
    with pytest.raises(LinkError, match=f"HTTP {status}"):
        link.fetch(plane.url, "/agent/files/1", "secret", io.BytesIO())
    assert json.loads(plane.calls[0][4]) == {}


def test_an_archive_arrives_as_it_is(plane: Plane, link: Link) -> None:
    plane.answers = [Answer(body=b"\x00\xff" * 100_000)]
    out = io.BytesIO()
    link.fetch(plane.url, "/agent/files/1", "secret", out)
    assert out.getvalue() == b"\x00\xff" * 100_000
    _, method, path, headers, _ = plane.calls[0]
    assert (method, path) == ("GET", "/agent/files/1")
    assert (headers["Authorization"], headers["Accept"]) == ("Bearer secret", "application/octet-stream")


def test_an_archive_that_breaks_off_isnt_taken_for_whole(plane: Plane, link: Link) -> None:
    plane.answers = [Answer(body=b"half", length=1000)]
    with pytest.raises(LinkError, match=f"{plane.url} closed the connection during /agent/files/1: ") as caught:
        link.fetch(plane.url, "/agent/files/1", "secret", io.BytesIO())
    assert caught.value.problem == "network"


class Full(io.BytesIO):
    def write(self, data: Any) -> int:
        raise OSError(28, "No space left on device", "/full/archive")


def test_a_full_disk_isnt_taken_for_the_network(plane: Plane, link: Link) -> None:
    plane.answers = [Answer(body=b"x")]
    with pytest.raises(OSError, match="No space left"):
        link.fetch(plane.url, "/agent/files/1", "secret", Full())


@pytest.mark.parametrize("base", ["ftp://host", "host:80", "http://", "host"])
def test_an_address_that_is_none_is_explained(link: Link, base: str) -> None:
    with pytest.raises(LinkError, match=f"must look like https://host:port, not '{base}'") as caught:
        sync(link, base)
    assert caught.value.problem == "network"


def test_nobody_there_is_the_network(link: Link) -> None:
    with pytest.raises(LinkError, match=r"http://127\.0\.0\.1:9: ") as caught:
        sync(link, "http://127.0.0.1:9")
    assert caught.value.problem == "network"
