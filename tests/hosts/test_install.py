"""What takes an agent away from a host again, in a shell here: only from the owner whom it is meant for."""

from __future__ import annotations

import os
import posixpath
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from chalicelib.hosts import install
from chalicelib.hosts.inspection import HOME, OWNER

OWNER_ONE, OWNER_TWO = "install/one", "install/two"


@dataclass
class Box:
    """A host in a folder. Its systemctl only writes down what it is asked, and so does the agent."""

    root: Path

    @classmethod
    def of(cls, root: Path, owner: str | None) -> Box:
        box = cls(root)
        box.put("/bin/systemctl", '#!/bin/sh\necho "$1" >> "$SAID"\n').chmod(0o755)
        box.put(install.PROGRAM, "import os, sys; open(os.environ['SAID'], 'a').write(sys.argv[1] + '\\n')")
        box.put(install.UNIT_FILE, "a unit")
        if owner is not None:
            box.put(OWNER, owner)
        return box

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def put(self, path: str, text: str) -> Path:
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)
        return self.at(path)

    def run(self, script: str) -> None:
        for path in (HOME, install.UNIT_FILE, posixpath.dirname(install.WANTED)):
            script = script.replace(path, str(self.at(path)))
        around = {**os.environ, "PATH": f"{self.at('/bin')}:{os.environ['PATH']}", "SAID": str(self.at("/said"))}
        subprocess.run(["sh", "-c", script], env=around, check=True, timeout=120)

    @property
    def commands(self) -> list[str]:
        """Of systemctl and of the agent."""
        return self.at("/said").read_text().split() if self.at("/said").exists() else []


TAKE_AWAY = (install.stop, install.clear, install.evict)


@pytest.mark.parametrize("take_away", TAKE_AWAY)
def test_anothers_host_is_left_alone(tmp_path: Path, take_away: Callable[[str], str]) -> None:
    box = Box.of(tmp_path, OWNER_TWO)
    box.run(take_away(OWNER_ONE))
    assert box.commands == []
    assert box.at(install.UNIT_FILE).exists() and box.at(OWNER).read_text() == OWNER_TWO


@pytest.mark.parametrize("owner", [OWNER_ONE, None])
@pytest.mark.slow
def test_ours_is_stopped_and_then_cleared(tmp_path: Path, owner: str | None) -> None:
    """So is one whose mark somebody has deleted."""
    box = Box.of(tmp_path, owner)
    box.run(install.stop(OWNER_ONE))
    assert box.commands == ["disable", "stop", "reset-failed", "daemon-reload"]
    assert not box.at(install.UNIT_FILE).exists() and box.at(install.PROGRAM).exists()
    box.run(install.clear(OWNER_ONE))
    assert box.commands[4:] == ["clear"] and not box.at(HOME).exists()
    box.run(install.clear(OWNER_ONE))


@pytest.mark.slow
def test_who_has_ended_is_evicted_in_one_go(tmp_path: Path) -> None:
    box = Box.of(tmp_path, OWNER_ONE)
    box.run(install.evict(OWNER_ONE))
    assert box.commands == ["disable", "stop", "reset-failed", "daemon-reload", "clear"]
    assert not box.at(install.UNIT_FILE).exists() and not box.at(HOME).exists()


def test_nobody_is_evicted_from_a_host_without_an_owner(tmp_path: Path) -> None:
    box = Box.of(tmp_path, None)
    box.run(install.evict(OWNER_ONE))
    assert box.commands == [] and box.at(install.PROGRAM).exists()


def test_an_agent_is_started_and_systemd_reads_its_units_anew_only_if_it_may_know_another(tmp_path: Path) -> None:
    box = Box.of(tmp_path, OWNER_ONE)
    box.run(install.START)
    assert box.commands == ["restart"]
    assert box.at(install.WANTED).readlink() == box.at(install.UNIT_FILE), "so it starts with the host, too"
    box.run(install.START)
    assert box.commands[1:] == ["daemon-reload", "restart"], "of an earlier attempt"


def test_a_systemd_that_doesnt_notice_a_new_unit_is_told(tmp_path: Path) -> None:
    box = Box.of(tmp_path, OWNER_ONE)
    knows = '[ "$1" != restart ] || grep -q daemon-reload "$SAID"'
    box.put("/bin/systemctl", f'#!/bin/sh\necho "$1" >> "$SAID"\n{knows}\n')
    box.run(install.START)
    assert box.commands == ["restart", "daemon-reload", "restart"]
