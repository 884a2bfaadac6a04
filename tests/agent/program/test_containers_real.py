"""The agent inside real containers of images that have little: no Python, no glibc, no shell, no root, no disk.

Each begins as its provider would begin it, fetches what it lacks, and runs a job that sees its own image.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.domain import container_script
from tests.agent.containers import NO_CARRIER, Provider, selling
from tests.harness.debian import NotHere, install
from tests.harness.docker import DockerEngine
from tests.harness.images import applets_image, debian_image, distroless_image, musl_image, pythonic_image

pytestmark = pytest.mark.slow

JOB = 'echo "$(pwd) $(id -u) <$IMAGE> <$OURS> <${DSTACK_TOKEN-}>"'


@pytest.fixture
def provider(docker_engine: DockerEngine) -> Iterator[Provider]:
    yield from selling(docker_engine)


SHELL = ["/bin/sh", "-c", f"{JOB}; exit 7"]


def test_an_image_whose_only_libc_is_musl(provider: Provider) -> None:
    try:
        install("musl-tools")
        image = musl_image()
    except NotHere as problem:
        pytest.skip(str(problem))
    name = provider.sell(image)
    assert provider.runs(name, ["hello"]) == "hello from musl: / its own said\r\n"


def test_an_image_with_a_python_of_its_own_needs_no_carrier(provider: Provider) -> None:
    name = provider.sell(pythonic_image(), env=NO_CARRIER, ReadonlyRootfs=True)
    assert provider.runs(name, SHELL) == "/ 0 <its own> <said> <>\r\n"


def test_a_user_without_a_name_and_a_root_that_is_read_only(provider: Provider) -> None:
    tmpfs = {"/tmp": "exec,mode=1777"}
    name = provider.sell(applets_image(), user="12345:54321", ReadonlyRootfs=True, Tmpfs=tmpfs)
    assert provider.runs(name, SHELL) == "/work 12345 <its own> <said> <>\r\n"


def test_an_image_without_a_shell_runs_from_a_mounted_folder(provider: Provider, tmp_path: Path) -> None:
    """As in Kubernetes: another container fills the folder first."""
    mounts = provider.prepares(tmp_path)
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc to make a static program with")
    image = distroless_image()
    name = provider.sell(image, container_script.prepared(), user="65532", ReadonlyRootfs=True, **mounts)
    assert provider.runs(name, ["/hello"]) == "hello from nothing: / its own said\r\n"


def test_what_an_image_lacks_is_said_in_the_containers_log(provider: Provider) -> None:
    for lacks, message, more in (
        ("python", "this control plane has no carrier that brings one", {"env": NO_CARRIER}),
        ("disk", "no folder can hold and run a Python", {"ReadonlyRootfs": True}),
        ("token", "the container has no DSTACK_TOKEN", {"env": {"DSTACK_TOKEN": ""}}),
    ):
        name = provider.sell(applets_image(), **more)
        assert (provider.ended(name), message in provider.says(name)) == (78, True), (lacks, provider.says(name))


def test_a_debian_without_more_has_nothing_to_fetch_with_and_says_so_at_once(provider: Provider) -> None:
    """It has a Perl, but without what Perl fetches with."""
    try:
        image = debian_image()
    except NotHere as problem:
        pytest.skip(str(problem))
    name = provider.sell(image)
    assert provider.ended(name) == 78
    assert (
        provider.says(name)
        .strip()
        .endswith("dstack: this image has neither curl, wget, python nor perl to fetch agent.pyz with: add one of them")
    )


NVIDIA_SMI = """#!/bin/sh
case "$*" in
*memory.used*) echo "GPU-1, 1024, 37";;
*driver_version*) echo "GPU-1, NVIDIA H100 80GB HBM3, 81559, 550.1";;
esac
"""


def test_its_limits_and_cards_are_the_machines_and_a_signal_that_ends_the_job_shows(
    provider: Provider, tmp_path: Path
) -> None:
    """Where there are cards, NVIDIA's runtime puts its tool into the container."""
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    tool = [f"{tmp_path}/nvidia-smi:/bin/nvidia-smi:ro"]
    name = provider.sell(applets_image(), Memory=256 << 20, NanoCpus=1_000_000_000, Binds=tool)
    task = provider.holds("/bin/sh", "-c", "until [ -e /tmp/end ]; do sleep 0.1; done; kill -KILL $$", gpus=1)
    facts = provider.plane.facts
    assert (facts["memory_mib"], facts["cpus"]) == (256, 1), facts
    assert [(card["name"], card["memory_mib"]) for card in facts["gpus"]] == [("H100 80GB HBM3", 81559)]
    measured = provider.plane.until(lambda: [each for each in provider.plane.metrics if each["gpus"]])[0]
    assert 0 < measured["memory_usage_bytes"] <= 256 << 20
    assert [(card["memory_usage_bytes"], card["util_percent"]) for card in measured["gpus"]] == [(1 << 30, 37)]
    provider.within(name, "touch", "/tmp/end")
    report = provider.plane.exited(task)
    assert (report["exit_status"], report["message"]) == (137, "killed by signal SIGKILL")
    provider.plane.want(task, "remove")
    assert provider.ended(name) == 137


def test_a_job_in_an_image_of_busybox_alone_is_stopped_and_its_container_ends(provider: Provider) -> None:
    name = provider.sell(applets_image())
    task = str(uuid.uuid4())
    script = f"trap 'echo bye; exit 3' TERM; {JOB}; echo up; while :; do sleep 1; done"
    spec = {"id": task, "commands": ["/bin/sh", "-c", script], "env": {"OURS": "said"}}
    provider.plane.want(task, "run", spec=spec)
    provider.plane.until(lambda: b"/work 0 <its own> <said> <>\r\nup" in provider.plane.logs.get(task, b""))
    assert provider.plane.facts["runtimes"] == ["inside"]
    usage = provider.plane.until(lambda: provider.plane.metrics)
    assert usage[0]["task"] == task and usage[0]["memory_usage_bytes"] > 0
    provider.plane.want(task, "stop", grace=60)
    assert provider.plane.exited(task)["reason"] == "terminated_by_user"
    provider.plane.want(task, "remove")
    assert provider.ended(name) == 3
