"""Why nginx can't be started, in the words of whoever knows. What it serves is in `tests/serving`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.agent.gateway.nginx import FORWARDED, HOP, Listens, Nginx, NginxError, masked
from chalicelib.serving import headers


def test_without_a_certificate_for_nobody_the_reason_is_that_of_openssl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "openssl"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho said\necho no entropy >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    with pytest.raises(NginxError, match=r"^openssl makes no certificate: said\nno entropy\n$"):
        Nginx(str(tmp_path / "gateway"), Listens(["0"], ["0"])).start()


def test_both_doors_leave_the_same_headers_behind() -> None:
    assert {name.lower().encode() for name in FORWARDED} == set(headers.OURS)
    client = [(name.lower().encode(), b"1") for name in (*masked(), *HOP)]
    origin = headers.Origin("127.0.0.1", "http", "a", "", "id")
    added = [name for name, _ in headers.onward([], origin, judged=False)]
    assert [name for name, _ in headers.onward(client, origin, judged=False)] == added
