"""Every supported field has an effect: one case a field, named by its path. `field_proofs` points here.

A case sets one field, to a value that isn't its default, and says what of the run, its job, its place or its task is
different for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.jobs import Job
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RemoteRunRepoData, RunSpec
from chalicelib.planning.jobs.jobs import agent_task, effective, job_specs
from chalicelib.planning.jobs.replica_groups import first_replicas, first_scales
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.instance_selectors import selects
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.requirements import (
    JobRequirements,
    fleet_query,
    merged_fleet,
    requirements_of,
    wanted_at_once,
)
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.runs.endings import grace_of
from chalicelib.planning.volumes.mounts import named_volumes
from tests.planning.field_proofs import FLEET_PROOFS, RUN_PROOFS
from tests.world import nouns as b

ARCHIVE = {"id": "a1", "path": "data"}
VIRTUAL = {"repo_type": "virtual"}
REMOTE = {"repo_type": "remote", "repo_name": "app"}
REPO = {"local_path": "/x"}
FOLDER = {"instance_path": "/nfs", "path": "/data"}


@dataclass(frozen=True)
class Seen:
    """What a run looks like from everywhere."""

    spec: RunSpec

    @property
    def effective(self) -> RunSpec:
        return effective(self.spec)

    @property
    def job(self) -> Any:
        return b.job_spec(self.spec)

    @property
    def nodes(self) -> Any:
        """The jobs of all its nodes."""
        return job_specs(self.spec, images=b.Images())

    @property
    def first(self) -> Any:
        """The replicas that a service starts with."""
        return first_replicas(self.nodes, first_scales(self.spec.configuration))

    @property
    def requirements(self) -> JobRequirements:
        return requirements_of(self.spec, self.job)

    @property
    def query(self) -> Query:
        return self.requirements.query

    @property
    def needs(self) -> Any:
        return self.job.requirements.resources

    @property
    def task(self) -> dict[str, Any]:
        return agent_task(b.job(b.run()), self.job, b.host(), "main")

    @property
    def cloning(self) -> Seen:
        """The same run with a repository."""
        return Seen(self.spec.with_(repo_data=RemoteRunRepoData(repo_name="app")))

    @property
    def takes(self) -> list[bool]:
        """Which of three hosts the run may take."""
        hosts = [b.host(num, b.fleet("lab"), hostname=f"h{num}") for num in range(3)]
        return [selects(self.requirements.instances, host, "lab") for host in hosts]

    @property
    def borrows(self) -> list[bool]:
        """Which of two hosts of another project's fleet."""
        hosts = [b.host(num, b.fleet("lab")) for num in range(2)]
        return [selects(self.requirements.instances, host, "their/lab") for host in hosts]

    @property
    def bought(self) -> Any:
        """The instance that is bought for it."""
        item = b.queued("train", self.spec)
        snapshot = b.waiting(item, fleets=(b.view(b.fleet("cloud"), nodes="0..2"),), offers=(b.offer(),))
        return next(noun for noun in decide_queue(snapshot).steps[0].saves if type(noun).__name__ == "Instance")


def seen(path: str, value: Any) -> Seen:
    """A run in which only `path` is set."""
    raw: dict[str, Any] = {"run_name": "train", "configuration": {"type": "task", "commands": ["true"]}, "profile": {}}
    place = raw
    *parents, last = path.split(".")
    if last in DEV_ENVIRONMENT:
        raw["configuration"] = {"type": "dev-environment", "ide": "vscode"}
    if path == "configuration.groups":
        raw["configuration"] = {"type": "service", "port": 80} if "replicas" in value[0] else {"type": "task"}
    elif last in {name.partition(".")[0] for name in SERVICE}:
        raw["configuration"] = {"type": "service", "port": 80, "commands": ["serve"]}
    for step in parents:
        place = place.setdefault(step, {})
    place[last] = value
    return Seen(RunSpec.model_validate(raw))


Case = tuple[Any, Callable[[Seen], Any], Any]
RESOURCES: dict[str, Case] = {
    "cpu.arch": ({"arch": "arm"}, lambda s: s.needs.cpu.arch, "arm"),
    "cpu.count.min": ("3..", lambda s: s.needs.cpu.count.min, 3),
    "cpu.count.max": ("..9", lambda s: s.needs.cpu.count.max, 9),
    "memory.min": ("3GB..", lambda s: s.needs.memory.min, 3),
    "memory.max": ("..9GB", lambda s: s.needs.memory.max, 9),
    "shm_size": ("2GB", lambda s: s.task["shm_bytes"], 2 << 30),
    "gpu.vendor": ("amd", lambda s: s.needs.gpu.vendor, "amd"),
    "gpu.name": ("H100", lambda s: (s.needs.gpu.name, s.needs.gpu.vendor), (("H100",), "nvidia")),
    "gpu.count.min": ("2..", lambda s: s.needs.gpu.count.min, 2),
    "gpu.count.max": ("0..3", lambda s: s.needs.gpu.count.max, 3),
    "gpu.memory.min": ("24GB..", lambda s: s.needs.gpu.memory.min, 24),
    "gpu.memory.max": ("..80GB", lambda s: s.needs.gpu.memory.max, 80),
    "gpu.total_memory.min": ({"total_memory": "24GB.."}, lambda s: s.needs.gpu.total_memory.min, 24),
    "gpu.total_memory.max": ({"total_memory": "..80GB"}, lambda s: s.needs.gpu.total_memory.max, 80),
    "gpu.compute_capability": ({"compute_capability": 8.0}, lambda s: s.needs.gpu.compute_capability, (8, 0)),
    "disk.size.min": ("20GB..", lambda s: s.needs.disk.size.min, 20),
    "disk.size.max": ("..200GB", lambda s: s.needs.disk.size.max, 200),
}
OPTIONS = [{"type": "vastai", "offer_order": "price", "min_reliability": 0.95}]
CHOSEN = (("vastai", "min_reliability", 0.95), ("vastai", "offer_order", "price"))
PARAMS: dict[str, Case] = {
    "backends": (["aws"], lambda s: s.query.backends, {"aws"}),
    "regions": (["EU"], lambda s: s.query.regions, {"eu"}),
    "availability_zones": (["EU-a"], lambda s: s.query.zones, {"eu-a"}),
    "instance_types": (["M1"], lambda s: s.query.instance_types, {"m1"}),
    "spot_policy": ("auto", lambda s: s.query.spot, None),
    "max_price": (2.5, lambda s: s.query.max_price, 2.5),
    "idle_duration": ("7m", lambda s: s.bought.idle_seconds, 420),
    "tags": ({"team": "a"}, lambda s: s.bought.tags, {"team": "a"}),
    "reservation": ("cr-1", lambda s: s.query.reservation, "cr-1"),
    "backend_options": (OPTIONS, lambda s: s.query.options, CHOSEN),
    "retry": (True, lambda s: s.job.retry.duration, 3600),
    "max_duration": ("2h", lambda s: s.task["max_duration"], 7200),
    "stop_duration": ("1m", lambda s: grace_of(s.job), 60 * b.SECOND),
    "creation_policy": ("reuse", lambda s: s.requirements.reuse_only, True),
    "fleets.name": (["gpus"], lambda s: s.requirements.fleets, ("gpus",)),
    "fleets.project": (["lab/gpus"], lambda s: s.requirements.fleets, ("lab/gpus",)),
    "instances.name": (["lab-1"], lambda s: s.takes, [False, True, False]),
    "instances.hostname": ([{"hostname": "h2"}], lambda s: s.takes, [False, False, True]),
    "instances.fleet.name": ([{"fleet": "lab", "instance": 0}], lambda s: s.takes, [True, False, False]),
    "instances.fleet.project": (
        [{"fleet": "their/lab", "instance": 0}],
        lambda s: (s.takes, s.borrows),
        ([False, False, False], [True, False]),
    ),
    "instances.instance": ([{"fleet": "lab", "instance": 2}, "lab-0"], lambda s: s.takes, [True, False, True]),
}
GROUP = {"commands": ["a"]}
REPLICAS = {"commands": ["a"], "replicas": 1}
PROBE = {"type": "http", "url": "/h", "timeout": 3, "interval": 4, "ready_after": 2}
CONFIGURATION: dict[str, Case] = {
    "nodes": (2, lambda s: [job.job_name for job in s.nodes], ["train-0-0", "train-1-0"]),
    "groups.name": ([{**GROUP, "name": "head"}], lambda s: s.job.node_group_name, "head"),
    "groups.nodes": (
        [{**GROUP, "nodes": 2}, GROUP],
        lambda s: [(job.job_num, job.node_group_index, job.node_group_job_index) for job in s.nodes],
        [(0, 0, 0), (1, 0, 1), (2, 1, 0)],
    ),
    "groups.resources": (
        [GROUP, {**GROUP, "resources": {"cpu": "9.."}}],
        lambda s: [job.requirements.resources.cpu.count.min for job in s.nodes],
        [2, 9],
    ),
    "groups.commands": ([{"commands": ["b"]}], lambda s: s.task["commands"][-1], "b"),
    **{
        f"groups.{name}": (
            [{**REPLICAS, name: value}, REPLICAS | ({} if name != "image" else {"image": "other"})],
            look,
            want,
        )
        for name, (value, look, want) in {
            "replicas": (2, lambda s: [job.replica_group for job in s.first], ["0", "0", "1"]),
            "image": ("ubuntu", lambda s: (s.task["image"], s.requirements.container), ("ubuntu", ("image",))),
            "python": ("3.11", lambda s: [job.image_name for job in s.nodes], ["base:3.11", "base:3.12"]),
            "nvcc": (True, lambda s: [job.image_name for job in s.nodes], ["devel:3.12", "base:3.12"]),
            "docker": (
                True,
                lambda s: [(job.docker, job.runtime) for job in s.nodes],
                [(True, "docker"), (False, None)],
            ),
            "privileged": (True, lambda s: [job.privileged for job in s.nodes], [True, False]),
            "spot_policy": ("spot", lambda s: [job.requirements.spot for job in s.nodes], [True, False]),
            "reservation": ("cr-1", lambda s: [job.requirements.reservation for job in s.nodes], ["cr-1", None]),
        }.items()
    },
    "groups.ports": ([GROUP, {**GROUP, "ports": [80]}], lambda s: [len(job.app_specs) for job in s.nodes], [0, 1]),
    "type": ("task", lambda s: s.job.jobs_per_replica, 1),
    "name": ("other", lambda s: s.effective.configuration.name, "other"),
    "image": ("ubuntu", lambda s: (s.task["image"], s.requirements.container), ("ubuntu", ("image",))),
    "user": ("1000:users", lambda s: (s.task["user"]["uid"], s.task["user"]["groupname"]), (1000, "users")),
    "privileged": (True, lambda s: (s.task["privileged"], s.task["runtime"]), (True, "docker")),
    "docker": (
        True,
        lambda s: (s.task["docker"], s.task["privileged"], s.task["image"], s.task["runtime"], s.task["commands"][0]),
        (True, True, "dind", "docker", "/bin/sh"),
    ),
    "ports": (
        ["80:8000", 10_022],  # the language's own port is left out
        lambda s: (s.task["ports"], [(app.port, app.map_to_port) for app in s.job.app_specs]),
        ([8000], [(8000, 80)]),
    ),
    "home_dir": ("/home/user", lambda s: s.task["home_dir"], "/home/user"),
    "entrypoint": ("python -m", lambda s: s.task["commands"], ["python", "-m", "true"]),
    "working_dir": ("/data", lambda s: s.task["working_dir"], "/data"),
    "registry_auth": ({"username": "u", "password": "p"}, lambda s: s.task["registry_auth"]["username"], "u"),
    "python": ("3.11", lambda s: s.task["image"], "base:3.11"),
    "nvcc": (True, lambda s: s.task["image"], "devel:3.12"),
    "env": ({"A": "1"}, lambda s: s.task["env"]["A"], "1"),
    "shell": ("/bin/zsh", lambda s: s.task["commands"][0], "/bin/zsh"),
    "priority": (7, lambda s: s.effective.configuration.priority, 7),
    "commands": (["a", "b"], lambda s: s.task["commands"][-2:], ["a", "b"]),
    # The client packs and uploads what these name: the plan keeps them, and the archives do the work.
    "files.local_path": (
        [{"local_path": "/x", "path": "y"}],
        lambda s: s.effective.configuration.files[0].local_path,
        "/x",
    ),
    "single_branch": (False, lambda s: s.cloning.task["repo"]["single_branch"], False),
    # So with a repository: the client finds out what these name, and says so in `repo_data`.
    "repos.local_path": ([REPO], lambda s: s.effective.configuration.repos[0].local_path, "/x"),
    "repos.url": ([{"url": "https://h/a"}], lambda s: s.effective.configuration.repos[0].url, "https://h/a"),
    "repos.branch": ([{**REPO, "branch": "b"}], lambda s: s.effective.configuration.repos[0].branch, "b"),
    "repos.hash": ([{**REPO, "hash": "abcd"}], lambda s: s.effective.configuration.repos[0].hash, "abcd"),
    "repos.path": ([{**REPO, "path": "/app"}], lambda s: s.cloning.task["repo"]["path"], "/app"),
    "repos.if_exists": ([{**REPO, "if_exists": "skip"}], lambda s: s.cloning.task["repo"]["if_exists"], "skip"),
    "volumes.name": (["data:/data"], lambda s: named_volumes(s.job.volumes), (("data",),)),
    "volumes.instance_path": ([FOLDER], lambda s: s.task["volumes"][0]["source"], "/nfs"),
    "volumes.path": ([FOLDER], lambda s: s.task["volumes"][0]["path"], "/data"),
    "volumes.optional": ([{**FOLDER, "optional": True}], lambda s: s.query.host, False),
    "files.path": ([{"local_path": "/x", "path": "y"}], lambda s: s.effective.configuration.files[0].path, "y"),
}
SERVICE: dict[str, Case] = {
    "port": (8000, lambda s: s.job.service_port, 8000),
    "replicas": (3, lambda s: [job.job_name for job in s.first], ["train-0-0", "train-0-1", "train-0-2"]),
    "probes": (
        [PROBE | {"method": "post", "headers": [{"name": "A", "value": "b"}], "body": "c", "until_ready": True}],
        lambda s: s.job.probes[0].model_dump(),
        PROBE | {"method": "post", "headers": ({"name": "A", "value": "b"},), "body": "c", "until_ready": True},
    ),
    "model.type": (
        {"type": "chat", "name": "m", "format": "openai"},
        lambda s: s.effective.configuration.model.type,
        "chat",
    ),
    "model.name": ("org/m", lambda s: json.loads(s.job.probes[0].body)["model"], "org/m"),
    "model.prefix": (
        {"name": "m", "format": "openai", "prefix": "/api/v1/"},
        lambda s: s.job.probes[0].url,
        "/api/v1/chat/completions",
    ),
}
DEV_ENVIRONMENT: dict[str, Case] = {
    "ide": ("zed", lambda s: "zed://ssh/train$DSTACK_WORKING_DIR" in s.task["commands"][-1], True),
    "version": ("abc123", lambda s: ".vscode-server/bin/abc123" in s.task["commands"][-2], True),
    "init": (["make deps"], lambda s: s.task["commands"][-2], "make deps"),
}
SPEC: dict[str, Case] = {
    "run_name": ("other", lambda s: s.job.job_name, "other-0-0"),
    "repo_id": ("r1", lambda s: s.task["env"]["DSTACK_REPO_ID"], "r1"),
    "repo_data.repo_type": (VIRTUAL, lambda s: s.job.repo_data, VIRTUAL),
    "repo_data.repo_name": (REMOTE, lambda s: s.task["repo"]["name"], "app"),
    "repo_data.repo_branch": ({**REMOTE, "repo_branch": "b"}, lambda s: s.task["repo"]["branch"], "b"),
    "repo_data.repo_hash": ({**REMOTE, "repo_hash": "abcd"}, lambda s: s.task["repo"]["hash"], "abcd"),
    "repo_data.repo_config_name": ({**REMOTE, "repo_config_name": "n"}, lambda s: s.task["repo"]["user_name"], "n"),
    "repo_data.repo_config_email": ({**REMOTE, "repo_config_email": "e"}, lambda s: s.task["repo"]["user_email"], "e"),
    "repo_data.repo_dir": (
        {"repo_type": "local", "repo_dir": "/src"},
        lambda s: (s.job.repo_data["repo_dir"], s.task["repo"]),
        ("/src", None),
    ),
    "repo_dir": ("~/app", lambda s: (s.cloning.job.repo_dir, s.cloning.task["repo"]["path"]), ("~/app", "~/app")),
    "repo_code_hash": ("abc", lambda s: s.job.repo_code_hash, "abc"),
    "file_archives.id": (
        [ARCHIVE],
        lambda s: [(each["id"], each["url"]) for each in s.task["files"]],
        [("a1", "/agent/files/a1")],
    ),
    "file_archives.path": ([ARCHIVE], lambda s: s.task["files"][0]["path"], "data"),
    "configuration_path": ("a.yml", lambda s: s.effective.configuration_path, "a.yml"),
    "ssh_key_pub": ("ssh-rsa A", lambda s: s.effective.ssh_key_pub, "ssh-rsa A"),
    "profile.name": ("big", lambda s: s.effective.profile and s.effective.profile.name, "big"),
    "profile.default": (True, lambda s: s.effective.profile and s.effective.profile.default, True),
}


def _short_form(path: str) -> str:
    """Where a case's value is set: cases of parts (`cpu.count.min`) write the short form of the whole (`cpu`)."""
    if ".resources." in path:
        head, _, tail = path.partition(".resources.")
        return f"{head}.resources.{tail.split('.')[0]}"
    if path.startswith("repo_data."):
        return "repo_data"
    for several in ("configuration.repos", "configuration.groups", "configuration.volumes", "configuration.model"):
        if path.startswith(f"{several}."):
            return several
    if ".instances." in path:
        return path.partition(".instances.")[0] + ".instances"
    for part in (".local_path", ".path", ".id", "fleets.name", "fleets.project"):
        if path.endswith(part) and not path.endswith("_path"):
            return path.rpartition(".")[0]
    return "configuration.files" if path.startswith("configuration.files.") else path


RUN_CASES: dict[str, Case] = {
    **SPEC,
    **{f"configuration.{name}": case for name, case in (CONFIGURATION | SERVICE | DEV_ENVIRONMENT | PARAMS).items()},
    **{f"configuration.resources.{name}": case for name, case in RESOURCES.items()},
    **{f"profile.{name}": case for name, case in PARAMS.items()},
}


def _bought_by_fleet(spec: FleetSpec) -> Any:
    """The first instance that the fleet makes for itself."""
    fleet = b.fleet("cloud", to_create=1)
    view = b.view(fleet).__class__(fleet, spec, ())
    plan = decide_fleet(FleetSnapshot(b.NOW, view, OfferBook([b.offer(has=b.resources(cpus=8, gb=64))]), b.FACTS))
    return next(noun for step in plan.steps for noun in step.saves if type(noun).__name__ == "Instance")


def _count(spec: FleetSpec, to_create: int) -> int:
    fleet = b.fleet("cloud", to_create=to_create)
    view = b.view(fleet).__class__(fleet, spec, ())
    plan = decide_fleet(FleetSnapshot(b.NOW, view, OfferBook([b.offer()]), {"aws": BackendFacts(name="aws")}))
    return sum(type(noun).__name__ == "Instance" for step in plan.steps for noun in step.saves)


def _query_field(field: str) -> Callable[[FleetSpec], Any]:
    return lambda spec: getattr(fleet_query(merged_fleet(spec)), field)


FleetCase = tuple[Any, Callable[[FleetSpec], Any], Any]
FLEET_PARAMS: dict[str, FleetCase] = {
    "backends": (["aws"], _query_field("backends"), {"aws"}),
    "regions": (["EU"], _query_field("regions"), {"eu"}),
    "availability_zones": (["EU-a"], _query_field("zones"), {"eu-a"}),
    "instance_types": (["M1"], _query_field("instance_types"), {"m1"}),
    "spot_policy": ("spot", _query_field("spot"), True),
    "max_price": (2.5, _query_field("max_price"), 2.5),
    "idle_duration": ("7m", lambda spec: _bought_by_fleet(spec).idle_seconds, 420),
    "reservation": ("cr-1", _query_field("reservation"), "cr-1"),
    "backend_options": (OPTIONS, _query_field("options"), CHOSEN),
    "tags": ({"team": "a"}, lambda spec: _bought_by_fleet(spec).tags, {"team": "a"}),
}
FLEET_CASES: dict[str, FleetCase] = {
    "fleet.configuration_path": ("f.yml", lambda spec: spec.configuration_path, "f.yml"),
    "fleet.autocreated": (True, lambda spec: spec.autocreated, True),
    "fleet.configuration.type": ("fleet", lambda spec: spec.configuration.type, "fleet"),
    "fleet.configuration.name": ("gpus", lambda spec: spec.configuration.name, "gpus"),
    "fleet.configuration.blocks": (4, lambda spec: _bought_by_fleet(spec).total_blocks, 4),
    "fleet.configuration.nodes.min": ("2..3", lambda spec: _count(spec, 0), 2),
    "fleet.configuration.nodes.target": (
        {"min": 0, "target": 1, "max": 3},
        lambda spec: _count(spec, wanted_at_once(spec.configuration)),
        1,
    ),
    "fleet.configuration.nodes.max": ("0..3", lambda spec: _count(spec, 9), 3),
    "fleet.configuration.env": ({"A": "1"}, lambda spec: _bought_by_fleet(spec).env, {"A": "1"}),
    **{
        f"fleet.configuration.resources.{name}": (value, lambda spec, look=look: look(_FleetSeen(spec)), want)
        for name, (value, look, want) in RESOURCES.items()
        if name not in ("shm_size", "gpu.name")
    },
    "fleet.configuration.resources.gpu.name": ("H100", lambda spec: _FleetSeen(spec).needs.gpu.name, ("H100",)),
    **{f"fleet.configuration.{name}": case for name, case in FLEET_PARAMS.items()},
    **{f"fleet.profile.{name}": case for name, case in FLEET_PARAMS.items()},
    "fleet.profile.name": ("big", lambda spec: spec.profile.name, "big"),
    "fleet.profile.default": (True, lambda spec: spec.profile.default, True),
}


@dataclass(frozen=True)
class _FleetSeen:
    spec: FleetSpec

    @property
    def needs(self) -> Any:
        return fleet_query(merged_fleet(self.spec)).resources


CASES = {**RUN_CASES, **FLEET_CASES}


@pytest.mark.parametrize("path", CASES)
def test_effect(path: str) -> None:
    value, getter, want = CASES[path]
    if not path.startswith("fleet."):
        assert getter(seen(_short_form(path), value)) == want
        return
    where = path.removeprefix("fleet.")
    raw: dict[str, Any] = {"configuration": {"type": "fleet", "nodes": "0..9"}, "profile": {}}
    *parents, last = ("configuration.nodes" if ".nodes." in where else _short_form("x." + where)[2:]).split(".")
    place = raw
    for step in parents:
        place = place.setdefault(step, {})
    place[last] = value
    assert getter(FleetSpec.model_validate(raw)) == want


@pytest.mark.parametrize("field", ["retry", "max_duration", "fleets", "schedule", "startup_order"])
def test_a_fleet_leaves_to_runs_what_is_theirs(field: str) -> None:
    """A fleet is applied with the default profile, which says things that only a run can mean."""
    value = {
        "retry": True,
        "max_duration": "1h",
        "fleets": ["a"],
        "schedule": {"cron": "0 9 * * *"},
        "startup_order": "any",
    }
    plain, with_profile = b.fleet_spec(nodes="0..2"), b.fleet_spec(nodes="0..2", profile={field: value[field]})
    assert merged_fleet(with_profile).with_(retry=None) == merged_fleet(
        plain
    )  # a fleet that is short always tries again


def test_no_case_is_left_over() -> None:
    proven = {*RUN_PROOFS.values(), *FLEET_PROOFS.values()}
    assert {f"tests/planning/test_effects.py::test_effect[{path}]" for path in CASES} <= proven


def test_a_job_with_a_share_of_a_machine_is_held_to_it() -> None:
    offer = b.offer(has=b.resources(cpus=2, gb=4), blocks=1, total_blocks=4)
    instance = b.host(offer=offer, total_blocks=4)
    placed: Job = b.job(b.run())
    task = agent_task(placed, b.job_spec(b.run_spec()), instance, "main")
    assert (task["cpu"], task["memory_bytes"]) == (2, 4 << 30)
