"""A job in an image is the same in a container that is its machine as in one that the agent of a machine starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.domain import container_script
from tests.agent.containers import Provider, selling
from tests.agent.runtime_conformance import Workshop
from tests.harness.debian import NotHere, install
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import Image, applets_image, debian_image, musl_image

pytestmark = pytest.mark.slow

PROBE = r"""
echo "folder: $(pwd)"
echo "ids: $(id -u) $(id -g) $(id -G)"
echo "mask: $(umask)"
[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal
echo "signals: $(grep -E 'Sig(Ign|Blk)' /proc/self/status | tr '\n\t' '  ')"
sh -c 'kill -KILL $$'; echo "killed: $?"
env | grep -vE '^(HOSTNAME|DSTACK_.*|_|SHLVL)=' | sort
exit 7
"""


@pytest.fixture
def provider(docker_engine: DockerEngine) -> Iterator[Provider]:
    yield from selling(docker_engine)


@pytest.fixture
def workshop(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Workshop]:
    """A machine of the usual kind, beside the provider."""
    folder = tmp_path / "machine"
    folder.mkdir()
    workshop = Workshop(folder, DockerRuntime(str(folder), docker_engine.socket), docker_engine.socket)
    yield workshop
    workshop.end()


def musl() -> Image:
    install("musl-tools")
    return musl_image()


def with_curl() -> Image:
    return debian_image("curl", name="test/debian-curl:1")


def debian_of_games() -> Image:
    return replace(debian_image(), name="test/debian-games:1", user="games")


def nobody_listed() -> Image:
    """HOME is the image's own: an image that lists nobody has no other."""
    plain = applets_image()
    return replace(plain, name="test/applets-user:1", user="12345:54321", env={**plain.env, "HOME": "/tmp"})


def made(make: Callable[[], Image]) -> Image:
    try:
        return make()
    except NotHere as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize(
    ("make", "mounted"),
    [(applets_image, False), (musl, False), (with_curl, False), (debian_of_games, True), (nobody_listed, True)],
)
def test_a_job_is_the_same_as_in_a_container_of_a_machine(
    provider: Provider, workshop: Workshop, tmp_path: Path, make: Callable[[], Image], mounted: bool
) -> None:
    """Its folder, ids, variables, terminal and signals, whether the agent comes by a script or by a mounted folder."""
    image = made(make)
    bring(provider.engine, image)
    task = workshop.start(PROBE, image=image.name, env={"OURS": "said"})
    assert workshop.exited(task)["exit_status"] == 7, workshop.log(task)
    (tmp_path / "mounted").mkdir()
    mounts = provider.prepares(tmp_path / "mounted") if mounted else {}
    command = container_script.prepared() if mounted else None
    inside = provider.runs(provider.sell(image, command, **mounts), ["/bin/sh", "-c", PROBE])
    assert inside.split("\r\n") == workshop.log(task).decode().split("\r\n")
