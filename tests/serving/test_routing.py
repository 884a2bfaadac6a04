"""Which service a path or a host is of, and what can't be said in either."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.serving import headers as heads
from chalicelib.serving.headers import Origin, back, onward
from chalicelib.serving.routing import by_host, by_path, climbs, own_address, through_router

ORIGIN = Origin("10.0.0.1", "https", "app.main.localhost", "", "id-1")


def test_a_path_is_a_project_a_run_and_the_rest() -> None:
    place = by_path(b"/proxy/services/main/app/x//y?")
    assert place is not None
    assert (place.project, place.run, place.path) == ("main", "app", b"/x//y?")
    assert (place.full_path, place.prefix) == (b"/proxy/services/main/app/x//y?", "/proxy/services/main/app")


def test_without_its_last_slash_nothing_is_left() -> None:
    place = by_path(b"/proxy/services/main/app")
    assert place is not None and place.path == b""


@pytest.mark.parametrize(
    "path",
    [b"/", b"/proxy/services/", b"/proxy/services/main", b"/proxy/services/main/", b"/proxy/services//app/",
     b"/proxy/services/ma%69n/app/", b"/proxy/services/../app/", b"/proxy/models/main/x", b"/Proxy/services/main/app/"],
)  # fmt: skip
def test_other_paths_are_of_no_service(path: bytes) -> None:
    assert by_path(path) is None


@pytest.mark.parametrize("host", ["app.main.localhost", "APP.Main.localhost:3000", "app.main.localhost."])
def test_a_host_is_a_run_and_a_project(host: str) -> None:
    place = by_host(host, "localhost", b"/x")
    assert place is not None
    assert (place.project, place.run, place.path, place.prefix) == ("main", "app", b"/x", "")


@pytest.mark.parametrize(
    "host",
    ["", "localhost", "localhost:3000", "main.localhost", "a.app.main.localhost", "app.main.localhost.evil.com",
     "app.mainlocalhost", "app..localhost", ".main.localhost", "127.0.0.1", "[::1]:3000", "app.main.example.com"],
)  # fmt: skip
def test_other_hosts_are_of_no_service(host: str) -> None:
    assert by_host(host, "localhost", b"/") is None


def test_a_domain_may_have_several_labels() -> None:
    assert by_host("app.main.svc.example.com", "svc.example.com", b"/") is not None
    assert by_host("app.main.example.com", "svc.example.com", b"/") is None


SLASH = st.sampled_from([b"/", b"\\", b"%2f", b"%2F", b"%5c", b"%5C"])
DOTS = st.sampled_from([b".", b"..", b"%2e", b".%2E", b"%2e.", b"%2E%2e"])
PLAIN = st.sampled_from([b"a", b"a..b", b"...", b".well-known", b"x.", b"%20"])


@given(before=st.lists(PLAIN, max_size=3), slash=SLASH, dots=DOTS, after=st.sampled_from([b"", b"/b", b"%2fb", b";x"]))
def test_a_segment_of_dots_is_seen_in_every_spelling(
    before: list[bytes], slash: bytes, dots: bytes, after: bytes
) -> None:
    assert climbs(b"/" + b"/".join(before) + slash + dots + after)


@given(st.lists(PLAIN, max_size=5))
def test_other_dots_are_left_alone(segments: list[bytes]) -> None:
    assert not climbs(b"/" + b"/".join(segments))


def test_a_router_shows_what_clients_of_models_need() -> None:
    assert all(
        map(through_router, (b"/v1/models", b"/v1/chat/completions", b"/generate", b"/chat/completions", b"/health"))
    )
    assert not any(
        map(through_router, (b"/", b"/v1", b"/v1/", b"/workers", b"/healthz", b"/generate_stream", b"//v1/x"))
    )


NAMES = st.sampled_from(
    [
        b"connection",
        b"te",
        b"x-a",
        b"x-b",
        b"cookie",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"authorization",
        b"host",
    ]
)
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b"x-a", b"close, x-b", b"value", b"host", b""])), max_size=8)


@given(headers=HEADERS, judged=st.booleans())
def test_what_goes_on_has_nothing_of_this_hop_and_all_of_the_rest_in_order(
    headers: list[tuple[bytes, bytes]], judged: bool
) -> None:
    gone = {b"connection", b"te", b"x-forwarded-for", b"x-forwarded-host", *heads.listed(headers)}
    gone |= {b"authorization"} if judged else set()
    got = onward(headers, ORIGIN, judged=judged)
    added = [each for each in got if each[0].startswith(b"x-forwarded") or each[0] == b"x-request-id"]
    assert [each for each in got if each not in added] == [each for each in headers if each[0] not in gone]
    claimed = dict(added)
    assert claimed[b"x-forwarded-for"].split(b", ")[-1] == b"10.0.0.1"
    assert (claimed[b"x-forwarded-host"], claimed[b"x-forwarded-proto"]) == (b"app.main.localhost", b"https")
    assert b"host" not in heads.listed(headers)


def test_a_response_says_once_whose_it_is() -> None:
    given = [(b"X-Request-Id", b"theirs"), (b"X-Replica", b"theirs"), (b"Connection", b"x-own"), (b"X-Own", b"1")]
    assert back([*given, (b"Etag", b"2")], "id-1", "job") == [
        (b"etag", b"2"),
        (b"x-request-id", b"id-1"),
        (b"x-replica", b"job"),
    ]


@pytest.mark.parametrize("sent", [b"", b"a b", b"x" * 129, "\xe4".encode(), b"a\tb", b"<script>"])
def test_an_id_that_isnt_fit_to_be_repeated_is_replaced(sent: bytes) -> None:
    assert heads.request_id([(b"x-request-id", sent)], lambda: "ours") == "ours"
    assert heads.request_id([(b"x-request-id", b"good-1"), (b"x-request-id", b"good-2")], lambda: "ours") == "ours"
    assert heads.request_id([(b"x-request-id", b"good-1")], lambda: "ours") == "good-1"


@pytest.mark.parametrize(
    ("run", "host", "domain", "proto", "there"),
    [
        ("app", "127.0.0.1:3000", "localhost", "http", "http://app.main.localhost:3000/x"),
        ("app", "localhost", "localhost", "http", "http://app.main.localhost/x"),
        ("app", "[::1]:3000", "localhost", "http", "http://app.main.localhost:3000/x"),
        ("app", "127.0.0.1:3000", "localhost", "https", ""),  # by a proxy: the browser is elsewhere
        ("app", "dstack.example.com", "localhost", "http", ""),
        ("app", "dstack.example.com", "s.example.com", "https", "https://app.main.s.example.com/x"),
        ("app", "127.0.0.1:3000", "s.example.com", "https", ""),
        ("App", "127.0.0.1:3000", "localhost", "http", ""),  # hosts know no upper case
        ("app", "a b[", "localhost", "http", ""),
    ],
)
def test_a_page_has_an_address_under_its_own_host(run: str, host: str, domain: str, proto: str, there: str) -> None:
    place = by_path(f"/proxy/services/main/{run}/x".encode())
    assert place is not None
    assert own_address(place, place.path, host, domain, proto) == there
