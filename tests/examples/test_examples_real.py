"""The examples that need no GPU, run on the simulated cloud by the command line, as their pages say.

What is changed is what this machine can't do: an image becomes the packages of `.venvs/examples`, and a GPU, a size, a
region or a gateway is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.harness.ports import free_port
from tests.harness.server import ROOT, Server, until
from tests.runtime.live import log_of, wait_for

EXAMPLES = ROOT / "examples"
PACKAGES = ROOT / ".venvs" / "examples"
PYTHON = PACKAGES / "bin" / "python"
SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": "1GB.."}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make test` installs the packages into .venvs/examples"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts the folders that are volumes here"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {"DSTACK_SERVER_TRUST_JOBS": "on"}  # jobs read the packages of this user
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--no-local-fleet")
    one = Server(tmp_path_factory.mktemp("examples") / "home", flags=flags, env=env)
    one.home.mkdir()
    with contextlib.closing(one):
        one.start()
        applied(one, "cloud-fleet.dstack.yml", lambda config: config.update(nodes="0..4"))
        yield one


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


def test_a_night_finds_what_the_last_one_left(server: Server) -> None:
    applied(server, "nightly/volume.dstack.yml")
    said = applied(server, "nightly/report.dstack.yml", bool, "-d")
    assert "it starts by its schedule, next at" in said, said
    server.cli("stop", "-y", "nightly")
    wait_for(server, "nightly", "terminated", "done")
    for night in (1, 2):
        said = applied(server, "nightly/report.dstack.yml", lambda config: config.pop("schedule"))
        assert f"night {night}: " in said, said


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
