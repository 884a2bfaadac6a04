"""A real server whose control plane moves away becomes a signpost, and a server again when it comes back."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.runtime.clock import SystemClock, random_id
from chalicelib.runtime.migration.places import FILES, folder_keys, folder_place
from chalicelib.runtime.migration.steps import Migration
from tests.harness.server import Server, until

THERE = "http://127.0.0.1:9"


def asked(server: Server, path: str, body: Any = None, token: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(server.url + path, json.dumps(body or {}).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {token or server.token}")
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def instances(server: Server) -> list[str]:
    found = server.call("/api/project/main/fleets/get", {"name": "pool"})["instances"]
    return [each["id"] for each in found]


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


def moved(source: Path, target: Path, source_url: str, target_url: str) -> bool:
    with ExitStack() as held:
        target.mkdir(exist_ok=True)
        for name in FILES:
            (target / name).write_text((source / name).read_text())
        here = folder_place(source, source_url, held, target=False)
        there = folder_place(target, target_url, held, target=True)
        return Migration(here, there, SystemClock(), random_id, lambda _: None).run()


@pytest.mark.slow
def test_a_server_shows_the_way_while_its_control_plane_is_elsewhere(tmp_path: Path) -> None:
    server = Server(tmp_path, ("--fake-cloud", "--no-local-fleet"))
    elsewhere = tmp_path / "elsewhere"
    try:
        server.start()
        fleet = {"spec": {"configuration": {"type": "fleet", "name": "pool", "nodes": 1}}}
        server.call("/api/project/main/fleets/apply", {"plan": fleet, "force": False})
        (instance,) = until("the instance", lambda: instances(server))
        assert moved(server.data, elsewhere, server.url, THERE)

        status, answer = asked(server, "/api/projects/list")
        assert status == 400 and f"has moved to {THERE}" in answer.decode()
        token = bootstrap_token(folder_keys(server.data)[0], instance, 0)
        status, answer = asked(server, "/agent/sync", {"instance": instance}, token)
        assert (status, json.loads(answer)) == (308, {"server": THERE})
        assert asked(server, "/agent/sync", {"instance": instance}, "another")[0] == 403

        assert moved(elsewhere, server.data, THERE, server.url)
        until("the server to decide again", lambda: asked(server, "/api/projects/list")[0] == 200)
        assert [each["name"] for each in server.call("/api/project/main/fleets/list")] == ["pool"]
        assert server.stop() == 0
    finally:
        server.close()
