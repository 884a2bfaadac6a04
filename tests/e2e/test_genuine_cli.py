"""The genuine command line against our server: every step of a user's day, its screen and its exit status."""

from __future__ import annotations

import json
import subprocess

from tests.e2e.peer import VENV, Peer
from tests.harness.server import PATIENCE, Server, until

FLEET = """type: fleet
name: cloud
nodes: 0..2
idle_duration: 10m
resources:
  cpu: 1..
  memory: 0.5GB..
  disk: 1GB..
"""

TASK = """type: task
name: hello
fleets: [local]
commands:
  - echo "hello from $DSTACK_RUN_NAME"
  - echo "and an error" >&2
resources: &small
  cpu: 1..
  memory: 0.1GB..
  disk: 1GB..
"""

LONG = TASK.replace("name: hello", "name: long").replace("- echo", "- sleep 600; echo", 1)

CLOUD = TASK.replace("name: hello", "name: onthecloud").replace("fleets: [local]", "fleets: [cloud]")

FAILS = """type: task
name: fails
fleets: [local]
commands: [exit 7]
resources: {cpu: 1.., memory: 0.1GB.., disk: 1GB..}
"""


def write(peer: Peer, name: str, text: str) -> str:
    (peer.home / name).write_text(text)
    return name


def finished(server: Server, name: str) -> str:
    def status() -> str:
        found: str = server.call("/api/project/main/runs/get", {"run_name": name})["status"]
        return found if found in ("done", "failed", "terminated") else ""

    return str(until(f"{name} to finish", status))


def test_projects(peer: Peer, server: Server) -> None:
    header, row = peer.run("project", "list", "-v").rows()[:2]
    assert row[:3] == ["main", server.url, "admin"], (header, row)
    added = peer.run("project", "add", "--name", "main", "--url", server.url, "--token", server.token, "-y")
    assert "Configuration updated at" in added.text
    refused = peer.run("project", "add", "--name", "main", "--url", server.url, "--token", "wrong", "-y", expect=1)
    assert "is denied" in refused.text


def test_a_process_of_its_own_as_a_users_begins(peer: Peer, server: Server) -> None:
    """All others are copies of one that has its modules loaded."""
    command = [VENV / "bin" / "dstack", "project", "list"]
    done = subprocess.run(command, env=peer.environment(), capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert server.url in done.stdout and done.stderr == ""


def test_a_fleet_template_is_planned_applied_listed_and_deleted(peer: Peer) -> None:
    plan = peer.run("apply", "-y", "-f", write(peer, "fleet.dstack.yml", FLEET))
    assert "Nodes          min=0 target=0 max=2" in plan.text and "Fleet cloud does not exist yet" in plan.text
    offer = next(row for row in plan.rows() if row[0] == "1")
    assert offer[1] == "dstack" and offer[3].startswith("sim.") and offer[-1].startswith("$0."), plan.text
    assert plan.rows()[-1][:5] == ["cloud", "0..2", "on-demand", "*", "active"]
    shown = peer.run("fleet").rows()
    assert [row[:2] for row in shown[1:]] == [["cloud", "0..2"], ["local", "1"], ["instance=0", "-"]], shown
    assert shown[-1][2:4] == ["ssh (remote)", "idle"]
    assert peer.run("fleet", "list", "-v").rows()[-1][1].startswith("cpu=x86:")
    fleet = peer.json("fleet", "get", "cloud", "--json")
    assert fleet["spec"]["configuration"]["nodes"]["max"] == 2 and fleet["instances"] == []
    assert "No configuration changes detected" in peer.run("apply", "-y", "-f", "fleet.dstack.yml").text


def test_a_task_runs_detached_and_every_view_of_it_reads_right(peer: Peer, server: Server) -> None:
    applied = peer.run("apply", "-y", "-d", "-f", write(peer, "task.dstack.yml", TASK))
    assert "Run hello submitted, detaching..." in applied.text
    offer = next(row for row in applied.rows() if row[0] == "1")
    assert (offer[1], offer[3:]) == ("ssh (remote)", ["instance", "$0", "idle"]), applied.text
    assert finished(server, "hello") == "done"
    _, row = peer.run("ps", "-a").rows()
    assert row[:5] == ["hello", "ssh (remote)", "-", "$0", "exited (0)"]
    _, row = peer.run("ps", "-a", "-v").rows()
    assert row[:2] + row[3:6] == ["hello", "ssh (remote)", "instance", "$0", "exited (0)"] and row[2].startswith("cpu=")
    listed = json.loads(peer.run("ps", "-a", "--json").text)
    assert [run["run_spec"]["run_name"] for run in listed["runs"]] == ["hello"]
    logs = peer.run("logs", "hello").text.replace("\r", "")
    assert logs.splitlines() == ["hello from hello", "and an error"]
    run = json.loads(peer.run("run", "get", "hello", "--json").text)
    assert run["status"] == "done" and run["jobs"][0]["job_submissions"][0]["exit_status"] == 0


def test_a_failing_task_shows_its_status(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-d", "-f", write(peer, "fails.dstack.yml", FAILS))
    assert finished(server, "fails") == "failed"
    ps = {row[0]: row for row in peer.run("ps", "-a").rows()}
    assert "exited (7)" in ps["fails"], ps


def test_a_running_task_is_stopped_and_deleted(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-d", "-f", write(peer, "long.dstack.yml", LONG))
    until("it to run", lambda: server.call("/api/project/main/runs/get", {"run_name": "long"})["status"] == "running")
    assert [row[0] for row in peer.run("ps").rows() if "running" in row] == ["long"]
    assert "Stopped" in peer.run("stop", "-y", "long").text
    assert finished(server, "long") == "terminated"
    assert [row[0] for row in peer.run("ps", "-a").rows() if "stopped" in row] == ["long"]
    assert "Run long deleted" in peer.run("delete", "-y", "-f", "long.dstack.yml").text
    assert "long" not in [row[0] for row in peer.run("ps", "-a").rows()]
    assert "Run long does not exist" in peer.run("delete", "-y", "-f", "long.dstack.yml", expect=1).text


def test_a_task_buys_a_machine_of_the_simulated_cloud_and_the_next_reuses_it(peer: Peer, server: Server) -> None:
    name = write(peer, "cloud.dstack.yml", CLOUD)

    def machines() -> list[tuple[int, str, str]]:
        instances = peer.json("fleet", "get", "cloud", "--json")["instances"]
        return [(i["instance_num"], i["status"], i["backend"]) for i in instances]

    for _ in range(2):
        peer.run("apply", "-y", "-d", "-f", name)
        assert finished(server, "onthecloud") == "done"
        until("its machine to be idle", lambda: machines() == [(0, "idle", "dstack")])


def test_offers_secrets_events_and_metrics(peer: Peer) -> None:
    offers = peer.json("offer", "--json", "--max-offers", "3")
    assert offers["total_offers"] > 3 and len(offers["offers"]) == 3
    assert peer.json("offer", "--group-by", "gpu", "--json")["gpus"]
    peer.run("secret", "set", "token", "s3cret")
    assert "******" in peer.run("secret").text and "s3cret" not in peer.run("secret").text
    assert "s3cret" in peer.run("secret", "get", "token").text
    peer.run("secret", "delete", "token", "-y")
    assert "hello" in peer.run("event", "--target-run", "hello").text
    assert peer.run("event").text
    assert "job=0" in peer.run("metrics", "hello").text


def test_a_history_too_large_for_one_answer_is_listed_whole(peer: Peer, server: Server) -> None:
    """Twice 110 KB a run, 24 times: more than the 4 MB of an answer. What is left out is what clients can miss."""
    names = [f"bulky-{number}" for number in range(24)]
    for name in names:
        task = {"type": "task", "name": name, "commands": ["x" * 110_000], "fleets": ["nowhere"]}
        spec = {"run_name": name, "repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": task}
        server.call("/api/project/main/runs/apply", {"plan": {"run_spec": spec}, "force": False})
    shown = {row[0] for row in peer.run("ps", "-a", "-n", "100").rows()}
    assert shown >= {*names, "hello"}
    server.call("/api/project/main/runs/delete", {"runs_names": [n for n in names if finished(server, n)]})


def test_a_registrys_password_goes_through_a_plan_and_back_and_is_on_no_disk(peer: Peer, server: Server) -> None:
    auth = "registry_auth: {username: me, password: hush-hush}\n"
    path = write(peer, "private.dstack.yml", TASK.replace("name: hello", "name: private\nimage: r.example/x\n" + auth))
    for _ in range(2):
        assert "hush-hush" not in peer.run("apply", "-f", path, "-y", "-d").text
    run = server.call("/api/project/main/runs/get", {"run_name": "private"})
    assert run["run_spec"]["configuration"]["registry_auth"] == {"username": "me", "password": "(hidden)"}
    peer.run("stop", "private", "-x", "-y")
    kept = b"".join(path.read_bytes() for path in server.data.glob("*.db*"))
    assert b"r.example" in kept and b"hush-hush" not in kept


def test_there_is_no_single_sign_on(peer: Peer, server: Server) -> None:
    assert "No SSO providers" in peer.run("login", "--url", server.url, expect=1).text


def test_what_is_missing_is_said_without_a_traceback(peer: Peer) -> None:
    for command in (["run", "get", "nothing", "--json"], ["stop", "-y", "nothing"], ["logs", "nothing"]):
        assert "Run nothing not found" in peer.run(*command, expect=1).text
    assert json.loads(peer.run("gateway", "list", "--json").text) == {"project": "main", "gateways": []}
    assert "gateway" in peer.run("gateway", "get", "nothing", "--json", expect=1).text


def test_the_fleet_is_deleted_when_nothing_uses_it(peer: Peer, server: Server) -> None:
    assert "Fleet cloud deleted" in peer.run("fleet", "delete", "-y", "cloud").text
    until(
        "the fleet to go", lambda: "cloud" not in [f["name"] for f in server.call("/api/project/main/fleets/list", {})]
    )
    assert "Fleet cloud does not exist" in peer.run("fleet", "delete", "-y", "cloud", expect=1).text
