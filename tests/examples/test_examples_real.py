"""The examples that need no GPU, run on the simulated cloud by the command line, as their pages say.

What is changed is what this machine can't do: an image becomes the packages of `.venvs/examples`, and a GPU, a size, a
region or a gateway is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.simulated.launch import LocalLauncher
from chalicelib.backends.simulated.state import FolderResources
from tests.harness import loops
from tests.harness.gates import Gate, gate
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, ROOT, Server, processes_of, until
from tests.runtime.live import log_of, logs_of, run_of, wait_for

EXAMPLES = ROOT / "examples"
PACKAGES = ROOT / ".venvs" / "examples"
PYTHON = PACKAGES / "bin" / "python"
SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": "1GB.."}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make test` installs the packages into .venvs/examples"),
    loops.needed,  # for the volumes
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {"DSTACK_SERVER_TRUST_JOBS": "on"}  # jobs read the packages of this user
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--no-local-fleet")
    one = Server(tmp_path_factory.mktemp("examples") / "home", flags=flags, env=env)
    one.home.mkdir()
    try:
        with contextlib.closing(one):
            one.start()
            applied(one, "cloud-fleet.dstack.yml", lambda config: config.update(nodes="0..4"))
            yield one
    finally:
        loops.give_back(one.home)  # the volumes, which outlive their runs and this server


def applied(server: Server, name: str, change: Callable[[dict[str, Any]], Any] = bool, *flags: str) -> str:
    """The example as it is, but for what this machine can't do and the change."""
    path = EXAMPLES / name
    config = yaml.safe_load(path.read_text())
    for key in ("image", "python", "gateway"):
        config.pop(key, None)
    if config["type"] == "volume":
        config |= {"region": "sim-east", "size": "1GB"}
    elif config["type"] != "fleet":
        config |= {"resources": SMALL}
        bin_first = f"PATH={PYTHON.parent}:{os.environ['PATH']}"
        config["env"] = [*config.get("env", []), bin_first, "OMP_NUM_THREADS=1"]
        config["files"] = [f"{path.parent / each}:{each}" for each in config.get("files", [])]
    change(config)
    there = server.home / path.name
    there.write_text(yaml.safe_dump(config))
    return server.cli("apply", "-y", "-f", str(there), *flags)


def killed(server: Server, node: int) -> None:
    """All that runs for this node of `spot`."""
    for pid in processes_of(server.home):
        with contextlib.suppress(OSError):  # it ended meanwhile
            known = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if b"DSTACK_RUN_NAME=spot" in known and f"DSTACK_NODE_RANK={node}".encode() in known:
                os.kill(pid, signal.SIGKILL)


def test_a_night_finds_what_the_last_one_left(server: Server) -> None:
    applied(server, "nightly/volume.dstack.yml")
    said = applied(server, "nightly/report.dstack.yml", bool, "-d")
    assert "it starts by its schedule, next at" in said, said
    server.cli("stop", "-y", "nightly")
    wait_for(server, "nightly", "terminated", "done")
    for night in (1, 2):
        said = applied(server, "nightly/report.dstack.yml", lambda config: config.pop("schedule"))
        assert f"night {night}: " in said, said


def test_spot_training_goes_on_where_both_nodes_were(server: Server, tmp_path: Path) -> None:
    """After the processes of one of them have died, and after its machine has been taken away."""
    for name in ("volume-0", "volume-1", "fleet"):
        applied(server, f"spot/{name}.dstack.yml")
    with gate() as first, gate() as second:
        data = waiting((EXAMPLES / "spot" / "data.py").read_text(), {35: first, 55: second})
        (tmp_path / "data.py").write_text(data)

        def change(config: dict[str, Any]) -> None:
            config["env"] = [f"MASTER_PORT={free_port()}", *config["env"][1:]]
            config["files"][1] = f"{tmp_path / 'data.py'}:data.py"

        applied(server, "spot/train.dstack.yml", change, "-d")
        until_both("both to have saved step 30", server, "step 30: ")
        killed(server, 1)
        until_both("both to go on", server, "begins after step 30")
        first.open()
        until_both("both to have saved step 50", server, "step 50: ")
        taken = taken_away(server, 1)
        until_both("both to go on", server, "begins after step 50")
        assert taken not in [job["job_provisioning_data"]["instance_id"] for job in submissions(server, -1)]
        lost = submissions(server, -2)[1]
        assert lost["job_provisioning_data"]["instance_id"] == taken
        assert lost["termination_reason"] == "interrupted_by_no_capacity", lost
        second.open()
        assert wait_for(server, "spot", "done", "failed", "terminated")["status"] == "done", logs_of(server, "spot")
    for log in logs_of(server, "spot"):
        assert re.findall(r"step (\d+): ", log) == ["60"] and "the model has made 60 steps" in log
    resumed = [losses(log)[-1] for log in logs_of(server, "spot")]
    assert sorted(resumed) == pytest.approx(sorted(losses(alone(tmp_path))[-2:]), rel=1e-4)


def taken_away(server: Server, node: int) -> str:
    """The machine of this node of `spot` goes, with all that runs there and without a word, as a cloud takes one back.
    Returns its instance."""
    folder = server.data / "fake-cloud"
    launcher = LocalLauncher(folder / "machines", server.url, Path())
    cloud = FakeCloud(lambda: time.time_ns() // 1000, store=FolderResources(folder / "resources"), launcher=launcher)
    instance: str = submissions(server, -1)[node]["job_provisioning_data"]["instance_id"]
    (machine,) = [body for body in cloud.machines() if dict(body["tags"])["dstack-instance"] == instance]
    cloud.lose(machine["id"])
    assert not (folder / "machines" / machine["id"]).exists()
    return instance


def waiting(data: str, held: Mapping[int, Gate]) -> str:
    """The same data, but these batches come once their gates are open."""
    line = "    import torch\n"
    assert line in data
    gates = {step: each.command for step, each in held.items()}
    return data.replace(line, f"{line}    import os\n\n    os.system({gates}.get(step, 'true'))\n")


def submissions(server: Server, which: int) -> list[dict[str, Any]]:
    """Of both nodes of `spot`; -1: the newest."""
    return [job["job_submissions"][which] for job in run_of(server, "spot")["jobs"]]


def said_by_both(server: Server, words: str) -> bool:
    are_running = all(job["status"] == "running" for job in submissions(server, -1))
    return are_running and all(words in log for log in logs_of(server, "spot"))


def until_both(what: str, server: Server, words: str) -> None:
    """Rarely asked: meanwhile both import torch, which takes seconds of a core."""
    until(what, lambda: said_by_both(server, words), every=0.5)


def losses(log: str) -> list[float]:
    return [float(each) for each in re.findall(r"step \d+: loss (\d+\.\d{6})", log)]


def alone(folder: Path) -> str:
    """What two processes say that train together, with nobody in between."""
    for rank in "01":
        (folder / rank).mkdir()
    done = together("--no-python", "sh", "-c", f"exec {PYTHON} {EXAMPLES / 'spot' / 'train.py'} {folder}/$RANK")
    assert done.returncode == 0, done.stderr
    return done.stdout


def together(*words: str) -> subprocess.CompletedProcess[str]:
    torchrun = [str(PYTHON), "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2"]
    command = [*torchrun, f"--master-port={free_port()}", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE)


def test_a_cluster_that_is_slower_than_it_must_be_fails() -> None:
    done = together(str(EXAMPLES / "clusters" / "all_reduce.py"), "4", "1e6")
    assert done.stdout.startswith("2 ranks, CPU") and re.findall(r"(?m)^ +(\d+) ", done.stdout) == ["1", "4"], done
    assert done.returncode == 1 and "GB/s are less than 1e+06" in done.stdout and "are wrong" not in done.stdout


def test_two_models_answer_a_question_from_the_notes(server: Server) -> None:
    def standing_in(part: str) -> Callable[[dict[str, Any]], None]:
        def change(config: dict[str, Any]) -> None:
            config |= {"commands": [f"exec {PYTHON} {ROOT / 'tests/examples/standin.py'} {part}"], "replicas": 1}
            config.pop("scaling", None)
            config["probes"] = [{"type": "http", "url": "/", "interval": "1s"}]

        return change

    server.cli("secret", "set", "models_token", server.token)
    applied(server, "rag/embed.dstack.yml", standing_in("embed"), "-d")
    applied(server, "rag/chat.dstack.yml", standing_in("chat"), "-d")
    applied(server, "rag/app.dstack.yml", bool, "-d")
    url = f"{server.url}/proxy/services/main/rag/"
    for question, answer in (
        ("When is the office closed?", "thirteenth of June"),
        ("How many pictures are in the dataset?", "1.2 million"),
    ):
        found = until("an answer", lambda question=question: asked(f"{url}ask", server.token, {"question": question}))
        assert answer in found["answer"] and len(found["passages"]) == 2, found
    server.cli("stop", "-y", "rag", "chat", "embed")


def asked(url: str, token: str, body: Any) -> Any:
    """Its answer, or nothing while the replica isn't there yet."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        assert error.code in (502, 503, 504), (error.code, error.read())
        return None


def test_jupyterlab_answers_at_its_port(server: Server) -> None:
    port = free_port()

    def change(config: dict[str, Any]) -> None:
        assert "jupyterlab==" in config["init"][0]  # which is installed here
        config["init"] = [config["init"][1].replace("8888", str(port))]
        config.pop("ports")

    applied(server, "dev/jupyterlab/.dstack.yml", change, "-d")
    url = re.compile(rf"http://127\.0\.0\.1:{port}/lab\?token=\w+")
    found = until("its address", lambda: url.search(log_of(server, "jupyter")))
    with urllib.request.urlopen(found[0]) as answer:
        assert "JupyterLab" in answer.read().decode()
    server.cli("stop", "-y", "jupyter")
    wait_for(server, "jupyter", "terminated", "done")
