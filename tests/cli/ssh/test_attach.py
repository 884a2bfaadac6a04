"""Attaching to a run: the route, the output and the files, and what happens when the connection is lost."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.fake_ssh import HOST_KEY, ME, PRIVATE, PUBLIC, FakeSsh, FakeTunnel
from tests.cli.plane import Plane, finished, log_page, run, steps, submission


def running(name: str = "train", *, ports: Any = (), job: int = 0, configuration: Any = None, **placed: Any) -> Any:
    """A run whose job has an SSH server at port 40022 of its machine."""
    data = {"hostname": "10.0.0.7", "ssh_port": 22, "username": "ubuntu", "dockerized": True, "ssh_proxy": None}
    plain = submission()
    latest = {
        **plain,
        "job_provisioning_data": {**plain["job_provisioning_data"], **data, **placed},
        "job_runtime_data": {"ports": {"10022": 40022}, "username": "worker"},
        "login": {"port": 40022, "username": "worker", "host_key": HOST_KEY, "problem": ""},
    }
    found = run(name, latest=latest)
    found["jobs"][0]["job_spec"] |= {"job_num": job, "app_specs": [dict(zip(APP, one, strict=True)) for one in ports]}
    found["run_spec"] |= {"ssh_key_pub": f"{PUBLIC} admin@laptop\n"}
    found["run_spec"]["configuration"] |= configuration or {}
    return found


class Clock:
    """It goes on while somebody sleeps."""

    time = 1_795_237_260.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


APP = ("port", "map_to_port", "app_name")
HEAD = {"hostname": "login.lab", "port": 2222, "username": "ann"}


@pytest.fixture
def plane(plane: Plane) -> Plane:
    plane.answers |= {"/api/users/get_my_user": ME, "/logs/poll": log_page("one\n")}
    return plane


@pytest.fixture
def attach(dstack: Dstack, plane: Plane) -> Any:
    """Attaches to a run that ends after some polls."""

    def call(*args: str, to: Any = None, polls: int = 3, ssh: FakeSsh | None = None, **how: Any) -> Any:
        plane.answers["/runs/get"] = steps(*[to or running()] * polls, finished())
        return dstack("attach", "train", *args, ssh=ssh or FakeSsh(), **how)

    return call


def test_it_tells_how_to_log_in_and_ends_as_the_run(attach: Any) -> None:
    ended = attach()
    assert ended.code == 0 and ended.out == ""
    lines = ended.err.splitlines()
    assert lines[0] == "Attaching to train. Ctrl-C detaches and leaves it running."
    assert lines[1:3] == ["Attached to train (replica 0, job 0), through the server.", "  ssh train"]


def test_the_machine_is_reached_directly_if_it_answers(attach: Any) -> None:
    ssh = FakeSsh(reachable=True)
    assert "(replica 0, job 0), directly." in attach(ssh=ssh).err
    (started,) = ssh.started
    assert "Host train_host train-host\n    HostName 10.0.0.7\n    Port 22\n    User ubuntu\n" in started.config
    assert "Host train\n    HostName localhost\n    Port 40022\n    User worker\n" in started.config
    assert "ProxyJump train_host" in started.config and "cli.ssh.proxy" not in started.config
    assert started.files["known_hosts"] == f"train {HOST_KEY}\n"
    assert "endpoint.json" not in started.files, "no token where none is needed"


def test_over_a_head_node_with_the_keys_that_the_user_has_for_it(attach: Any) -> None:
    ssh = FakeSsh(reachable=True)
    assert "over its head node" in attach(to=running(ssh_proxy=HEAD), ssh=ssh).err
    config = ssh.started[0].config
    assert config.startswith(
        "Host train_jump_host train-jump-host\n    HostName login.lab\n    Port 2222\n    User ann\n"
    )
    assert "IdentityFile /home/me/.ssh/for-login.lab" in config and "ProxyJump train_jump_host" in config


def test_a_machine_that_cant_be_reached_is_reached_through_the_server(attach: Any) -> None:
    ssh = FakeSsh()
    attach(ssh=ssh)
    (started,) = ssh.started
    assert "ProxyCommand " in started.config and "-m cli.ssh.proxy" in started.config
    assert '"run": "train", "replica": 0, "job": 0' in started.files["endpoint.json"]


def test_a_way_that_fails_is_followed_by_the_next(attach: Any) -> None:
    ssh = FakeSsh([FakeTunnel("x", "ubuntu@10.0.0.7: Permission denied (publickey)."), FakeTunnel("u")], reachable=True)
    assert "through the server" in attach(ssh=ssh, polls=4).err
    assert ["cli.ssh.proxy" in one.config for one in ssh.started] == [False, True]


@pytest.mark.slow
def test_where_no_way_leads_there_all_are_told(attach: Any) -> None:
    ssh = FakeSsh([FakeTunnel("x", "Permission denied"), FakeTunnel("x", "The host didn't answer")] * 9, reachable=True)
    clock = Clock()
    ended = attach(ssh=ssh, polls=500, now=clock.now, sleep=clock.sleep)
    assert ended.code == 1
    assert (
        "Nothing reaches the job of train:\n  directly: Permission denied\n  through the server: The host" in ended.err
    )
    assert len(ssh.started) == 8, "each way four times"


def test_a_lost_connection_is_made_again(attach: Any) -> None:
    ssh = FakeSsh([FakeTunnel("uux", "Timeout, server train not responding."), FakeTunnel("u")])
    lines = attach(ssh=ssh, polls=8).err.splitlines()
    lost = "The connection to train was lost (Timeout, server train not responding.); attaching again."
    attached = "Attached to train (replica 0, job 0), through the server."
    assert [line for line in lines if line in (lost, attached)] == [attached, lost, attached]
    assert ssh.tunnels[0].ended and ssh.tunnels[1].ended, "nothing is left"


@pytest.mark.slow
def test_once_it_was_attached_it_never_gives_up(attach: Any) -> None:
    ssh = FakeSsh([FakeTunnel("ux"), *[FakeTunnel("x")] * 9, FakeTunnel("u")])
    clock = Clock()
    ended = attach(ssh=ssh, polls=500, now=clock.now, sleep=clock.sleep)
    assert ended.code == 0 and ended.err.count("Attached to train") == 2 and len(ssh.started) == 11


@pytest.mark.slow
def test_it_waits_longer_after_each_failure(attach: Any) -> None:
    ssh = FakeSsh([FakeTunnel("ux"), FakeTunnel("x")])
    clock = Clock()
    attach(ssh=ssh, polls=100, now=clock.now, sleep=clock.sleep)
    assert clock.time - Clock.time > 50 and len(ssh.started) == 9, "after 1, 2, 4, 8 seconds, then every 10"


@pytest.mark.slow
def test_a_connection_that_never_lasts_is_made_ever_more_slowly(attach: Any) -> None:
    clock = Clock()
    brief = FakeSsh([FakeTunnel("ux")])
    attach(ssh=brief, polls=100, now=clock.now, sleep=clock.sleep)
    assert clock.time - Clock.time > 50 and len(brief.started) <= 10, "at once, after 1, 2, 4, 8 seconds, then every 10"
    lasting = FakeSsh([*[FakeTunnel("u" * 120 + "x")] * 3, FakeTunnel("u")])
    output = attach(ssh=lasting, polls=450, now=clock.now, sleep=clock.sleep).err
    assert output.count("attaching again") == 3 and len(lasting.started) == 4


def test_the_log_is_followed_meanwhile_and_only_if_asked_for(attach: Any) -> None:
    assert attach("--logs").out == "one\n"
    assert attach().out == ""


def test_ports_are_forwarded_and_told(attach: Any) -> None:
    ssh = FakeSsh()
    output = attach(to=running(ports=[(8471, None, "a"), (8472, 8571, "b")]), ssh=ssh).err
    assert ssh.started[0].forwards == ["localhost:8471:localhost:8471", "localhost:8571:localhost:8472"]
    assert "  localhost:8571 → port 8472 of the job\n" in output


def test_a_local_port_can_be_chosen_for_a_port_of_the_run(attach: Any) -> None:
    ssh = FakeSsh()
    attach("-p", "8600:8471", "--host", "127.0.0.1", to=running(ports=[(8471, 8471, "a")]), ssh=ssh)
    assert ssh.started[0].forwards == ["127.0.0.1:8600:localhost:8471"]
    ended = attach("-p", "9999", to=running(ports=[(8471, 8471, "a")]))
    assert ended.code == 2 and "the run doesn't have the port 9999.\nIts ports are 8471." in ended.err


def test_a_port_in_use_is_named(attach: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = attach(to=running(ports=[(80, port, "a")]))
        assert ended.code == 1
        assert f"Port {port} of this machine is in use" in ended.err and f"-p {port + 1}:80" in ended.err
        ssh = FakeSsh()
        attach(to=running(ports=[(port, None, "a")]), ssh=ssh)
        assert not ssh.started[0].forwards[0].startswith(f"localhost:{port}:"), "`*:PORT` takes another"


def test_a_port_that_is_taken_meanwhile_is_named_too(attach: Any) -> None:
    error = "bind [127.0.0.1]:8471: Address already in use; cannot listen to port: 8471"
    ended = attach(to=running(ports=[(8471, 8471, "a")]), ssh=FakeSsh([FakeTunnel("x", error)]))
    assert ended.code == 1 and "Port 8471 of this machine is in use" in ended.err


def test_other_nodes_have_hosts_of_their_own(attach: Any) -> None:
    output = attach("--job", "1", to=running(job=1)).err
    assert "Attached to train (replica 0, job 1)" in output and "  ssh train-1-0\n" in output


def test_the_link_of_a_dev_environment_is_shown_where_its_log_isnt(attach: Any) -> None:
    found = running(configuration={"type": "dev-environment", "ide": "zed"})
    found["jobs"][0]["job_connection_info"] = {"attached_ide_url": "zed://ssh/train/work"}
    assert "  zed://ssh/train/work\n" in attach(to=found).err
    assert "zed://" not in attach("--logs", to=found).err


def test_ctrl_c_detaches_and_leaves_nothing(attach: Any, dstack: Dstack) -> None:
    ssh = FakeSsh()
    ended = attach(ssh=ssh, polls=9, sleep=interrupt_at(2))
    assert ended.code == 0 and "Detached; train keeps running." in ended.err
    assert ssh.tunnels[0].ended
    folder = dstack.terminal.home / ".dstack" / "ssh"
    assert list((folder / "runs").iterdir()) == []


def test_the_users_key_is_kept_for_nobody_else(attach: Any, dstack: Dstack) -> None:
    ssh = FakeSsh()
    attach(ssh=ssh)
    folder = dstack.terminal.home / ".dstack" / "ssh"
    (key,) = [path for path in folder.iterdir() if path.is_file() and path.read_text() == PRIVATE]
    assert key.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
    assert f"IdentityFile {key}\n    IdentitiesOnly yes" in ssh.started[0].config
    assert (folder / f"{key.name}.pub").read_text() == f"{PUBLIC}\n"


def test_the_users_own_configuration_includes_ours_first(attach: Any, dstack: Dstack) -> None:
    own = dstack.terminal.home / ".ssh" / "config"
    own.parent.mkdir()
    own.write_text("Host *\n    User ann\n")
    own.chmod(0o644)
    attach()
    attach()
    lines = own.read_text().splitlines()
    assert lines[1] == f"Include {dstack.terminal.home}/.dstack/ssh/runs/*/config"
    assert lines[2:] == ["Host *", "    User ann"] and own.stat().st_mode & 0o777 == 0o644


def test_a_configuration_that_cant_be_changed_is_no_obstacle(attach: Any, dstack: Dstack) -> None:
    (dstack.terminal.home / ".ssh").write_text("a file, where a folder should be")
    output = attach().err
    assert "~/.ssh/config can't be changed" in output
    assert f"  ssh -F {dstack.terminal.home}/.dstack/ssh/runs/train/config train\n" in output


@pytest.mark.parametrize("sent", [{"ssh_private_key": "key"}, {"ssh_public_key": "a\nb"}, {"ssh_private_key": 7}])
def test_what_isnt_a_key_isnt_written(attach: Any, plane: Plane, dstack: Dstack, sent: dict[str, Any]) -> None:
    plane.answers["/api/users/get_my_user"] = ME | sent
    ended = attach()
    assert ended.code == 1 and "which it can't be, so it wasn't used" in ended.err, ended
    assert not [path for path in (dstack.terminal.home / ".dstack" / "ssh").glob("*") if path.is_file()]


def test_another_key_is_asked_for_by_name(attach: Any, dstack: Dstack, plane: Plane) -> None:
    plane.answers["/api/users/get_my_user"] = {**ME, "ssh_public_key": HOST_KEY}
    ended = attach()
    assert ended.code == 1 and "submitted with another key of yours" in ended.err and "--ssh-identity" in ended.err
    plane.answers["/api/users/get_my_user"] = {**ME, "ssh_public_key": HOST_KEY, "username": "bob"}
    assert "another key of admin's" in attach().err


def test_a_key_of_ones_own(attach: Any, given_key: Path, plane: Plane) -> None:
    ssh = FakeSsh()
    plane.requests.clear()
    assert attach("--ssh-identity", str(given_key), ssh=ssh).code == 0
    assert f"IdentityFile {given_key}\n" in ssh.started[0].config
    assert "/api/users/get_my_user" not in plane.paths()
    assert "is not a private key" in attach("--ssh-identity", __file__).err


@pytest.fixture
def given_key(tmp_path: Path) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    kind = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    (tmp_path / "key").write_bytes(Ed25519PrivateKey.generate().private_bytes(*kind))
    return tmp_path / "key"


def test_a_job_without_a_server_is_told(attach: Any) -> None:
    none = running()
    none["jobs"][0]["job_submissions"][0]["login"] = {"port": 0, "problem": "sshd isn't installed on its machine."}
    ended = attach(to=none)
    assert ended.code == 1 and "takes no SSH connections: sshd isn't installed on its machine.\n" in ended.err
    ended = attach("--logs", to=none)
    assert (ended.code, ended.out) == (0, "one\n") and "Not attached: This job takes no SSH" in ended.err


def test_a_job_whose_machine_hasnt_told_yet_is_waited_for(attach: Any, plane: Plane) -> None:
    early = running()
    early["jobs"][0]["job_submissions"][0] |= {"login": None, "job_runtime_data": {"ports": {}}}
    ssh = FakeSsh()
    ended = attach(ssh=ssh, to=early)
    assert ended.code == 0 and ssh.started == [] and "Attached" not in ended.err


def test_a_job_on_this_machine_is_logged_in_to_at_once(attach: Any) -> None:
    local = running(hostname="localhost", ssh_port=40022, dockerized=False)
    ssh = FakeSsh(reachable=True)
    assert "directly" in attach(to=local, ssh=ssh).err
    assert ssh.started[0].config.startswith("Host train\n    HostName localhost\n    Port 40022\n    User worker\n")
    assert "ProxyCommand none\n" in ssh.started[0].config and "ProxyJump" not in ssh.started[0].config
    ssh = FakeSsh(reachable=False)
    assert "through the server" in attach(to=local, ssh=ssh).err, (
        "it is this machine's only if this client is there too"
    )


def test_a_machine_without_an_address_is_reached_through_the_server(attach: Any) -> None:
    output = attach(to=running(hostname=None, ssh_port=40022, dockerized=False), ssh=FakeSsh(reachable=True)).err
    assert "through the server" in output


def test_since_needs_a_log(attach: Any) -> None:
    ended = attach("--since", "5m")
    assert ended.code == 2 and "add --logs" in ended.err


# --- apply ----------------------------------------------------------------------------------------------------------


NEEDS = {"resources": {"cpu": {"count": {"min": 1}}}, "spot": False, "max_price": None}


@pytest.fixture
def task(dstack: Dstack, plane: Plane) -> Dstack:
    (dstack.terminal.cwd / ".dstack.yml").write_text(
        "type: task\nname: train\ncommands: [serve]\nports: ['8571:8471']\n"
    )
    plane.answers |= {
        "/repos/init": None,
        "/runs/get_plan": lambda body: {
            "project_name": "main",
            "user": "admin",
            "run_spec": body["run_spec"],
            "effective_run_spec": body["run_spec"],
            "job_plans": [{"job_spec": {"requirements": NEEDS}, "offers": [], "total_offers": 0, "max_price": None}],
            "current_resource": None,
            "action": "create",
            "notes": [{"subject": "x", "text": "y", "hint": ""}],
        },
        "/runs/apply": run("train", "submitted"),
        "/runs/get": steps(*[running(ports=[(8471, 8571, "a")])] * 3, finished()),
    }
    return dstack


def test_an_attached_apply_forwards_ports_beside_the_log(task: Dstack) -> None:
    ssh = FakeSsh()
    ended = task("apply", "-y", ssh=ssh)
    assert ended.code == 0 and ended.out.endswith("one\n")
    assert ssh.started[0].forwards == ["localhost:8571:localhost:8471"]
    assert "  localhost:8571 → port 8471 of the job\n  ssh train\n" in ended.err
    assert ssh.tunnels[0].ended


@pytest.mark.slow
def test_an_apply_without_a_connection_shows_the_log_all_the_same(task: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get"] = steps(*[running(ports=[(8471, 8571, "a")])] * 99, finished())
    clock = Clock()
    ssh = FakeSsh([FakeTunnel("x", "Permission denied")])
    ended = task("apply", "-y", ssh=ssh, now=clock.now, sleep=clock.sleep)
    assert ended.code == 0 and ended.out.endswith("one\n")
    assert ended.err.count("Not attached: Nothing reaches the job of train:\n  through the server: Permission") == 1


def test_a_home_that_keeps_nothing_costs_the_connection_and_not_the_log(task: Dstack, attach: Any) -> None:
    folder = task.terminal.home / ".dstack" / "ssh"
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file, where a folder should be")
    ended = task("apply", "-y", ssh=FakeSsh())
    assert (
        ended.code == 0 and ended.out.endswith("one\n") and ended.err.count(f"Not attached: {folder}: File exists") == 1
    )
    ended = attach()
    assert ended.code == 1 and f"{folder}: File exists" in ended.err and "kept in ~/.dstack/ssh" in ended.err


def test_a_run_whose_ports_cant_be_had_isnt_started(task: Dstack, plane: Plane) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = task("apply", "-y", "-p", f"{port}:8471")
    assert ended.code == 1 and f"Port {port} of this machine is in use" in ended.err
    assert not plane.requests


def test_a_detached_apply_needs_no_ports(task: Dstack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = task("apply", "-y", "-d", "-p", f"{taken.getsockname()[1]}:8471", ssh=FakeSsh())
    assert ended.code == 0


# --- the log ----------------------------------------------------------------------------------------------------------


def test_the_log_begins_after_what_was_attached(dstack: Dstack, plane: Plane) -> None:
    """An application names its port in its first lines, and the user's may be another."""
    to = running(ports=[(8000, None, "web")])
    clock = Clock()
    ssh = FakeSsh([FakeTunnel("..u")])
    plane.answers["/runs/get"] = steps(*[to] * 6, finished())
    shown, code = replace(
        dstack, terminal=replace(dstack.terminal, ssh=ssh, now=clock.now, sleep=clock.sleep)
    ).together("attach", "train", "--logs")
    lines = shown.splitlines()
    assert code == 0 and lines.index("one") == lines.index("  ssh train") + 1 > lines.index(
        "Attached to train (replica 0, job 0), through the server."
    )


@pytest.mark.parametrize("life", ["....................", "x"])
@pytest.mark.slow
def test_but_it_doesnt_wait_for_long(dstack: Dstack, plane: Plane, life: str) -> None:
    clock = Clock()
    plane.answers["/runs/get"] = steps(*[running()] * 500, finished())
    printed: list[float] = []
    plane.answers["/logs/poll"] = lambda body: printed.append(clock.time) or log_page("one\n")
    changes = {"ssh": FakeSsh([FakeTunnel(life)]), "now": clock.now, "sleep": clock.sleep}
    dstack("attach", "train", "--logs", **changes)
    assert 1.5 < printed[0] - Clock.time < 3


def test_nobody_waits_for_what_is_not_announced(task: Dstack, plane: Plane) -> None:
    clock = Clock()
    plane.answers["/runs/get"] = steps(*[running()] * 30, finished())
    printed: list[float] = []
    plane.answers["/logs/poll"] = lambda body: printed.append(clock.time) or log_page("one\n")
    task("apply", "-y", ssh=FakeSsh([FakeTunnel("...")]), now=clock.now, sleep=clock.sleep)
    assert printed[0] == Clock.time
