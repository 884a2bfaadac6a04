"""The genuine client's calls about backends, against our API over HTTP and a provider that knows its keys."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api import dispatch
from chalicelib.backends.accounts import Accounts
from chalicelib.runtime.accounts import StoredAccounts
from chalicelib.store.seal import Sealer
from tests.api.rig import ADMIN, Rig
from tests.e2e.peer import VENV
from tests.wire.clients import shared
from tests.world.keyed import CheckedHere, Keys
from tests.world.ports import Books


@pytest.fixture
def seen(tmp_path: Path) -> Any:
    """What the client saw, which ran from beginning to end."""
    program = VENV / "bin" / "python"
    if not program.exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    clouds = Keys()
    work = {"providers": clouds.providers, "account_work": CheckedHere(clouds.providers)}
    rig = Rig.at(tmp_path, catalog=Books(()), backends=Accounts(), **work)
    world = rig.world
    stored = StoredAccounts(world.store, Sealer(b"k" * 32), world.clock, clouds.providers)
    object.__setattr__(world.plane, "backends", stored)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found = dispatch.answer(world.plane, dispatch.Request("POST", self.path, {}, headers, body))
            self.send_response(found.status)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            shown = tmp_path / "shown"
            job = {
                "script": str(Path(__file__).parent / "backends_journey.py"),
                "argv": [f"http://127.0.0.1:{server.server_address[1]}", ADMIN],
                "cwd": str(tmp_path),
                "env": {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
                "input": None,
                "output": str(shown),
            }
            status = shared("peer").run(job)
        finally:
            server.shutdown()
            thread.join()
    world.store.close()
    assert status == 0, shown.read_text()
    return json.loads(shown.read_text().splitlines()[-1])


def test_a_backend_is_added_shown_changed_and_deleted(seen: Any) -> None:
    hidden = {"type": "access_key", "access_key": "(hidden)", "secret_key": "(hidden)"}
    assert seen["types"] == ["aws"]
    assert seen["made"]["creds"] == hidden and seen["made"]["regions"] == ["eu-west-1"]
    assert [(one["name"], one["config"]["regions"]) for one in seen["listed"]] == [("aws", ["eu-west-1"])]
    assert seen["found"]["creds"] == hidden and seen["found"]["tags"] == {"team": "ml"}
    kind, message = seen["refused"]
    assert "doesn't know these keys" in message, kind
    assert seen["changed"]["regions"] == ["us-east-1"] and seen["changed"]["tags"] == {"team": "ml"}
    assert seen["left"] == []
