"""Every scenario on the root in AWS, on virtual time; and those that only real processes prove, on both roots with the
real commands, a real server and real agents. All against the text that the embedded root gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent import git_hosts
from tests.emulators.ministack import Emulator
from tests.harness import golden
from tests.harness.roots import LambdaServer
from tests.harness.server import Server
from tests.scenarios.stages import Real, Virtual
from tests.scenarios.texts import FOLDER, REAL, SCRIPTS, check, cloud_of
from tests.world.aws import AwsSite


@pytest.fixture
def aws(emulator: Emulator, request: pytest.FixtureRequest) -> Iterator[AwsSite]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.environment.items():
            patch.setenv(name, value)
        name = request.node.callspec.params["path"].stem
        site = AwsSite(request.node.callspec.id, emulator, cloud_of(name))
        yield site
        site.close()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_scenario_reads_the_same_in_aws(path: Path, aws: AwsSite, tmp_path: Path) -> None:
    check(path, Virtual(aws, tmp_path, path.stem))


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, str]]:
    """The variables with which the hosts of repositories are seen."""
    with git_hosts.running() as host:
        yield host.far.variables


@pytest.fixture(scope="module", params=["embedded", "lambda"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, seen: dict[str, str]
) -> Iterator[Server]:
    home = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        yield from _alive(Server(home, flags=("--fake-cloud", "--no-local-fleet"), env=seen))
        return
    emulator: Emulator = request.getfixturevalue("emulator")
    yield from _alive(LambdaServer(home, endpoint=emulator.url, env=seen))


def _alive(server: Server) -> Iterator[Server]:
    try:
        yield server.start()
    finally:
        server.close()


@pytest.mark.parametrize("name", REAL)
def test_a_scenario_reads_the_same_with_real_processes(name: str, server: Server, tmp_path: Path) -> None:
    stage = Real(server, tmp_path, name)
    stage.behave("{}")
    embedded = not isinstance(server, LambdaServer)
    check(FOLDER / f"{name}.txt", stage, renew=embedded and golden.WRITING)
