"""`dstack service token`, on the API itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.usecases.services import doors
from cli.connection.config import ProjectEntry, config_path, save_projects
from tests.api.rig import ADMIN, Rig, submit
from tests.cli.conftest import Dstack
from tests.cli.printed import RealPlane

SERVICE = {"type": "service", "port": 8000, "commands": ["serve"]}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RealPlane]:
    found = RealPlane()
    (tmp_path / "api").mkdir()
    found.rig = Rig.at(tmp_path / "api")
    yield found
    found.rig.world.plane.store.close()


@pytest.fixture
def member(bare: Dstack, plane: RealPlane) -> Dstack:
    save_projects(config_path(bare.terminal.home), [ProjectEntry("main", plane.url, ADMIN, True)])
    submit(plane.rig, {"run_name": "web", "configuration": SERVICE})
    return bare


@pytest.mark.parametrize(("args", "good_for"), [((), {"web", "other", ""}), (("web",), {"web"})])
def test_a_token_alone_is_printed(member: Dstack, plane: RealPlane, args: tuple[str, ...], good_for: set[str]) -> None:
    token = member("service", "token", *args, "--expires-in", "15m").out.strip()
    known = plane.rig.world.plane
    assert {run for run in ("web", "other", "") if doors.member(known, token, "main", run).allowed} == good_for


def test_an_unknown_run_is_named(member: Dstack) -> None:
    ended = member("service", "token", "nothing")
    assert ended.code == 1 and "There is no run nothing in project main." in ended.err
