"""Which parts of the language are built: one table of every field of a run and a fleet.

A field is either supported (it has an effect, and `proof` names the test that shows it) or refused by name, with what
to do instead. Nothing is accepted and ignored. A path covers everything below it. A test walks the models and fails for
a field that isn't listed, so a new field can't slip in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from chalicelib.domain.specs.env import unresolved
from chalicelib.domain.specs.fleets import NEEDS_NODES, FleetSpec
from chalicelib.domain.specs.runs import RunSpec, TaskConfiguration
from chalicelib.errors import Problem

EFFECTS = "tests/planning/test_effects.py"


@dataclass(frozen=True)
class Supported:
    """It has an effect; `proof` is the test that shows it."""

    proof: str


@dataclass(frozen=True)
class NotBuilt:
    """It isn't built. `harmless` values ask for what happens anyway."""

    why: str
    hint: str = ""
    harmless: tuple[Any, ...] = ()


Support = Supported | NotBuilt


def _effects(prefix: str, *names: str) -> dict[str, Support]:
    """Fields whose effect `test_effects` shows, each in a case named after it."""
    return {f"{prefix}{name}": Supported(f"{EFFECTS}::test_effect[{prefix}{name}]") for name in names}


HOSTS = "tests/planning/test_hosts.py"
_LOGIN = ("user", "port", "identity_file", "ssh_key.public", "ssh_key.private")
_JUMP = tuple(f"proxy_jump.{name}" for name in ("hostname", *_LOGIN))
_HOST = ("hostname", *_LOGIN, *_JUMP, "internal_ip", "blocks")
_HOSTS = (*_LOGIN, *_JUMP, "network", *(f"hosts.{name}" for name in _HOST))


def _of_hosts(prefix: str) -> dict[str, Support]:
    """The same for the hosts of SSH fleets, in `test_hosts`."""
    return {f"{prefix}{name}": Supported(f"{HOSTS}::test_setting[{prefix}{name}]") for name in _HOSTS}


_REMOVE = "remove it; it will be accepted once it has an effect"

_RESOURCES = [
    "cpu.arch",
    "cpu.count.min",
    "cpu.count.max",
    "memory.min",
    "memory.max",
    "shm_size",
    "gpu.vendor",
    "gpu.name",
    "gpu.count.min",
    "gpu.count.max",
    "gpu.memory.min",
    "gpu.memory.max",
    "gpu.total_memory.min",
    "gpu.total_memory.max",
    "gpu.compute_capability",
    "disk.size.min",
    "disk.size.max",
]

# Shared by runs, profiles and, in part, fleets.
_PLACING = [
    "backends",
    "regions",
    "availability_zones",
    "instance_types",
    "spot_policy",
    "max_price",
    "idle_duration",
    "tags",
]
_RUN_PARAMS = ["retry", "max_duration", "stop_duration", "creation_policy"]
_PARAMS_REFUSED: dict[str, Support] = {
    "reservation": NotBuilt("no backend supports reservations yet", _REMOVE),
    "utilization_policy": NotBuilt(
        "GPU utilization isn't monitored yet", "stop the run yourself, or set `max_duration`"
    ),
    "startup_order": NotBuilt("runs are limited to one node so far", _REMOVE, ("any",)),
    "stop_criteria": NotBuilt("runs are limited to one node so far", _REMOVE, ("all-done",)),
    "schedule": NotBuilt("runs can't be scheduled yet", "apply the run from cron"),
    "instances": NotBuilt("a run can't select instances yet", "name a fleet in `fleets`"),
    "backend_options": NotBuilt("no backend has options yet", _REMOVE),
}


_RUNS_OWN = (*_RUN_PARAMS, "fleets", "utilization_policy", "startup_order", "stop_criteria", "schedule", "instances")


def _params(prefix: str) -> dict[str, Support]:
    return {
        **_effects(prefix, *_PLACING, *_RUN_PARAMS, "fleets.name"),
        f"{prefix}fleets.project": NotBuilt(
            "fleets of other projects can't be used yet", "name a fleet of this project"
        ),
        **{f"{prefix}{name}": verdict for name, verdict in _PARAMS_REFUSED.items()},
    }


RUN: dict[str, Support] = {
    **_effects("", "run_name", "repo_id", "file_archives.id", "file_archives.path", "ssh_key_pub"),
    **_effects("", "repo_data.repo_type", "configuration_path", "repo_code_hash", "repo_dir"),
    **_effects(
        "repo_data.", "repo_name", "repo_branch", "repo_hash", "repo_config_name", "repo_config_email", "repo_dir"
    ),
    "repo_data.repo_diff": NotBuilt(
        "a patch is uploaded apart from the run", "send it to repos/upload_code, and its SHA-256 in `repo_code_hash`"
    ),
    "working_dir": NotBuilt("the working directory is part of the configuration", "set `configuration.working_dir`"),
    **_effects(
        "configuration.",
        *[
            "type",
            "name",
            "image",
            "user",
            "privileged",
            "entrypoint",
            "working_dir",
            "registry_auth",
            "python",
            "nvcc",
            "env",
            "shell",
            "single_branch",
        ],
        *(f"resources.{name}" for name in _RESOURCES),
        *["priority", "commands", "files.local_path", "files.path"],
        *(f"repos.{name}" for name in ("local_path", "url", "branch", "hash", "path", "if_exists")),
    ),
    "configuration.nodes": NotBuilt("tasks are limited to one node so far", "set `nodes: 1`", (1,)),
    "configuration.groups": NotBuilt(
        "tasks are limited to one node so far", "use the task's `commands` and `resources`"
    ),
    "configuration.ports": NotBuilt("ports can't be forwarded yet", _REMOVE),
    "configuration.volumes": NotBuilt("volumes can't be mounted yet", "upload small data with `files`"),
    "configuration.home_dir": NotBuilt("a job uses the home of its user", "set `HOME` in `env`", ("/root",)),
    "configuration.docker": NotBuilt(
        "Docker can't be run inside a job yet", "use `image` and a host with Docker", (False,)
    ),
    "configuration.dstack": NotBuilt("a job can't reach this control plane yet", "pass a token in a secret"),
    "configuration.setup": NotBuilt("a task has no setup", "put these commands first in `commands`"),
    **_params("configuration."),
    **_params("profile."),
    **_effects("profile.", "name", "default"),
}

FLEET: dict[str, Support] = {
    **_effects("fleet.", "configuration_path", "autocreated"),
    **_effects(
        "fleet.configuration.",
        *["type", "name", "blocks", "nodes.min", "nodes.target", "nodes.max", "env"],
        *(f"resources.{name}" for name in _RESOURCES if name != "shm_size"),
        *_PLACING,
    ),
    "fleet.configuration.resources.shm_size": NotBuilt(
        "shared memory belongs to a job", "set it in the run's `resources`"
    ),
    "fleet.configuration.placement": NotBuilt(
        "instances can't be placed together yet", "set `placement: any`", ("any",)
    ),
    "fleet.configuration.reservation": _PARAMS_REFUSED["reservation"],
    "fleet.configuration.retry": NotBuilt(
        "a fleet below its target always retries, at its own pace", "remove it", (False, True)
    ),
    "fleet.configuration.backend_options": _PARAMS_REFUSED["backend_options"],
    **_of_hosts("fleet.configuration.ssh_config."),
    **_effects("fleet.profile.", *_PLACING),
    **{f"fleet.profile.{name}": _PARAMS_REFUSED[name] for name in ("reservation", "backend_options")},
    **{
        f"fleet.profile.{name}": Supported(f"{EFFECTS}::test_a_fleet_leaves_to_runs_what_is_theirs")
        for name in _RUNS_OWN
    },
    **_effects("fleet.profile.", "name", "default"),
}


NotBuiltRow = tuple[tuple[str, ...], NotBuilt]  # the steps of a path, and why its field is refused


def _not_built(table: dict[str, Support], prefix: str) -> tuple[NotBuiltRow, ...]:
    found = ((path.removeprefix(prefix), verdict) for path, verdict in table.items() if path.startswith(prefix))
    return tuple((tuple(path.split(".")), verdict) for path, verdict in found if isinstance(verdict, NotBuilt))


_RUN_NOT_BUILT = _not_built(RUN, "")
_FLEET_NOT_BUILT = _not_built(FLEET, "fleet.")


def refusals(run_spec: RunSpec) -> list[Problem]:
    """Every field of a run that isn't built and is set to something."""
    if not isinstance(run_spec.configuration, TaskConfiguration):
        kind = run_spec.configuration.type
        text = f"`type: {kind}` isn't supported yet"
        return [Problem(text, path="configuration.type", hint="use `type: task`", code="unsupported")]
    found = list(_refused(run_spec, _RUN_NOT_BUILT))
    # Report a value from the profile once, where it was written.
    written = {problem.path.removeprefix("profile.") for problem in found if problem.path.startswith("profile.")}
    kept = [p for p in found if p.path.removeprefix("configuration.") not in written or p.path.startswith("profile.")]
    return kept + unresolved(run_spec.configuration.env, "configuration.env")


def privileged(run_spec: RunSpec) -> list[Problem]:
    """What a run asks for that gives it its host, for a user who may not have that."""
    if not run_spec.configuration.privileged:
        return []
    text = "`privileged` is for the project's admins here: the container could take over its host"
    hint = "remove it, or ask the server's operator for `allow_non_admins_run_privileged`"
    return [Problem(text, path="configuration.privileged", hint=hint, code="not-permitted")]


def fleet_refusals(spec: FleetSpec) -> list[Problem]:
    """The same for a fleet."""
    found = list(_refused(spec, _FLEET_NOT_BUILT))
    if spec.configuration.nodes is None and spec.configuration.ssh_config is None:
        found.append(Problem(NEEDS_NODES[1], path="configuration", hint=NEEDS_NODES[2], code=NEEDS_NODES[0]))
    return found + unresolved(spec.configuration.env, "configuration.env")


def _refused(spec: BaseModel, rows: Iterable[NotBuiltRow]) -> Iterator[Problem]:
    for steps, verdict in rows:
        if _meant(spec, steps, verdict):
            text = f"`{steps[-1]}` isn't supported yet: {verdict.why}"
            yield Problem(text, path=".".join(steps), hint=verdict.hint, code="unsupported")


def _meant(spec: Any, steps: Sequence[str], verdict: NotBuilt) -> bool:
    """Is a meaningful value set at this path? Lists are walked element by element, a missing step ends the walk, and an
    unset field counts as its default."""
    if isinstance(spec, tuple | list):
        return any(_meant(item, steps, verdict) for item in spec)
    name = steps[0]
    if not isinstance(spec, BaseModel) or name not in spec.model_fields_set:
        return False
    value = getattr(spec, name)
    if len(steps) > 1:
        return _meant(value, steps[1:], verdict)
    if value is None or value in ((), [], {}) or value in verdict.harmless:
        return False
    return bool(value != type(spec).model_fields[name].get_default(call_default_factory=True))
