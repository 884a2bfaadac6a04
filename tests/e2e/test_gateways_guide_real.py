"""The guide to gateways is what its reader sees: a server with its own host, whose agent runs nginx there. The page's
port may be taken here, so a free one is written in its place."""

from __future__ import annotations

import contextlib
from pathlib import Path

from chalicelib.agent.gateway.role import remove
from tests.bench.measure import wait_local_host
from tests.harness.installed import program
from tests.harness.ports import free_port
from tests.harness.server import Server
from tests.scenarios.guides import GATEWAYS, Installed, play_page, same, server_of
from tests.serving.nginx_door import installed

PORT = "8080"


def test_the_guide_shows_what_happens(tmp_path: Path) -> None:
    installed()
    home, port = tmp_path / "home", str(free_port())
    home.mkdir()
    flags, env = tuple(server_of(GATEWAYS)), {"DSTACK_AGENT_RUNTIME": "process"}
    server = Server(home, flags=flags, env=env, command=(str(program()),))
    page = tmp_path / GATEWAYS.name
    page.write_text(GATEWAYS.read_text().replace(PORT, port))
    with contextlib.closing(server):
        try:
            wait_local_host(server.start())
            _, shown = play_page(page, Installed(server, home, "main"))
        finally:
            for each in server.data.glob("agent*"):
                remove(str(each), patience=5.0)
    assert len(shown) >= 5
    odd = [f"$ {each.command}\n--- shown\n{each.written}--- seen\n{each.now}" for each in shown if not same(each, home)]
    assert not odd, "\n".join(odd)
