"""The genuine web console works on our API: the bundle that its wheel installs, in a real browser, page by page and
click by click. It is a client that we don't ship."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.measure import submit, task
from tests.e2e.peer import VENV
from tests.harness.server import PATIENCE, ROOT, HttpError, Server, until
from tests.runtime.live import run_of, wait_for

HERE = ROOT / "tests" / "e2e" / "console"
BROWSER = ROOT / ".venvs" / "console"
IN = "/api/project/main"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Four local hosts, with a run that ended and one on two nodes that goes on, and a cloud with a volume."""
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--local-hosts", "4")
    one = Server(tmp_path_factory.mktemp("console") / "home", flags=flags, env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    try:
        one.start()
        until("the hosts", lambda: sum(each["status"] == "idle" for each in instances(one)) == 4)
        submit(one, task("ended", "echo said and done"))
        pair = task("pair", "echo both are here; sleep 36000")
        pair["configuration"]["nodes"] = 2
        submit(one, pair)
        made = {"type": "volume", "name": "disk", "backend": "aws", "region": "sim-east", "size": "1GB"}
        one.call(f"{IN}/volumes/create", {"configuration": made})
        one.call("/api/users/create", {"username": "ann", "global_role": "user"})
        wait_for(one, "ended", "done")
        wait_for(one, "pair", "running")
        yield one
    finally:
        one.close()


def instances(server: Server) -> list[dict[str, Any]]:
    return list(server.call("/api/instances/list", {}))


def drive(server: Server, program: str, token: str, **options: Any) -> Any:
    """What a program of the browser's found, signed in with that token; no call and no script may have failed."""
    if not (BROWSER / ".installed").exists() or not VENV.exists():
        pytest.skip("the browser or the console isn't installed here; `make test` installs them into .venvs")
    (files,) = VENV.glob("lib/*/site-packages/dstack/_internal/server/statics")
    parameters = {"files": str(files), "api": server.url, "token": token, **options}
    done = subprocess.run(
        ["node", str(HERE / program), json.dumps(parameters)],
        cwd=BROWSER,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == []
    return found


def pages(server: Server) -> dict[str, str]:
    """A path, and words that its page shows only if what it asked for came."""
    pair, ended = (f"/projects/main/runs/{run_of(server, name)['id']}" for name in ("pair", "ended"))
    one = next(each for each in instances(server) if each["name"] == "local-0")
    fleet, instance = f"/projects/main/fleets/{one['fleet_id']}", f"/projects/main/instances/{one['id']}"
    return {
        "/runs": "pair",
        pair: "Running",
        f"{pair}/events": "provisioning → running",
        f"{pair}/inspect": '"pair"',
        ended: "Exited (0)",
        f"{ended}/logs": "said and done",
        f"{ended}/metrics": "CPU utilization",
        "/runs/launch": "dstack apply",
        "/offers": "H100",
        "/fleets": "local",
        fleet: "Active",
        f"{fleet}/offers": "H100",
        f"{fleet}/events": "Fleet main/local",
        f"{fleet}/inspect": '"ssh_config"',
        "/instances": "local-3",
        instance: "localhost",
        f"{instance}/events": "its agent reports",
        f"{instance}/inspect": '"local-0"',
        "/volumes": "disk",
        "/models": "No models",
        "/projects": "main",
        "/projects/add": "Name and visibility",
        "/projects/main": "No gateways",
        "/projects/main/backends/add": "Backend config",
        "/users": "ann",
        "/users/add": "Enter user email",
        "/users/ann": "Global role",
        "/users/admin/projects": "main",
        "/users/admin/edit": "Rotate",
    }


def test_every_page_loads_what_it_shows(server: Server) -> None:
    found = drive(server, "visit.mjs", server.token, pages=pages(server), follow=True)
    assert set(pages(server)) < set(found["found"])
    lists = ("runs", "fleets", "instances", "volumes", "projects", "users", "events", "users/public_keys")
    assert {f"POST /api/{noun}/list" for noun in lists} <= set(found["calls"])


def test_a_member_of_a_project_sees_what_is_theirs(server: Server) -> None:
    """Without a call that only admins may make."""
    server.call("/api/users/create", {"username": "dan", "global_role": "user"})
    members = {"members": [{"username": "dan", "project_role": "user"}]}
    server.call("/api/projects/main/add_members", members)
    token = server.call("/api/users/refresh_token", {"username": "dan"})["creds"]["token"]
    shown = {path: text for path, text in pages(server).items() if not path.endswith(("/add", "/inspect"))}
    permitted = {path: text for path, text in shown.items() if not path.startswith("/users")}
    drive(server, "visit.mjs", token, pages={**permitted, "/users/dan": "SSH keys"}, follow=False)


def test_what_is_done_by_clicking_is_done(server: Server, tmp_path: Path) -> None:
    for name in ("to-stop", "to-abort"):
        submit(server, task(name, "sleep 36000"))
        wait_for(server, name, "running")
    spare = {"configuration": {"type": "fleet", "name": "spare", "nodes": {"min": 0, "max": 1}, "backends": ["aws"]}}
    server.call(f"{IN}/fleets/apply", {"plan": {"spec": spare}, "force": False})
    server.call("/api/projects/create", {"project_name": "dull"})
    server.call("/api/users/create", {"username": "carl", "global_role": "user"})
    key = public_key(tmp_path)
    rotated = server.call("/api/users/refresh_token", {"username": "ann"})["creds"]["token"]

    drive(server, "click.mjs", server.token, key=key)

    assert wait_for(server, "to-stop", "terminated")["termination_reason"] == "stopped_by_user"
    assert wait_for(server, "to-abort", "terminated")["termination_reason"] == "aborted_by_user"
    until("the fleet to go", lambda: names(server.call(f"{IN}/fleets/list", {})) == {"local"})
    until("the volume to go", lambda: server.call(f"{IN}/volumes/list") == [])
    assert names(server.call("/api/projects/list"), "project_name") == {"lab", "main"}
    assert len(server.call("/api/project/lab/fleets/list", {})) == 1
    assert names(server.call("/api/users/list"), "username") & {"bea", "carl"} == {"bea"}
    with pytest.raises(HttpError, match="HTTP 403"):
        server.call("/api/users/get_my_user", token=rotated)
    assert "ann" in names([each["user"] for each in server.call("/api/projects/main/get")["members"]], "username")
    assert server.call(f"{IN}/secrets/get", {"name": "hush"})["value"] == "nobody knows"
    assert names(server.call("/api/users/public_keys/list")) == {"laptop"}


def names(found: list[dict[str, Any]], of: str = "name") -> set[str]:
    return {each[of] for each in found}


def public_key(folder: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    return (folder / "key.pub").read_text()
