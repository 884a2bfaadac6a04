"""Every flag that is known elsewhere exists here or is refused by name; every flag that exists does something.

"Something" is what can be seen from outside: what was asked of the server, printed, written, waited for, or the exit
code. Each flag is given alone and compared with the same command line without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest

from chalicelib.runtime.settings import server_settings
from cli.connection.config import ProjectEntry, config_path, save_projects
from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.fake_ssh import ME, FakeSsh
from tests.cli.known_flags import KNOWN, KNOWN_FLAGS
from tests.cli.people import ANN, BOB, KEYS, MEMBERS, SCIM_TOKENS, TOKENS
from tests.cli.plane import PROJECT_ID, Plane, finished, fleet, gateway, instance, log_page, offer, run, volume
from tests.cli.presets.samples import DONE, INTERRUPTED, PRESET, fill
from tests.cli.server_answers import COST, SERVICE, SLO
from tests.cli.test_help import LEAVES, ROOT

OLDER = ("pool", "destroy")


def found(path: str) -> Any:
    command: Any = ROOT
    for name in path.split():
        command = command.get_command(None, name)
    return command


def flags_of(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option" and param.name != "help"]


def test_a_known_flag_exists() -> None:
    present = {
        path: {name for flag in flags_of(found(path)) for name in (*flag.opts, *flag.secondary_opts)} for path in KNOWN
    }
    assert [(path, name) for path, name in KNOWN_FLAGS if name not in present[path]] == []


def test_every_known_command_is_ours() -> None:
    for path in KNOWN:
        assert found(path) is not None, path


# --- every flag does something ---------------------------------------------------------------------------------------


@dataclass
class Line:
    """A command line without the flag, and what it needs."""

    command: str
    trailing: str = ""  # what follows the flag
    answers: str = "n\n"
    watched: bool = False
    plane: dict[str, Any] = field(default_factory=dict)


@dataclass
class Seen:
    code: int
    out: str
    err: str
    requests: list[Any]
    naps: list[float]
    files: dict[str, bytes]
    connected: list[Any]  # over SSH


def plan(body: dict[str, Any]) -> dict[str, Any]:
    spec = body["run_spec"]
    needs = {"resources": spec["configuration"]["resources"], "spot": False, "max_price": None}
    job = {"job_spec": {"requirements": needs}, "offers": [offer()], "total_offers": 6, "max_price": 20.0, "count": 1}
    return {
        "project_name": "main",
        "user": "admin",
        "run_spec": spec,
        "effective_run_spec": spec,
        "job_plans": [job],
        "current_resource": None,
        "action": "create",
    }


def fleet_plan(body: dict[str, Any]) -> dict[str, Any]:
    found = {"project_name": "main", "user": "admin", "action": "update", "offers": [], "total_offers": 0}
    return {**found, "spec": body["spec"], "effective_spec": body["spec"], "current_resource": fleet()}


def active(body: dict[str, Any]) -> dict[str, Any]:
    """The plan where the same run is active already."""
    return {**plan(body), "current_resource": run("train") | {"run_spec": body["run_spec"]}}


def reachable() -> dict[str, Any]:
    """The run with an SSH server, and a port."""
    found = run()
    found["jobs"][0]["job_submissions"][0]["job_runtime_data"] |= {"ports": {"10022": 40022}}
    found["jobs"][0]["job_spec"]["app_specs"] = [{"port": 8471, "map_to_port": None, "app_name": "a"}]
    return found


AUTOMATION = {"id": "1", "name": "train", "type": "task", "user": "admin", "stored_at": "2026-11-21T04:00:00Z"}
CHANGE = {"id": "1", "time": "2026-11-21T04:00:00+00:00", "message": "done", "type": "status"}
BACKEND = {"name": "aws", "source": "api", "config": {"type": "aws"}, "changed_at": "2026-11-21T04:00:00Z"} | {
    "offers_taken_at": None,
    "offers_error": "",
}
JOIN = {"id": "1", "created_at": "2026-11-21T04:00:00Z", "expires_at": "2026-11-21T05:00:00Z"} | {
    "created_by": "admin",
    "status": "unused",
    "instance_name": None,
}
GROUPED = {"name": "T4", "memory_mib": 16384, "count": {"min": 1, "max": 2}, "price": {"min": 0.2, "max": 0.4}}
EVENT = {"id": "1", "recorded_at": "2026-11-21T04:00:00Z", "message": "done", "targets": []}
TASK = "type: task\nname: train\ncommands: [echo, '${{ run.args }}']\nports: [8471]\n"
PROFILES = "profiles: [{name: cheap, max_price: 1}, {name: usual, default: true, max_price: 3}]\n"
OTHER = "type: task\nname: other\ncommands: [ls]\n"
USAGE = {
    "server_version": "0.22.5",
    "parts": [
        {"name": "database", "bytes": 5_300_000, "files": 3, "whole": True},
        {"name": "agent", "bytes": 123_456_789_012, "files": 200_000, "whole": False},
        {"name": "logs", "bytes": 999, "files": 12, "whole": True},
    ],
    "subscriptions": [
        {
            "name": "webhook/ops",
            "failures": 3,
            "dead": False,
            "error": "ops.example.com answered 500",
            "retry_at": None,
        },
        {"name": "rule/resume", "failures": 0, "dead": False, "error": "", "retry_at": None},
    ],
    "free": 40_000_000_000,
    "days": {"events": 90, "metrics": 7, "logs": 30, "deleted": 1, "fleets": 30, "archives": 30},
}
FEW = {"gpus": 4, "jobs": None, "money": None}
QUOTA = {
    "project_name": "main",
    "limits": {"gpus": 12, "jobs": None, "money": 50.0},
    "used": {"gpus": 10, "jobs": 3, "money": 12.304},
    "each_user": {"gpus": None, "jobs": 2, "money": None},
    "users": [{"username": "alice", "limits": FEW, "used": {"gpus": 4, "jobs": 1, "money": 2.0}}],
}

ENTERED = {**ME, "creds": {"token": "signed-on"}}


def visited(body: dict[str, Any]) -> dict[str, Any]:
    """The address to sign on at, where somebody already has."""
    here = f"http://127.0.0.1:{body['local_port']}/auth/callback?state=s&code=c"
    Thread(target=urlopen, args=(here,), daemon=True).start()
    return {"authorization_url": "https://l.example?state=s"}


SHARED_FLEETS = [{"id": "2", "name": "gpus"}, {"id": "3", "name": "more"}]
SHARED = {"id": "1", "name": "lab", "exported_fleets": SHARED_FLEETS, "exported_gateways": []}
EXPORT = {**SHARED, "is_global": False, "imports": [{"project_name": "research"}]}
ANSWERS: dict[str, Any] = {
    "/services/get": SERVICE,
    "/exports/list": [EXPORT, {**EXPORT, "name": "all", "is_global": True}],
    "/exports/create": EXPORT,
    "/exports/update": EXPORT,
    "/exports/delete": None,
    "/imports/list": [{"id": "4", "export": {**SHARED, "project_name": "center"}}],
    "/imports/delete": None,
    "/api/server/get_usage": USAGE,
    "/api/server/get_cost": COST,
    "/api/server/get_slo": SLO,
    "/api/runs/list": lambda body: [run()] if body["only_active"] else [run(), finished("old")][: body["limit"]],
    "/runs/get": reachable(),
    "/runs/stop": None,
    "/runs/delete": None,
    "/runs/get_plan": plan,
    "/runs/apply": run("train", "submitted"),
    "/repos/init": None,
    "/logs/poll": log_page("one\n"),
    "/metrics/job/train": {"metrics": [{"name": "cpu_usage_percent", "timestamps": [], "values": [50, 10]}]},
    "/fleets/list": [fleet(instances=[instance(0)])],
    "/fleets/get": fleet(instances=[instance(0)]),
    "/fleets/delete": None,
    "/fleets/delete_instances": None,
    "/fleets/create_join": {**JOIN, "command": "curl"},
    "/fleets/list_joins": [JOIN],
    "/fleets/revoke_join": None,
    "/fleets/get_plan": fleet_plan,
    "/fleets/apply": fleet(instances=[instance(0)]),
    "/gpus/list": {"gpus": [{**GROUPED, "spot": ["spot"], "backend": "aws", "regions": ["x"]}]},
    "/automations/add": AUTOMATION,
    "/automations/list": [AUTOMATION],
    "/automations/delete": None,
    "/events/changes": [CHANGE],
    "/secrets/list": [{"id": "1", "name": "tok", "value": None}],
    "/backends/list": [BACKEND],
    "/backends/aws/config_info": {"type": "aws", "creds": {"type": "access_key", "access_key": "(hidden)"}},
    "/backends/aws/check": None,
    "/backends/create": None,
    "/backends/update": None,
    "/backends/create_yaml": None,
    "/backends/update_yaml": None,
    "/backends/delete": None,
    "/secrets/get": {"id": "1", "name": "tok", "value": "s3cret"},
    "/secrets/create_or_update": None,
    "/secrets/delete": None,
    "/gateways/list": [gateway()],
    "/gateways/get": gateway(),
    "/gateways/delete": None,
    "/gateways/set_default": None,
    "/gateways/set_wildcard_domain": gateway(),
    "/volumes/list": [volume()],
    "/volumes/get": volume(),
    "/volumes/delete": None,
    "/api/events/list": [EVENT],
    "/api/projects/main/get_quota": QUOTA,
    "/api/projects/main/set_quota": QUOTA,
    "/api/projects/lab/get_quota": QUOTA,
    "/api/projects/main/get": {"project_id": PROJECT_ID, "members": MEMBERS},
    "/api/projects/lab/get": {"project_id": PROJECT_ID, "members": MEMBERS[:1]},
    "/api/projects/create": None,
    "/api/projects/delete": None,
    **{f"/api/projects/{name}/{verb}_members": None for name in ("main", "lab") for verb in ("add", "remove")},
    "/api/users/list": [ANN, BOB],
    "/api/users/get_user": ANN,
    "/api/users/create": {**ANN, "creds": {"token": "fresh-token"}},
    "/api/users/update": lambda body: (
        {**ANN, "email": body["email"], "active": body["active"]} | {"global_role": body["global_role"]}
    ),
    "/api/users/refresh_token": {**ANN, "creds": {"token": "fresh-token"}},
    "/api/users/delete": None,
    "/api/users/access_tokens/list": TOKENS,
    "/api/users/access_tokens/create": {**TOKENS[0], "token": "dstack_text"},
    "/api/users/access_tokens/revoke": None,
    "/api/scim/tokens/list": SCIM_TOKENS,
    "/api/scim/tokens/create": {**SCIM_TOKENS[0], "token": "dstack-scim_text"},
    "/api/scim/tokens/revoke": None,
    "/api/users/sign_in_codes/create": {"code": "once", "expires_at": "2026-11-21T05:02:00+00:00"},
    "/api/users/public_keys/list": KEYS,
    "/api/users/public_keys/add": KEYS[0],
    "/api/users/public_keys/delete": None,
    "/api/users/get_my_user": ME,
    "/api/auth/list_providers": [{"name": name, "enabled": True} for name in ("corp", "other")],
    "/api/auth/corp/device": {"state": "s", "user_code": "ABCD", "verification_uri": "https://l.example", "interval": 5}
    | {"verification_uri_complete": None, "expires_in": 600},
    "/api/auth/corp/device_token": ENTERED,
    "/api/auth/corp/authorize": visited,
    "/api/auth/corp/callback": ENTERED,
    "/api/projects/list": [{"project_name": "new"}],
}
LINES = {
    "automation delete": "automation delete train",
    "server migrate": "server migrate prod",
    "apply": "apply",
    "attach": "attach train --logs",
    "backend check": "backend check aws",
    "backend delete": "backend delete aws",
    "delete": "delete",
    "destroy": "destroy",
    "export create": "export create lab",
    "export update": "export update lab",
    "export delete": "export delete lab",
    "import delete": "import delete center/lab",
    "fleet get": "fleet get gpu",
    "fleet delete": "fleet delete gpu",
    "fleet delete-instance": "fleet delete-instance gpu 0",
    "fleet join-command": "fleet join-command gpu",
    "fleet joins": "fleet joins gpu",
    "fleet revoke-join": "fleet revoke-join gpu 1",
    "gateway get": "gateway get door",
    "gateway delete": "gateway delete door",
    "gateway update": "gateway update door --domain example.com",
    "login": "login --device -p corp",
    "logs": "logs train",
    "metrics": "metrics train",
    "service get": "service get chat",
    "pool add-ssh": "pool add-ssh 10.0.0.7 -l ubuntu -i key",
    "pool remove": "pool remove gpu-0",
    "project add": "project add --name main --url {url} --token t",
    "project delete": "project delete --name main",
    "project create": "project create fresh",
    "project add-member": "project add-member ann",
    "project remove-member": "project remove-member ann",
    "scim token create": "scim token create okta",
    "scim token revoke": "scim token revoke okta",
    "token create": "token create ci",
    "token revoke": "token revoke ci",
    "user create": "user create ann",
    "user update": "user update ann",
    "user token": "user token ann",
    "user delete": "user delete ann",
    "user add-key": "user add-key key.pub",
    "user delete-key": "user delete-key yubikey",
    "run get": "run get train",
    "secret get": "secret get tok",
    "secret set": "secret set tok value",
    "secret delete": "secret delete tok",
    "stop": "stop train",
    "preset create": "preset create -f preset.yml",
    "preset delete": f"preset delete {DONE}",
    "preset export": f"preset export {DONE} -f out.yml",
    "preset get": f"preset get {DONE}",
    "preset logs": f"preset logs {DONE}",
    "preset resume": f"preset resume {INTERRUPTED}",
    "preset stop": f"preset stop {INTERRUPTED}",
    "volume get": "volume get data",
    "volume delete": "volume delete data",
}
ELSEWHERE = {  # flags that show on another command line than the plain one
    ("apply", "detach"): Line("apply -y"),
    **{("server migrate", name): Line("server migrate prod --keys") for name in ("check", "abort", "yes")},
    ("apply", "web"): Line("apply -y -d"),
    ("apply", "as_json"): Line("apply -y"),
    ("apply", "force"): Line("apply -y", plane={"/runs/get_plan": active}),
    ("apply", "no_repo"): Line("apply -f repo.yml"),
    ("apply", "retry"): Line("apply"),
    ("apply", "host"): Line("apply -y", plane={"/runs/get": reachable()}),
    **{("attach", name): Line("attach train") for name in ("logs", "ssh_identity", "host", "ports", "replica", "job")},
    ("logs", "following"): Line("logs train"),
    **{("backend add", name): Line("backend add aws -y") for name in ("own", "region", "access_key")},
    ("backend add", "project"): Line("backend add aws --default-creds -y"),
    ("backend add", "yes"): Line("backend add aws --default-creds"),
    ("backend add", "secret_key"): Line("backend add aws --access-key AKIA -y", answers="typed\n"),
    ("backend add", "file"): Line("backend add -y"),
    ("project add", "yes"): Line("project add --name lab --url {url} --token t"),
    ("project delete", "on_server"): Line("project delete --name main -y"),
    ("gateway update", "domain"): Line("gateway update door --set-default"),
    ("user update", "active"): Line("user update ann", plane={"/api/users/get_user": {**ANN, "active": False}}),
    ("user delete", "project"): Line("user delete ann -y"),
    ("user token", "project"): Line("user token ann -y"),
    ("token revoke", "project"): Line("token revoke ci -y"),
    ("scim token revoke", "project"): Line("scim token revoke okta -y"),
    ("project add", "no"): Line("project add --name lab --url {url} --token t", answers="y\n"),
    **{("project quota", name): Line("project quota --gpus 2") for name in ("user", "each_user")},
    **{("login", name): Line("login") for name in ("oidc", "id_token_file", "audience")},
    ("login", "provider"): Line("login --device"),
    ("login", "device"): Line("login -p corp"),
    ("login", "no"): Line("login --device -p corp", answers="y\n"),
    ("run get", "run_id"): Line("run get"),
    ("fleet get", "fleet_id"): Line("fleet get"),
    ("fleet delete", "force"): Line("fleet delete gpu -y"),
    ("pool", "project"): Line("pool", "list"),
    ("preset create", "keep_service"): Line("preset create -f preset.yml -y"),
    ("preset export", "force"): Line(f"preset export {DONE} -f preset.yml"),
    ("run", "project"): Line("run", "get train"),
}
HERE = {  # about this machine's server, which these tests haven't got; their own run them on real folders and units
    *("server", "server backup", "server backups", "server restore", "server restored", "server upgrade"),
    *("server install", "server uninstall"),
}
VALUES = {  # by parameter where one value doesn't fit all
    "gpus": "12",
    "jobs": "40",
    "money": "200",
    "file": "other.yml",
    "ssh_identity": "key",
    "identity": "key2",
    "cpu": "8",
    **{"gpu": "A100:2", "memory": "32GB.."},
    "disk": "200GB..",
    "max_duration": "2h",
    "idle_duration": "1h",
    "retry_duration": "3h",
    "provider": "corp",
    "since": "1h",
    "spot_policy": "auto",
    "format_": "json",
    "group_by": "gpu",
    "env": "A=1",
    "port": "8080:8471",
    "ports": "8080:8471",
    "host": "127.0.0.1",
    "profile": "cheap",
    "instances": "0",
    "url": "http://127.0.0.1:1",
    "expires_in": "2h",
    "verbs": "run",
    "projects": "main",
    "expires": "7d",
    "last": "1",
    "tail": "0",
    "replica": "1",
    "job": "1",
    "max_offers": "7",
    "max_price": "2.5",
    "ssh_port": "2222",
    "jump": "me@10.0.0.1:22",
    "trials": "3",
    "role": "admin",
    "actor": "ann",
    "pool_name": "other",
}


def cases() -> list[tuple[str, str]]:
    """Every flag of every command; a group's flags as those of the group."""
    paths = {" ".join(path): command for path, command in LEAVES.items()}
    groups = {path.rpartition(" ")[0] for path in paths if " " in path}
    every = {**paths, **{name: found(name) for name in groups}}
    return [
        (path, param.name) for path, command in sorted(every.items()) if path not in HERE for param in flags_of(command)
    ]


@pytest.fixture(scope="module")
def given_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two projects, and two keys."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    home = tmp_path_factory.mktemp("given")
    save_projects(
        config_path(home), [ProjectEntry("main", Plane.url, "secret-token", True), ProjectEntry("lab", Plane.url, "t2")]
    )
    kind = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    for name in ("key", "key2"):
        (home / name).write_bytes(Ed25519PrivateKey.generate().private_bytes(*kind))
    return home


@pytest.fixture
def observed(dstack: Dstack, plane: Plane, tmp_path: Path, given_home: Path) -> Callable[[Line, list[str]], Seen]:
    """Runs a command line in its own home and folder, and records everything that comes of it."""
    count = 0

    def observe(line: Line, more: list[str]) -> Seen:
        nonlocal count
        count += 1
        place = tmp_path / str(count)
        home, work = place / "home", place / "work"
        (work / ".dstack").mkdir(parents=True)
        shutil.copytree(config_path(given_home).parent, config_path(home).parent)
        (work / ".dstack.yml").write_text(TASK)
        (work / "other.yml").write_text(OTHER)
        (work / "repo.yml").write_text(OTHER + "repos: [.]\n")
        (work / ".dstack" / "profiles.yml").write_text(PROFILES)
        if "preset" in line.command:
            (work / "preset.yml").write_text(PRESET % "http://127.0.0.1:1")
            fill(home)
        for name in ("key", "key2"):
            shutil.copy(given_home / name, work / name)
        (work / "key.pub").write_text("ssh-ed25519 AAAA me@home\n")
        plane.requests.clear()
        plane.answers = {**ANSWERS, **line.plane}
        naps: list[float] = []
        ssh = FakeSsh()
        terminal = replace(dstack.terminal, ssh=ssh, home=home, cwd=work, watched=line.watched, columns=200)
        stop = interrupt_at(3)

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            stop(seconds)

        command = line.command.format(url=plane.url).split()
        ended = Dstack(replace(terminal, sleep=sleep), naps)(
            *command, *more, *line.trailing.split(), answers=line.answers
        )
        requests = [(one.path, one.body, one.headers["Authorization"]) for one in plane.requests]
        here = str(place).encode()
        files = {str(p.relative_to(place)): p.read_bytes().replace(here, b"") for p in place.rglob("*") if p.is_file()}
        printed = [text.replace(str(place), "") for text in (ended.out, ended.err)]
        connected = [(one.config.replace(str(place), ""), one.forwards) for one in ssh.started]
        return Seen(ended.code, *printed, requests, naps, files, connected)

    return observe


@pytest.fixture(scope="module")
def plains() -> dict[str, Seen]:
    """What a command's usual line does without a flag: the same every time, as the test below says."""
    return {}


@pytest.mark.parametrize(("path", "name"), cases(), ids=lambda value: value.replace(" ", "-"))
def test_a_flag_does_something_or_is_refused_by_name(
    path: str, name: str, observed: Callable[[Line, list[str]], Seen], plains: dict[str, Seen]
) -> None:
    (param,) = (one for one in flags_of(found(path)) if one.name == name)
    if (path, name) in ELSEWHERE:
        line = ELSEWHERE[path, name]
        plain = observed(line, [])
    else:
        line = Line(LINES.get(path, path))
        plain = plains[path] if path in plains else plains.setdefault(path, observed(line, []))
    for flag_given in (*param.opts, *param.secondary_opts):
        here = replace(line, watched=True) if flag_given == "--no-follow" else line
        seen = observed(here, given(param, flag_given))
        before = observed(here, []) if here is not line else plain
        assert "Traceback" not in seen.err
        refused = seen.code in (1, 2) and max(param.opts, key=len) in seen.err
        assert refused or seen != before, f"{path} {flag_given} changes nothing"
        assert seen.code != 2 or refused, seen.err


@pytest.mark.parametrize("path", sorted({path for path, _ in cases()}))
def test_the_same_line_does_the_same(
    path: str, observed: Callable[[Line, list[str]], Seen], plains: dict[str, Seen]
) -> None:
    """Or the test above would see a difference where the flag makes none."""
    line = Line(LINES.get(path, path))
    before = plains.get(path) or observed(line, [])
    assert before == observed(line, [])


def given(param: Any, flag: str) -> list[str]:
    if param.is_flag:
        return [flag]
    default = {"project": "lab", "name": "lab"}.get(param.name, "x")
    return [flag, VALUES.get(param.name, default)]


TOGETHER = {"TLS_CERT": "TLS_KEY", "TLS_KEY": "TLS_CERT"}


@pytest.mark.parametrize("param", flags_of(found("server")), ids=lambda param: str(param.name))
def test_a_flag_of_the_server_has_a_variable_that_says_the_same(param: Any) -> None:
    names = {"public_url": "URL", "data_dir": "DIR", "config": "CONFIG", "token": "ADMIN_TOKEN"}
    names |= dict.fromkeys(("yes", "no"), "ENTER_PROJECT")
    fields = {"config": "server_config", "token": "admin_token", "pair": "pair_place", "debug": "log_level"}
    fields |= dict.fromkeys(("yes", "no"), "enter_project")
    name = "LOG_LEVEL" if param.name == "debug" else names.get(param.name, param.name.upper())
    values = {
        "port": "4000",
        "public_url": "https://there",
        "log_level": "debug",
        "debug": "debug",
        "local_blocks": "4",
        "local_hosts": "8",
        "fake_cloud_name": "aws",
        "services_domain": "example.com",
        "tls_acme": "dstack.example.com",
        "trusted_proxies": "10.0.0.5",
    }
    value = {**values, "no": "off"}.get(param.name)
    value = value or ("on" if param.is_flag else "/srv/x")
    value = "off" if param.name == "local_fleet" else value
    variable = f"DSTACK_SERVER_{name}"
    assert variable in " ".join((found("server").help or "").split())
    field = fields.get(param.name, param.name)
    given = {variable: value, **({f"DSTACK_SERVER_{TOGETHER[name]}": "/srv/y"} if name in TOGETHER else {})}
    assert getattr(server_settings(given), field) != getattr(server_settings({}), field)


# --- what flags say together -----------------------------------------------------------------------------------------


def test_a_flag_before_the_command_is_the_commands(dstack: Dstack, plane: Plane) -> None:
    save_projects(
        config_path(dstack.terminal.home),
        [ProjectEntry(name, plane.url, "t", name == "main") for name in ("main", "lab")],
    )
    plane.answers |= {f"/api/project/lab{path}": value for path, value in ANSWERS.items()}
    for command in ("fleet --project lab get gpu", "run --project lab get train", "secret --project lab list"):
        assert dstack(*command.split()).code == 0, command
    assert all(one.path.startswith("/api/project/lab/") for one in plane.requests)
    assert "RESOURCES" in dstack("fleet", "-v", "--project", "lab", "list").out


def test_a_flag_before_a_command_that_hasnt_it_is_a_mistake(dstack: Dstack) -> None:
    ended = dstack("fleet", "-v", "delete", "gpu", "-y")
    assert ended.code == 2 and "--verbose has no effect on `dstack fleet delete`" in ended.err


@pytest.mark.parametrize("command", ["apply -y", "offer", "pool add -y"])
@pytest.mark.parametrize("both", ["--spot --on-demand", "--profile a --no-profile", "--no-retry --retry-duration 1h"])
def test_flags_that_contradict_each_other(dstack: Dstack, command: str, both: str) -> None:
    (dstack.terminal.cwd / ".dstack.yml").write_text(TASK)
    ended = dstack(*command.split(), *both.split())
    assert ended.code == 2 and "contradict each other" in ended.err, ended


@pytest.mark.parametrize("kind", ["fleet", "volume", "gateway"])
@pytest.mark.parametrize("flag", ["--max-offers 3", "--full-offers", "--ssh-identity key", "--profile cheap"])
def test_flags_of_runs_are_refused_where_they_would_say_nothing(dstack: Dstack, kind: str, flag: str) -> None:
    fields = {"fleet": "nodes: 1", "volume": "backend: aws\nregion: r\nsize: 1GB", "gateway": "backend: aws\nregion: r"}
    (dstack.terminal.cwd / ".dstack.yml").write_text(f"type: {kind}\nname: x\n{fields[kind]}\n")
    ended = dstack("apply", "-y", *flag.split())
    assert ended.code == 2 and f"{flag.split(maxsplit=1)[0]} doesn't apply to a {kind}" in ended.err, ended


def test_a_pool_never_deletes_machines_to_make_others(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {**ANSWERS, "/fleets/get_plan": lambda body: {**fleet_plan(body), "action": "create"}}
    ended = dstack("pool", "add", "--gpu", "80GB", "-y")
    assert ended.code == 1 and "--pool" in ended.err and "/fleets/delete" not in plane.paths(), ended
