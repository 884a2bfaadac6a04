"""Why nginx can't be started, in the words of whoever knows. What it serves is in `tests/serving`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.agent.gateway.nginx import Listens, Nginx, NginxError


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
