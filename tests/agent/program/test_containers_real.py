"""The agent inside real containers of images that have little: no Python, no glibc, no shell, no root, no disk.

Each begins as its provider would begin it, fetches what it lacks, and runs a job that sees its own image.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import namespaces
from chalicelib.agent.program import build
from chalicelib.domain import container_script
from tests.agent.server import PATIENCE, Plane, Server
from tests.harness.carriers import architecture, carrier
from tests.harness.debian import NotHere, install
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import Image, applets_image, distroless_image, musl_image, pythonic_image

pytestmark = pytest.mark.slow

NO_CARRIER = dict.fromkeys(container_script.CARRIER_SETTINGS.values(), "")
JOB = 'echo "$(pwd) $(id -u) <$IMAGE> <$OURS> <${DSTACK_TOKEN-}>"; exit 7'


def within(engine: DockerEngine, work: Callable[[], Any]) -> Any:
    """What `work` returns in the engine's network: a socket stays where it was made."""
    made = []

    def there() -> None:
        network = os.open(f"/run/netns/{engine.folder.name}", os.O_RDONLY | os.O_CLOEXEC)
        namespaces.enter_open({"net": network})
        made.append(work())

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    return made[0]


class Provider:
    """Sells containers, whose agents talk to a plane."""

    def __init__(self, engine: DockerEngine) -> None:
        self.engine, self.plane = engine, Plane()
        with tempfile.TemporaryDirectory() as folder:
            build.write(f"{folder}/agent.pyz")
            program = Path(folder, "agent.pyz").read_bytes()
        digest, carriers = self.serves("agent.pyz", program), {architecture(): self.serves("carrier.tar.gz", carrier())}
        self.server = within(engine, lambda: Server(self.plane))
        self.settings = container_script.settings(self.server.url, "i-1", self.plane.token, digest, carriers)
        self.made: list[str] = []

    def serves(self, name: str, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.plane.programs[f"/agent/{name}?sha256={digest}"] = content
        return digest

    def sell(self, image: Image, command: list[str] | None = None, **host: Any) -> str:
        bring(self.engine, image)
        user, more = host.pop("user", ""), host.pop("env", {})
        environment = [f"{name}={value}" for name, value in {**self.settings, **more}.items()]
        body = {
            "Image": image.name,
            "Entrypoint": [],
            "Cmd": command or container_script.command(),
            "Env": environment,
            "User": user,
            "HostConfig": {"NetworkMode": "host", **host},
        }
        name = f"inside-{uuid.uuid4().hex[:12]}"
        self.engine.api.call("POST", "/containers/create", {"name": name}, body)
        self.made.append(name)
        self.engine.api.call("POST", f"/containers/{name}/start")
        return name

    def ended(self, name: str) -> int:
        answer = self.engine.api.call("POST", f"/containers/{name}/wait", timeout=PATIENCE)
        return int(answer["StatusCode"])

    def says(self, name: str) -> str:
        sock, rest = self.engine.api.stream("GET", f"/containers/{name}/logs", {"stdout": 1, "stderr": 1})
        with sock:
            while part := sock.recv(65536):
                rest += part
        return rest.decode(errors="replace")

    def runs(self, name: str, commands: list[str]) -> str:
        """A job in that container, which sees its image and ends as the container does; what it printed."""
        task = str(uuid.uuid4())
        spec = {"id": task, "commands": commands, "env": {"OURS": "said"}}
        self.plane.want(task, "run", spec=spec)
        try:
            report = self.plane.exited(task)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; the container: {self.says(name)}") from None
        assert report["exit_status"] == 7, report
        self.plane.want(task, "remove")
        assert self.ended(name) == 7, self.says(name)
        return self.plane.logs[task].decode()


@pytest.fixture
def provider(docker_engine: DockerEngine) -> Iterator[Provider]:
    try:
        provider = Provider(docker_engine)
    except NotHere as problem:
        pytest.skip(str(problem))
    yield provider
    for name in provider.made:
        docker_engine.api.remove(name)
    provider.server.stop()


SHELL = ["/bin/sh", "-c", JOB]


def test_an_image_of_busybox_alone(provider: Provider) -> None:
    name = provider.sell(applets_image())
    assert provider.runs(name, SHELL) == "/work 0 <its own> <said> <>\r\n"
    assert provider.plane.facts["runtimes"] == ["inside"]


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
    mounts = {"Binds": [f"{tmp_path}:{container_script.MOUNTED}"]}
    first = provider.sell(applets_image(), env={"DSTACK_PREPARE": container_script.MOUNTED}, **mounts)
    assert provider.ended(first) == 0, provider.says(first)
    (tmp_path / "dstack-agent").mkdir()
    (tmp_path / "dstack-agent").chmod(0o777)
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc to make a static program with")
    image = distroless_image()
    name = provider.sell(image, container_script.prepared(), user="65532", ReadonlyRootfs=True, **mounts)
    assert provider.runs(name, ["/hello"]) == "hello from nothing: / its own said\r\n"


def test_what_an_image_lacks_is_said_in_the_containers_log(provider: Provider) -> None:
    for lacks, words, more in (
        ("python", "this control plane has no carrier that brings one", {"env": NO_CARRIER}),
        ("disk", "no folder can hold and run a Python", {"ReadonlyRootfs": True}),
        ("token", "the container has no DSTACK_TOKEN", {"env": {"DSTACK_TOKEN": ""}}),
    ):
        name = provider.sell(applets_image(), **more)
        assert (provider.ended(name), words in provider.says(name)) == (78, True), (lacks, provider.says(name))


def test_a_job_is_stopped_and_its_container_ends(provider: Provider) -> None:
    name = provider.sell(applets_image())
    task = str(uuid.uuid4())
    script = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 1; done"
    provider.plane.want(task, "run", spec={"id": task, "commands": ["/bin/sh", "-c", script], "env": {}})
    provider.plane.until(lambda: b"up" in provider.plane.logs.get(task, b""))
    usage = provider.plane.until(lambda: provider.plane.metrics)
    assert usage[0]["task"] == task and usage[0]["memory_usage_bytes"] > 0
    provider.plane.want(task, "stop", grace=60)
    assert provider.plane.exited(task)["reason"] == "terminated_by_user"
    provider.plane.want(task, "remove")
    assert provider.ended(name) == 3
