"""Which requests are for a WebSocket: what two readers could take for different things is a request as any."""

from __future__ import annotations

import pytest

from chalicelib.serving.websockets import is_upgrade_request

UPGRADE, CONNECTION = (b"upgrade", b"WebSocket"), (b"connection", b"keep-alive, Upgrade")


def test_a_get_that_asks_for_nothing_else_is_one() -> None:
    assert is_upgrade_request("GET", [UPGRADE, CONNECTION])
    assert is_upgrade_request("GET", [UPGRADE, (b"connection", b"keep-alive"), (b"connection", b"upgrade")])
    assert is_upgrade_request("GET", [UPGRADE, CONNECTION, (b"content-length", b"0")])


@pytest.mark.parametrize(
    "headers",
    [
        [UPGRADE],
        [UPGRADE, (b"connection", b"x-upgrade")],
        [UPGRADE, UPGRADE, CONNECTION],
        [(b"upgrade", b"h2c"), UPGRADE, CONNECTION],
        [UPGRADE, CONNECTION, (b"content-length", b"5")],
        [UPGRADE, CONNECTION, (b"transfer-encoding", b"chunked")],
    ],
)
def test_anything_else_is_none(headers: list[tuple[bytes, bytes]]) -> None:
    assert not is_upgrade_request("GET", headers)


def test_nor_is_another_method() -> None:
    assert not is_upgrade_request("POST", [UPGRADE, CONNECTION])
