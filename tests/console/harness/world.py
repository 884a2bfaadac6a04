"""A server that looks like one in use: runs of each status, fleets, a volume, a service with a model, and people."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from chalicelib.console import FOLDER, bundle
from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Job
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.runs.metrics import metric_puts
from tests.console.harness import bundled
from tests.harness.server import ROOT, Server, until

ESBUILD = ROOT / bundle.TOOLS / "node_modules" / ".bin" / "esbuild"
V1 = "/api/v1/projects/main"
MODEL = Path(__file__).with_name("model.py").read_text(encoding="utf-8")
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31mred\x1b[0m \u202egnp.exe \x1b]0;title\x07 </script>"

MACHINES = {"resources": {"cpu": "1..", "memory": "0.1GB..", "disk": "1GB.."}}


def start(home: Path) -> Server:
    """Four local hosts, a simulated cloud, and the console as a wheel has it."""
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--local-hosts", "4")
    env = {"DSTACK_AGENT_RUNTIME": "process", bundled.FOLDER: str(console())}
    server = Server(home, flags=flags, env=env, program=bundled.__name__)
    home.mkdir()
    server.start()
    until("the hosts", lambda: sum(each["status"] == "idle" for each in server.call("/api/instances/list", {})) == 4)
    return server


def console() -> Path:
    """The console's bundle, made once for the sources that are in the checkout now: it takes more than a second."""
    sources = [path for path in sorted(FOLDER.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    digest = hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"dstack-console-{digest}"
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        for name, content in bundle.bundled(FOLDER, ESBUILD).items():
            (made / name).write_bytes(content)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            shutil.rmtree(made)  # another process was sooner
    return folder


def v1(server: Server, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
    """A call of the project's resources."""
    return server.call(f"{V1}{path}", body, method=method, token=token)


def task(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    return {"type": "task", "name": name, "commands": list(commands), **MACHINES, **more}


def service(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    return {"type": "service", "name": name, "commands": list(commands), "port": 8000, **MACHINES, **more}


def chat(name: str = "chat", **more: Any) -> dict[str, Any]:
    """A service with a model that says what it was told."""
    command = f"cat > model.py <<'END'\n{MODEL}\nEND\nexec python3 model.py"
    return service(name, command, model="parrot", probes=[], **more)


def apply(server: Server, configuration: dict[str, Any]) -> None:
    v1(server, "PUT", f"/runs/{configuration['name']}/spec", configuration)


def run(server: Server, name: str) -> dict[str, Any]:
    return dict(v1(server, "GET", f"/runs/{name}"))


def wait(server: Server, name: str, *statuses: str) -> dict[str, Any]:
    def reached() -> Any:
        found = run(server, name)
        return found["status"] in statuses and found

    return dict(until(f"{name} to be {statuses}", reached))


def furnish(server: Server) -> None:
    """Whatever a page can show. What runs goes on until the server ends."""
    apply(server, task("train", "echo step 1; echo step 2; sleep 36000"))
    apply(server, task("ended", "echo said and done"))
    apply(server, task("broken", "echo it will not work; exit 3"))
    apply(server, task("stopped", "sleep 36000"))
    apply(server, chat())
    v1(server, "POST", "/fleets", {"type": "fleet", "name": "pool", "nodes": {"min": 0, "max": 2}, "backends": ["aws"]})
    v1(
        server,
        "POST",
        "/volumes",
        {"type": "volume", "name": "data", "backend": "aws", "region": "sim-east", "size": "5GB"},
    )
    v1(server, "PUT", "/secrets/hf_token", {"value": "nobody knows"})
    for name in ("ann", "bob"):
        server.call("/api/v1/users", {"name": name, "role": "user"})
    v1(server, "PUT", "/members/ann", {"role": "user"})
    apply(server, task("waits", "nvidia-smi", resources={"gpu": "H200:8"}, retry=True))
    wait(server, "stopped", "running")
    v1(server, "POST", "/runs/stopped/stop?abort=true")
    for name, status in {"train": "running", "chat": "running", "ended": "done", "broken": "failed"}.items():
        wait(server, name, status)
    wait(server, "stopped", "terminated")
    report_usage(server, "broken")


def report_usage(server: Server, name: str) -> None:
    """As if a run that has ended had had two busy GPUs for half an hour: what its agent would have reported."""
    store, now = SqliteStore(server.data / "plane.db"), time.time_ns() // 1000
    job = nouns.find(store, Job, keys.job(run(server, name)["id"], 0, 0, 0))
    assert job is not None
    points = [
        MetricPoint.model_validate(
            {
                "task": job.id,
                "at": now - (30 - number) * MINUTE,
                "cpu_usage_micro": number * 30 * SECOND,
                "memory_usage_bytes": 2**30 + number * 2**25,
                "memory_working_set_bytes": 2**30,
                "gpus": [
                    {"memory_usage_bytes": 40 * 2**30, "util_percent": 90 + number % (8 - gpu)} for gpu in range(2)
                ],
            }
        )
        for number in range(30)
    ]
    store.commit(metric_puts(points, {job.id: job}, now, 1))
    store.close()


def token_of(server: Server, user: str) -> str:
    return str(server.call("/api/users/refresh_token", {"username": user})["creds"]["token"])
