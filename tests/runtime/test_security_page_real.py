"""docs/security.md: its file is a server's, its commands are accepted, and its numbers and names are the code's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from chalicelib.agent.runtimes import docker, users
from chalicelib.api.routes import ROUTES
from chalicelib.configuration.server import parse_server
from chalicelib.configuration.server_spec import DefaultPermissions
from chalicelib.domain.tenants import Permissions
from chalicelib.runtime.settings import ServerSettings
from tests.harness.server import ROOT

PAGE = (ROOT / "docs/security.md").read_text()
COMMANDS = [line for block in re.findall(r"```shell\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_its_file_names_every_permission_at_its_strictest() -> None:
    (text,) = re.findall(r"```yaml config.yml\n(.*?)```", PAGE, re.DOTALL)
    config = parse_server(text, filename="config.yml").config
    assert config.default_permissions is not None
    assert config.default_permissions.model_fields_set == set(DefaultPermissions.model_fields)
    assert config.default_permissions.meant == Permissions(False, False, False, False, False)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_accepted(command: str) -> None:
    """`--help` is answered only once every other flag is understood."""
    arguments = shlex.split(command)
    assert arguments[0] == "dstack"
    argv = [sys.executable, "-m", "cli.main", *arguments[1:], "--help"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong = subprocess.run([*argv[:-1], "--no-such-flag", "--help"], cwd=ROOT, capture_output=True, check=False)
    assert wrong.returncode != 0


def test_its_numbers_are_the_codes() -> None:
    first, last = ServerSettings.job_users.split("-")
    assert f"{first}–{last}" in PAGE and ServerSettings.job_users == users.DEFAULT
    assert f"processes ({docker.PROCESSES_MOST}) and open files ({docker.FILES_MOST})" in PAGE


def test_what_it_names_exists() -> None:
    fields = set(re.findall(r"`(allow_\w+)(?:: \w+)?`", PAGE))
    assert fields <= set(DefaultPermissions.model_fields) and len(fields) == 5
    assert set(re.findall(r"`(/api/\S+)`", PAGE)) <= {route.path for route in ROUTES}
    settings = (ROOT / "chalicelib/runtime/settings.py").read_text()
    assert all(name in settings for name in re.findall(r"DSTACK_\w+", PAGE))


@pytest.mark.parametrize("page", ["README.md", "docs/STATUS.md"])
def test_it_can_be_found(page: str) -> None:
    assert "security.md" in (ROOT / page).read_text()
