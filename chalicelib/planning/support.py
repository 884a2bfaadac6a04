"""What of the language is built: one table over every field of a run and a fleet.

A field is either supported - it has an effect, and `proof` names the test that shows it - or refused by name, with
what to do instead. Nothing is accepted and ignored. A path stands for all that is below it; a test walks the models
and fails for a field that isn't here, so a new field can't slip in.
"""

from __future__ import annotations

from collections.abc import Iterator
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
class Refused:
    """It isn't built. `harmless` are values that mean what happens anyway."""

    why: str
    hint: str = ""
    harmless: tuple[Any, ...] = ()


Verdict = Supported | Refused


def _effects(prefix: str, *names: str) -> dict[str, Verdict]:
    """Fields whose effect `test_effects` shows, each in a case of its own name."""
    return {f"{prefix}{name}": Supported(f"{EFFECTS}::test_effect[{prefix}{name}]") for name in names}


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

# What a run, a profile and (in part) a fleet say alike.
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
_PARAMS_REFUSED: dict[str, Verdict] = {
    "reservation": Refused("no backend here can use a reservation yet", _REMOVE),
    "utilization_policy": Refused("GPU use isn't watched yet", "stop the run yourself, or set `max_duration`"),
    "startup_order": Refused("a run has one node so far", _REMOVE, ("any",)),
    "stop_criteria": Refused("a run has one node so far", _REMOVE, ("all-done",)),
    "schedule": Refused("runs can't be scheduled yet", "apply the run from cron"),
    "instances": Refused("a run can't name single instances yet", "name a fleet in `fleets`"),
    "backend_options": Refused("no backend here has options yet", _REMOVE),
}


_RUNS_OWN = (*_RUN_PARAMS, "fleets", "utilization_policy", "startup_order", "stop_criteria", "schedule", "instances")


def _params(prefix: str) -> dict[str, Verdict]:
    return {
        **_effects(prefix, *_PLACING, *_RUN_PARAMS, "fleets.name"),
        f"{prefix}fleets.project": Refused(
            "fleets of other projects can't be used yet", "name a fleet of this project"
        ),
        **{f"{prefix}{name}": verdict for name, verdict in _PARAMS_REFUSED.items()},
    }


RUN: dict[str, Verdict] = {
    **_effects("", "run_name", "repo_id", "file_archives.id", "file_archives.path", "ssh_key_pub"),
    **_effects("", "repo_data.repo_type", "configuration_path"),
    "repo_data.repo_name": Refused(
        "repositories can't be checked out yet", "bring files with `files`, or clone in `commands`"
    ),
    "repo_data.repo_branch": Refused("repositories can't be checked out yet", "clone in `commands`"),
    "repo_data.repo_hash": Refused("repositories can't be checked out yet", "clone in `commands`"),
    "repo_data.repo_diff": Refused("repositories can't be checked out yet", "clone in `commands`"),
    "repo_data.repo_config_name": Refused("repositories can't be checked out yet", "clone in `commands`"),
    "repo_data.repo_config_email": Refused("repositories can't be checked out yet", "clone in `commands`"),
    "repo_data.repo_dir": Refused("local repositories can't be brought along", "bring files with `files`"),
    **_effects("", "repo_code_hash"),
    "repo_dir": Refused("repositories can't be checked out yet", _REMOVE),
    "working_dir": Refused("the working directory is the configuration's", "set `configuration.working_dir`"),
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
        ],
        *(f"resources.{name}" for name in _RESOURCES),
        *["priority", "commands", "files.local_path", "files.path"],
    ),
    "configuration.nodes": Refused("a task runs on one node so far", "set `nodes: 1`", (1,)),
    "configuration.groups": Refused("a task runs on one node so far", "use `commands` and `resources` of the task"),
    "configuration.ports": Refused("ports can't be forwarded yet", _REMOVE),
    "configuration.volumes": Refused("volumes can't be mounted yet", "bring small data with `files`"),
    "configuration.home_dir": Refused("a job's home is its user's", "set `HOME` in `env`", ("/root",)),
    "configuration.docker": Refused(
        "Docker can't be run inside a job yet", "use `image` and a host with Docker", (False,)
    ),
    "configuration.repos": Refused(
        "repositories can't be checked out yet", "bring files with `files`, or clone in `commands`"
    ),
    "configuration.single_branch": Refused("it has a meaning with `repos` only", _REMOVE),
    "configuration.dstack": Refused("a job can't reach this control plane yet", "pass a token in a secret"),
    "configuration.setup": Refused("a task has no setup", "put them at the beginning of `commands`"),
    **_params("configuration."),
    **_params("profile."),
    **_effects("profile.", "name", "default"),
}

FLEET: dict[str, Verdict] = {
    **_effects("fleet.", "configuration_path", "autocreated"),
    **_effects(
        "fleet.configuration.",
        *["type", "name", "blocks", "nodes.min", "nodes.target", "nodes.max", "env"],
        *(f"resources.{name}" for name in _RESOURCES if name != "shm_size"),
        *_PLACING,
    ),
    "fleet.configuration.resources.shm_size": Refused("shared memory is a job's", "set it in the run's `resources`"),
    "fleet.configuration.placement": Refused(
        "instances can't be placed together yet", "set `placement: any`", ("any",)
    ),
    "fleet.configuration.reservation": _PARAMS_REFUSED["reservation"],
    "fleet.configuration.retry": Refused(
        "a fleet that is short of instances always tries again, at its own pace", "remove it", (False, True)
    ),
    "fleet.configuration.backend_options": _PARAMS_REFUSED["backend_options"],
    "fleet.configuration.ssh_config": Refused(
        "hosts can't be added over SSH yet", "use the fleet `local` of this machine, or a fleet with `nodes`"
    ),
    **_effects("fleet.profile.", *_PLACING),
    **{f"fleet.profile.{name}": _PARAMS_REFUSED[name] for name in ("reservation", "backend_options")},
    **{
        f"fleet.profile.{name}": Supported(f"{EFFECTS}::test_a_fleet_leaves_to_runs_what_is_theirs")
        for name in _RUNS_OWN
    },
    **_effects("fleet.profile.", "name", "default"),
}


def refusals(run_spec: RunSpec) -> list[Problem]:
    """Every field of a run that isn't built and is set to something."""
    if not isinstance(run_spec.configuration, TaskConfiguration):
        kind = run_spec.configuration.type
        text = f"`type: {kind}` isn't supported yet"
        return [Problem(text, path="configuration.type", hint="use `type: task`", code="unsupported")]
    found = list(_refused(run_spec, RUN, ""))
    # A value that comes from the profile is named once, where it was written.
    written = {problem.path.removeprefix("profile.") for problem in found if problem.path.startswith("profile.")}
    kept = [p for p in found if p.path.removeprefix("configuration.") not in written or p.path.startswith("profile.")]
    return kept + unresolved(run_spec.configuration.env, "configuration.env")


def fleet_refusals(spec: FleetSpec) -> list[Problem]:
    """The same for a fleet."""
    found = [
        Problem(problem.message, path=problem.path.removeprefix("fleet."), hint=problem.hint, code=problem.code)
        for problem in _refused(spec, FLEET, "fleet.")
    ]
    if spec.configuration.nodes is None and spec.configuration.ssh_config is None:
        found.append(Problem(NEEDS_NODES[1], path="configuration", hint=NEEDS_NODES[2], code=NEEDS_NODES[0]))
    return found + unresolved(spec.configuration.env, "configuration.env")


def _refused(spec: BaseModel, table: dict[str, Verdict], prefix: str) -> Iterator[Problem]:
    for path, verdict in table.items():
        if isinstance(verdict, Refused) and path.startswith(prefix):
            steps = path.removeprefix(prefix).split(".")
            if any(not _means_nothing(*set_to, verdict) for set_to in _values(spec, steps)):
                text = f"`{steps[-1]}` isn't supported yet: {verdict.why}"
                yield Problem(text, path=path, hint=verdict.hint, code="unsupported")


def _values(spec: Any, steps: list[str]) -> Iterator[tuple[Any, Any]]:
    """The values at a path and their defaults; a list on the way is walked, a missing link ends the walk."""
    if isinstance(spec, tuple | list):
        for item in spec:
            yield from _values(item, steps)
        return
    if not isinstance(spec, BaseModel) or steps[0] not in type(spec).model_fields:
        return
    value = getattr(spec, steps[0])
    if len(steps) > 1:
        yield from _values(value, steps[1:])
    else:
        yield value, type(spec).model_fields[steps[0]].get_default(call_default_factory=True)


def _means_nothing(value: Any, default: Any, verdict: Refused) -> bool:
    return value is None or value in ((), [], {}) or value == default or value in verdict.harmless
