"""docs/operate/backup.md and upgrade.md: their commands are run as they are written, on a real server; and what the
pages promise about jobs that the records of a restored server don't know."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.runtime.upgrade import changes_of
from tests.bench.measure import submit, task, wait_local_host
from tests.harness.gates import gate
from tests.harness.server import ROOT, Server, until
from tests.runtime.live import log_of, run_of, wait_for

PAGES = {"backup": 7, "upgrade": 1}  # and how many commands each shows
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"(?m)^\$ dstack (.*)\n((?:(?!\$ ).*\n)*)")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    key = {"DSTACK_BACKUP_KEY_FILE": str(tmp_path / "key")}
    one = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process", **key})
    one.home.mkdir()
    try:
        yield one
    finally:
        one.close()


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_commands_print_what_it_shows(server: Server, page: str) -> None:
    places = {
        "/srv/dstack-restored": server.home / "restored",
        "/srv/dstack": server.data,
        "/backups/dstack": server.home / "backups",
        "/etc/dstack/backup.key": server.home / "etc" / "backup.key",
    }

    def here(text: str) -> str:
        for written, path in places.items():
            text = text.replace(written, str(path))
        return text

    server.start("--no-local-fleet")
    text = (ROOT / f"docs/operate/{page}.md").read_text(encoding="utf-8")
    commands = [found for block in BLOCK.findall(text) for found in COMMAND.findall(block)]
    assert len(commands) == PAGES[page]
    until("the records to be in their form", lambda: changes_of(server.data) == [])
    for command, output in commands:
        assert _normal(server.cli(*shlex.split(here(command)))) == _normal(here(output)), command


def _normal(text: str) -> str:
    """Without times and amounts."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.-]+Z", "TIME", text)
    return re.sub(r"(?<!\S)\d+(\.\d+)?( [KM]?B)?(?=[\s,])", "N", text)


def test_a_restored_server_ends_no_job_before_an_operators_word(server: Server) -> None:
    """Since the backup one job has ended, and another has begun."""
    backups = str(server.home / "backups")
    with gate() as ends, gate() as never:
        wait_local_host(server.start())
        submit(server, task("before", "echo begun", ends.command))
        until("its output", lambda: "begun" in log_of(server, "before"))
        ended = run_of(server, "before")["latest_job_submission"]["id"]
        server.cli("server", "backup", backups, "--data-dir", str(server.data))
        ends.open()
        wait_for(server, "before", "done")
        submit(server, task("after", never.command))
        wait_for(server, "after", "running")
        begun = run_of(server, "after")["latest_job_submission"]["id"]
        server.stop()
        _restore(server, backups)
        server.start()
        assert any("only looks until" in line for line in server.lines)
        until("both to be noted", lambda: f"runs task {begun}" in _restored(server))
        assert "doesn't list job before" in _restored(server)
        assert run_of(server, "before")["status"] == "running"
        assert (server.data / "agent" / "tasks" / begun).is_dir()
        _restored(server, "--go-on")
        until("the task to be removed", lambda: not (server.data / "agent" / "tasks" / begun).exists())
        assert wait_for(server, "before", "failed", "terminated")["latest_job_submission"]["id"] == ended


def _restore(server: Server, backups: str) -> None:
    """On the same machine, as the page says."""
    lost = server.data.with_name("lost")
    server.data.rename(lost)
    server.cli("server", "restore", backups, "--data-dir", str(server.data))
    (lost / "agent").rename(server.data / "agent")


def _restored(server: Server, *flags: str) -> str:
    return server.cli("server", "restored", "--data-dir", str(server.data), *flags)
