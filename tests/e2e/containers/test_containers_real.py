"""Containers that are bought in place of machines, through the whole plane: each run is in an image of its own, which
has no Python, and its container ends with it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.measure import submit, task
from tests.e2e.containers.cloud import ENGINE, SOLD
from tests.e2e.containers.under_load import NAME, Site
from tests.e2e.hosts.network import Namespace
from tests.e2e.test_attach_real import DSTACK, Client, environment
from tests.harness.carriers import architecture, carrier
from tests.harness.debian import NotHere
from tests.harness.docker import DockerEngine, bring, push
from tests.harness.image_registry import ImageRegistry, image_registry
from tests.harness.images import applets_image
from tests.harness.server import PATIENCE, Server, until
from tests.runtime.live import log_of, wait_for

pytestmark = pytest.mark.slow

IMAGE = "test/applets:1"
BRIDGE = "172.17.0.1"  # the engine's own address in the network of its containers
FLEET = "type: fleet\nname: pods\nnodes: 0..4\nregions: [sim-pods]\nplacement: cluster\n"


@pytest.fixture(scope="module")
def registry(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    """On the loopback that the server and the engine share."""
    place = Namespace(docker_engine.folder.name)
    try:
        with image_registry(tmp_path_factory.mktemp("r"), prefix=place.prefix, opener=place.opener()) as running:
            yield running
    except NotHere as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="module")
def server(
    docker_engine: DockerEngine, registry: ImageRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    try:
        carrier()
    except NotHere as problem:
        pytest.skip(str(problem))
    image = applets_image()
    assert image.name == IMAGE
    bring(docker_engine, image)
    place = Namespace(docker_engine.folder.name)
    one = Server(
        tmp_path_factory.mktemp("containers") / "home",
        env={ENGINE: docker_engine.socket, "DSTACK_SERVER_HOST": BRIDGE, "no_proxy": f"{BRIDGE},127.0.0.1"},
        network=place.path,
        opener=place.opener(),
        program="tests.e2e.containers.cloud",
    )
    (one.home / "server").mkdir(parents=True)
    (one.home / "server" / "config.yml").write_text(json.dumps({"projects": [], "registries": [registry.host]}))
    try:
        one.start()
        apply(one, "pods", FLEET)
        yield one
    finally:
        one.close()
        for found in docker_engine.api.labelled(SOLD):
            docker_engine.api.remove(found["Id"])


def resources() -> dict[str, Any]:
    """Of a processor that runs this machine's images."""
    return {"cpu": f"{architecture()}:1..", "memory": "0.1GB..", "disk": None}


def apply(server: Server, name: str, text: str) -> str:
    path = server.home / f"{name}.dstack.yml"
    path.write_text(text)
    return server.cli("apply", "-y", "-d", "-f", str(path))


def run(server: Server, name: str, *commands: str, **more: Any) -> None:
    submit(server, task(name, *commands, **{"image": IMAGE, "resources": resources(), **more}))


def printed(server: Server, name: str) -> list[str]:
    """What a run's commands have printed, after the greeting of busybox's shell."""
    greeting, _, output = log_of(server, name).partition("Enter 'help' for a list of built-in commands.")
    assert "BusyBox" in greeting, greeting
    return [line for line in output.splitlines() if line]


def sold(engine: DockerEngine) -> list[dict[str, Any]]:
    return engine.api.labelled(SOLD)


def nothing_left(server: Server, engine: DockerEngine) -> None:
    """Neither an instance nor a container."""

    def left() -> list[Any]:
        (fleet,) = server.call("/api/project/main/fleets/list", {})
        return [each for each in fleet["instances"] if each["status"] != "terminated"]

    until("the instance to be terminated", lambda: not left(), seconds=2 * PATIENCE)
    until("the container to go", lambda: not sold(engine))


def test_a_task_runs_in_its_image_with_its_files_and_its_container_goes_with_it(
    server: Server, docker_engine: DockerEngine
) -> None:
    (server.home / "data").mkdir()
    (server.home / "data/one.txt").write_text("one\n")
    (server.home / "two.txt").write_text("two\n")
    apply(
        server,
        "work",
        f"""type: task
name: work
image: {IMAGE}
resources: {json.dumps(resources())}
env: [OURS=said]
files:
  - data
  - two.txt:/conf/two.txt
commands:
  - echo "$(pwd) $(id -u) <$IMAGE> <$OURS> <${{DSTACK_TOKEN-}}>"; command -v python3 || echo no python
  - cat data/one.txt /conf/two.txt
""",
    )
    found = wait_for(server, "work", "done", "failed")
    submission = found["latest_job_submission"]
    assert (found["status"], submission["exit_status"]) == ("done", 0), submission
    assert printed(server, "work") == ["/work 0 <its own> <said> <>", "no python", "one", "two"]
    assert submission["job_provisioning_data"]["region"] == "sim-pods"
    nothing_left(server, docker_engine)


def test_a_task_without_commands_runs_what_its_image_runs(
    server: Server, docker_engine: DockerEngine, registry: ImageRegistry
) -> None:
    """As docker would: the entry point with its arguments, as the image's user, where the image says. Its registry has
    no public address, so it is looked up because it is listed."""
    script = 'echo "$0 $* $(pwd) $(id -u):$(id -g) <$IMAGE> <$OURS>"; exit 5'
    whole = {"entry_point": ("/bin/sh", "-c", script, "own"), "command": "an argument", "user": "77:78"}
    image = replace(applets_image(), name=f"{registry.host}/team/own:1", **whole)
    bring(docker_engine, image)
    push(docker_engine, image)
    run(server, "own", image=image.name, env={"OURS": "said"})
    run(server, "unlisted", image="127.0.0.1:9/team/own:1")
    found = wait_for(server, "own", "done", "failed")
    submission = found["latest_job_submission"]
    assert (submission["termination_reason"], submission["exit_status"]) == ("container_exited_with_error", 5)
    assert log_of(server, "own") == "own an argument /work 77:78 <its own> <said>\r\n"
    unlisted = wait_for(server, "unlisted", "done", "failed")["latest_job_submission"]
    assert "`registries: [127.0.0.1:9]` in server/config.yml" in unlisted["termination_reason_message"], unlisted
    nothing_left(server, docker_engine)


def test_a_task_that_fails_ends_its_run_with_its_status(server: Server, docker_engine: DockerEngine) -> None:
    run(server, "fails", "id -u", "exit 3", "echo after", user="12345:54321")
    found = wait_for(server, "fails", "done", "failed")
    submission = found["latest_job_submission"]
    reason = submission["termination_reason"]
    assert (found["status"], submission["exit_status"], reason) == ("failed", 3, "container_exited_with_error")
    assert printed(server, "fails") == ["12345"]
    nothing_left(server, docker_engine)


def test_a_task_that_is_stopped_twice_ends_once(server: Server, docker_engine: DockerEngine) -> None:
    run(server, "long", "trap 'echo bye; exit 4' TERM", "echo up", "while :; do sleep 1; done")
    until("it to be up", lambda: "up" in log_of(server, "long"))
    (pod,) = sold(docker_engine)
    assert (pod["Image"], pod["State"]) == (IMAGE, "running")
    for _ in range(2):
        server.call("/api/project/main/runs/stop", {"runs_names": ["long"], "abort": False})
    found = wait_for(server, "long", "done", "failed", "terminated")
    submission = found["latest_job_submission"]
    assert (found["status"], submission["termination_reason"]) == ("terminated", "terminated_by_user")
    lines = printed(server, "long")  # the shell may say that its `sleep` was terminated
    assert (lines[0], lines.count("bye")) == ("up", 1)
    nothing_left(server, docker_engine)


def test_containers_that_cannot_start_fail_their_runs_with_the_reasons(
    server: Server, docker_engine: DockerEngine
) -> None:
    run(server, "no-image", "true", image="test/nowhere:1")
    run(server, "no-user", "true", user="stranger")
    for name, reason in (
        ("no-image", "No such image: test/nowhere:1"),
        ("no-user", "unable to find user stranger"),
    ):
        found = wait_for(server, name, "done", "failed")
        submission = found["latest_job_submission"]
        assert (found["status"], submission["termination_reason"]) == ("failed", "creating_container_error")
        assert reason in submission["termination_reason_message"], submission
    nothing_left(server, docker_engine)


def test_a_repository_needs_git_in_the_image(server: Server, docker_engine: DockerEngine) -> None:
    of_remote = {"repo_type": "remote", "repo_name": "app"}
    credentials = {"clone_url": "https://example.org/app.git", "private_key": None, "oauth_token": None}
    given = {"repo_id": "app-1", "repo_info": of_remote, "repo_creds": credentials}
    server.call("/api/project/main/repos/init", given)
    spec = task("cloned", "true", image=IMAGE, resources=resources())
    submit(server, {**spec, "repo_id": "app-1", "repo_data": {**of_remote, "repo_branch": "main", "repo_hash": None}})
    found = wait_for(server, "cloned", "done", "failed")
    submission = found["latest_job_submission"]
    assert (found["status"], submission["termination_reason"]) == ("failed", "executor_error")
    assert "if the machine is a container, in the job's image" in submission["termination_reason_message"], submission
    nothing_left(server, docker_engine)


def test_replicas_in_containers_reach_each_other(server: Server, docker_engine: DockerEngine) -> None:
    serve, back = "exec httpd -f -p 8000", "${{ groups[0].replicas[0].IP_ADDRESS }}"
    fetch = f"until wget -q -O index.html http://{back}:8000/; do sleep 0.2; done"
    groups = [
        {"name": "back", "replicas": 1, "commands": ["echo from the back >index.html", serve]},
        {"name": "front", "replicas": 1, "commands": [fetch, "echo through the front >>index.html", serve]},
    ]
    of_groups = [{**each, "resources": resources()} for each in groups]
    spec = task(NAME, type="service", port=8000, auth=False, image=IMAGE, groups=of_groups)
    del spec["configuration"]["commands"], spec["configuration"]["resources"]
    submit(server, spec)
    site = Site(server)
    until("both", lambda: site.get("/")[1] == "from the back\nthrough the front\n")
    server.call("/api/project/main/runs/stop", {"runs_names": [NAME], "abort": False})
    wait_for(server, NAME, "done", "failed", "terminated")
    nothing_left(server, docker_engine)


def test_a_run_in_a_container_is_attached_to(server: Server, docker_engine: DockerEngine, tmp_path: Path) -> None:
    """Its log, a command in it, and its port, though its image has no SSH server."""
    commands = ["echo served >index.html", "echo up", "exec httpd -f -p 127.0.0.1:8000"]
    run(server, "held", *commands, ports=["18474:8000"], user="12345:54321", working_dir="/tmp")
    program = [*server.prefix, *DSTACK]
    with contextlib.closing(Client(server, tmp_path, "attach", "held", "--logs", program=program)) as attached:
        attached.wait_for("ssh held\n")
        attached.wait_for("up")
        line = [*server.prefix, "ssh", "-F", str(server.home / ".ssh" / "config"), "held", "id -u; pwd; echo $IMAGE"]
        done = subprocess.run(
            line, env=environment(server), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
        assert (done.stdout, done.returncode) == ("12345\n/tmp\nits own\n", 0), done.stderr
        assert server.opener is not None
        with server.opener.open("http://127.0.0.1:18474/", timeout=PATIENCE) as reply:
            assert reply.read() == b"served\n"
        assert attached.detach() == 0
    server.call("/api/project/main/runs/stop", {"runs_names": ["held"], "abort": False})
    wait_for(server, "held", "done", "failed", "terminated")
    nothing_left(server, docker_engine)
