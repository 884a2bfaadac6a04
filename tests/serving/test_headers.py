"""Cookies of services by path: each comes back to its own service only."""

from __future__ import annotations

import pytest

from chalicelib.serving.headers import SANDBOX, back, scoped

PREFIX = b"/proxy/services/main/app"


@pytest.mark.parametrize(
    ("cookie", "becomes"),
    [
        (b"a=1", b"a=1"),  # for where the request was, which is below the prefix
        (b"a=1; Path=/", b"a=1; Path=/proxy/services/main/app/"),
        (b"a=1; path=/x/y; HttpOnly", b"a=1; HttpOnly; Path=/proxy/services/main/app/x/y"),
        (b"a=1; Path=/proxy/services/main/app/x", b"a=1; Path=/proxy/services/main/app/x"),
        (b"a=1; Path=/proxy/services/main/app", b"a=1; Path=/proxy/services/main/app"),
        (b"a=1; Path=/proxy/services/main/apple", b"a=1; Path=/proxy/services/main/app/proxy/services/main/apple"),
        (b"a=1; Path=/x; Path=/", b"a=1; Path=/proxy/services/main/app/"),
        (b"a=1;PATH = / ;Secure", b"a=1;Secure; Path=/proxy/services/main/app/"),
        (b"a=1; Path=x", b"a=1"),
        (b"a=1; Path", b"a=1"),
        (b"a=1; Domain=localhost; Secure", b"a=1; Secure"),
        (b"__Secure-a=1; Path=/; Secure", b"__Secure-a=1; Secure; Path=/proxy/services/main/app/"),
        (b"__Host-a=1; Path=/; Secure", b""),
        (b" __HOST-a=1; Path=/; Secure", b""),
    ],
)
def test_a_cookie_stays_below_the_prefix_of_its_service(cookie: bytes, becomes: bytes) -> None:
    assert scoped(cookie, PREFIX) == becomes


@pytest.mark.parametrize(
    ("cookie", "becomes"),
    [
        (b"a=1; Path=/; Secure", b"a=1; Path=/; Secure"),
        (b"a=1; Domain=.example.com; Path=/", b"a=1; Path=/"),
        (b"__Host-a=1; Path=/; Secure", b"__Host-a=1; Path=/; Secure"),
    ],
)
def test_a_service_with_a_host_of_its_own_has_all_paths_of_that(cookie: bytes, becomes: bytes) -> None:
    assert scoped(cookie, b"") == becomes


def test_other_headers_and_their_order_stay() -> None:
    given = [(b"A", b"1"), (b"Set-Cookie", b"a=1; Path=/"), (b"Set-Cookie", b"__Host-b=1"), (b"B", b"2")]
    assert back(given, "id", "job", PREFIX.decode()) == [
        (b"a", b"1"),
        (b"set-cookie", b"a=1; Path=/proxy/services/main/app/"),
        (b"b", b"2"),
        (b"content-security-policy", SANDBOX),
        (b"x-request-id", b"id"),
        (b"x-replica", b"job"),
    ]


def test_a_service_by_path_speaks_for_no_other_page_of_the_server() -> None:
    given = [(b"Service-Worker-Allowed", b"/"), (b"Clear-Site-Data", b'"*"'), (b"Content-Security-Policy", b"sandbox")]
    names = [name for name, _ in back(given, "id", "job", PREFIX.decode())]
    assert names == [b"content-security-policy", b"content-security-policy", b"x-request-id", b"x-replica"]
    assert b"allow-same-origin" not in SANDBOX
    own = [name for name, _ in back(given, "id", "job")]
    assert own[:3] == [b"service-worker-allowed", b"clear-site-data", b"content-security-policy"]
