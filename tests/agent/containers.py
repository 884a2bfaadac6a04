"""A provider of containers for a real agent inside: it sells what it is asked for, and plays the plane."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import namespaces
from chalicelib.agent.program import build
from chalicelib.domain import container_script
from tests.agent.server import PATIENCE, Plane, Server
from tests.agent.ssh_client import KEX
from tests.harness.carriers import architecture, carrier
from tests.harness.debian import NotHere
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import Image, applets_image

NO_CARRIER = dict.fromkeys(container_script.CARRIER_SETTINGS.values(), "")


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


@dataclass
class Client:
    """OpenSSH's, in the engine's network."""

    prefix: list[str]
    options: list[str]

    def run(self, *arguments: str, program: str = "ssh", stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        argv = [*self.prefix, program, *self.options, *arguments]
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=PATIENCE, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self.prefix, "ssh", *self.options, *arguments], stdin=subprocess.PIPE)

    def output(self, command: str) -> str:
        done = self.run("127.0.0.1", command)
        assert done.returncode == 0, done
        return done.stdout.decode()

    def copy(self, source: str, target: str) -> None:
        """Remote names begin with a colon."""
        there = [f"127.0.0.1{name}" if name.startswith(":") else name for name in (source, target)]
        done = self.run("-q", *there, program="scp")
        assert done.returncode == 0, done

    def port(self, number: int) -> bytes:
        """What a port in the job says to a request of HTTP, through the SSH connection."""
        done = self.run("-W", f"127.0.0.1:{number}", "127.0.0.1", stdin=b"GET / HTTP/1.0\r\n\r\n")
        assert done.returncode == 0, done
        return done.stdout


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

    def prepares(self, folder: Path) -> dict[str, Any]:
        """Has another container fill the folder. Returns how to mount it in the next."""
        mounts = {"Binds": [f"{folder}:{container_script.MOUNTED}"]}
        first = self.sell(applets_image(), env={"DSTACK_PREPARE": container_script.MOUNTED}, **mounts)
        assert self.ended(first) == 0, self.says(first)
        (folder / "dstack-agent").mkdir()
        (folder / "dstack-agent").chmod(0o777)
        return mounts

    def ended(self, name: str) -> int:
        answer = self.engine.api.call("POST", f"/containers/{name}/wait", timeout=PATIENCE)
        return int(answer["StatusCode"])

    def says(self, name: str) -> str:
        sock, output = self.engine.api.stream("GET", f"/containers/{name}/logs", {"stdout": 1, "stderr": 1})
        with sock:
            while part := sock.recv(65536):
                output += part
        return output.decode(errors="replace")

    def within(self, name: str, *command: str) -> None:
        """Runs a command in the container."""
        made = self.engine.api.call("POST", f"/containers/{name}/exec", body={"Cmd": list(command)})
        self.engine.api.call("POST", f"/exec/{made['Id']}/start", body={"Detach": True})

    def holds(self, *commands: str, keys: Sequence[str] = (), gpus: int = 0) -> str:
        """A job that goes on until it is ended, and lets these keys in."""
        task, given = str(uuid.uuid4()), {"env": {"OURS": "said"}, "authorized_keys": list(keys), "gpus": gpus}
        spec = {"id": task, "commands": list(commands), **given}
        self.plane.want(task, "run", spec=spec)
        self.plane.until(lambda: self.plane.reports.get(task, {}).get("state") == "running")
        return task

    def ends(self, name: str, task: str) -> None:
        self.plane.want(task, "abort")
        self.plane.exited(task)
        self.plane.want(task, "remove")
        self.ended(name)

    def login(self, name: str, task: str, key: Path) -> Client:
        """How to log in, once the agent has said it."""
        try:
            ssh = self.plane.until(lambda: self.plane.reports[task].get("ssh"))
        except AssertionError as problem:
            raise AssertionError(f"{problem}; the container: {self.says(name)}") from None
        assert "problem" not in ssh, ssh
        known = key.with_suffix(".known")
        known.write_text(f"[127.0.0.1]:{ssh['port']} {ssh['host_key']}\n")
        named = {
            "IdentityFile": key, "IdentitiesOnly": "yes", "UserKnownHostsFile": known, "BatchMode": "yes",
            "StrictHostKeyChecking": "yes", "Port": ssh["port"], "User": ssh["username"], "ConnectTimeout": "60",
            "KexAlgorithms": KEX,
        }  # fmt: skip
        options = [
            "-F",
            "/dev/null",
            *(argument for item in named.items() for argument in ("-o", "{}={}".format(*item))),
        ]
        return Client(["nsenter", f"--net=/run/netns/{self.engine.folder.name}"], options)

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


def selling(engine: DockerEngine) -> Iterator[Provider]:
    """For a fixture."""
    try:
        provider = Provider(engine)
    except NotHere as problem:
        pytest.skip(str(problem))
    yield provider
    for name in provider.made:
        engine.api.remove(name)
    provider.server.stop()
