"""Specs as clients send them: parsing, checks and names, and which fields may change in place.

A spec is stored as sent, with additions only, because clients compare it with what they sent and show every difference
to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import orjson

from chalicelib.configuration.reading import read
from chalicelib.domain import names
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.gateways import GatewaySpec
from chalicelib.domain.specs.profiles import Profile
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.services import ReplicaGroup, ServiceConfiguration
from chalicelib.errors import Invalid, Problem, Refused
from chalicelib.planning.jobs.replica_groups import discovery

S = TypeVar("S", RunSpec, FleetSpec)

Raw = dict[str, Any]

MAX_SPEC = 250_000  # bytes of a spec and all that is derived from it, which are one record of the store
SHORTER = "Move long commands into a script and upload it with `files:`."
MAX_SHOWN = 2_000_000  # bytes of the specs of all nodes in one response

RUN_IN_PLACE = ("configuration_path", "configuration.priority")
SERVICE_IN_PLACE = (  # changes that affect the replicas themselves are rolled out
    *RUN_IN_PLACE,
    *("repo_data", "repo_code_hash", "file_archives"),
    *(f"configuration.{name}" for name in ("replicas", "groups", "scaling", "port", "probes", "gateway")),
    *(f"configuration.{name}" for name in ("resources", "volumes")),
    *(f"configuration.{name}" for name in ("docker", "files", "image", "user", "privileged", "entrypoint", "shell")),
    *(f"configuration.{name}" for name in ("working_dir", "python", "nvcc", "single_branch", "env", "commands")),
)
FLEET_IN_PLACE = (
    "configuration_path",
    *(
        f"configuration.{name}"
        for name in (
            "nodes",
            "reservation",
            "tags",
            "resources",
            "backends",
            "regions",
            "availability_zones",
            "instance_types",
            "spot_policy",
            "max_price",
            "ssh_config",  # as far as `machines.hosts.obstacles` permits
        )
    ),
)


def read_run_spec(raw: Raw) -> RunSpec:
    return _read(RunSpec, raw)


def read_fleet_spec(raw: Raw) -> FleetSpec:
    return _read(FleetSpec, raw)


def _read(model: type[S], raw: Raw) -> S:
    try:
        return read(model, raw)
    except Invalid as refused:
        raise Invalid(as_written(_misnamed_raw(raw) + list(refused.problems), model)) from None


def with_texts(raw: Raw, spec: RunSpec | FleetSpec | GatewaySpec) -> Raw:
    """The spec as sent, but with a text where a number was sent for one: clients expect what the contract says."""
    numbers = [name for name, value in raw.items() if type(value) in (int, float)]
    return {**raw, **{name: getattr(spec, name) for name in numbers}} if numbers else raw


def refuse(spec: RunSpec | FleetSpec, problems: Iterable[Problem]) -> None:
    """Raises Invalid with all problems, including an invalid name."""
    name, noun = (spec.run_name, "run") if isinstance(spec, RunSpec) else (spec.configuration.name, "fleet")
    found = [*([] if name is None else _misnamed(name, noun)), *problems]
    if found:
        raise Invalid(as_written(found, type(spec)))


def _misnamed_raw(raw: Raw) -> list[Problem]:
    """The problems of the name in a spec that can't be read."""
    if "run_name" in raw:
        return _misnamed(raw["run_name"], "run") if isinstance(raw["run_name"], str) else []
    configuration = raw.get("configuration")
    name = configuration.get("name") if isinstance(configuration, dict) else None
    return _misnamed(name, "fleet") if isinstance(name, str) else []


def _misnamed(name: str, noun: str) -> list[Problem]:
    wrong = names.problem(name, noun)
    return [Problem(wrong[0], path="configuration.name", hint=wrong[1], code="invalid-name")] if wrong else []


def as_written(problems: Iterable[Problem], model: type[RunSpec | FleetSpec]) -> list[Problem]:
    """Problems with paths that their author knows: for the configuration those of the file, so that a client can find
    the line; `profile.…` for the profile; from the top of the request for everything else."""
    prefix = "run_spec" if model is RunSpec else "spec"
    return [replace(problem, path=_path_as_written(problem.path, prefix)) for problem in problems]


def _path_as_written(path: str, prefix: str) -> str:
    first, _, below = path.partition(".")
    if first == "configuration":
        return below
    return path if first == "profile" else f"{prefix}.{path}".rstrip(".")


def invented_name(random_id: str, noun: str, taken: Callable[[str], bool]) -> str:
    """A readable name for something without one."""
    seed = int(random_id.replace("-", ""), 16)
    return names.generated_run_name(seed, taken) if noun == "run" else names.generated_name(seed, taken)


def text_of(raw: Raw, derived: Iterable[str] = ()) -> str:
    """`raw` as JSON text, if it and what was `derived` from it fit into one record."""
    text = orjson.dumps(raw).decode()
    refuse_large(len(text.encode()), sum(len(part.encode()) for part in derived))
    return text


def refuse_large(written: int, derived: int = 0, shown: int = 0) -> None:
    """Raises Refused for a spec that has too many bytes for one record, together with what is `derived` from it, or for
    one response, as `shown` with the specs of all nodes."""
    if written + derived > MAX_SPEC:
        more = f", and what its jobs get of it has {derived // 1000} KB" if derived else ""
        text = f"This specification has {written // 1000} KB{more}; the limit is {MAX_SPEC // 1000} KB"
        raise Refused(f"{text}{' for both' if derived else ''}.", hint=SHORTER)
    if shown > MAX_SHOWN:
        text = f"This specification has, as its nodes get it, {shown // 1000} KB; the limit is {MAX_SHOWN // 1000} KB."
        raise Refused(text, hint=SHORTER)


# --- differences ----------------------------------------------------------------------------------------------------


def changed_fields(old: RunSpec | FleetSpec, new: RunSpec | FleetSpec) -> list[str]:
    """The dotted names of changed fields, within the configuration field by field. Null and absent are the same."""
    return list(_changes(_settled(old), _settled(new)))


def _settled(spec: RunSpec | FleetSpec) -> dict[str, Any]:
    """The spec as plain data, without the parts that the control plane fills in."""
    data = spec.model_dump(exclude={"run_name", "ssh_key_pub", "autocreated"})
    data["profile"] = {**(data.get("profile") or Profile().model_dump()), "name": ""}  # clients differ in what it is
    if isinstance(spec, RunSpec):
        data["configuration"]["priority"] = data["configuration"]["priority"] or 0
    else:
        data["configuration"]["placement"] = data["configuration"]["placement"] or "any"
    data["configuration"].pop("name")
    return data


def _changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in old.keys() | new.keys():
        before, after = old.get(name), new.get(name)
        if name == "configuration" and before and after:
            for inner in before.keys() | after.keys():
                if before.get(inner) != after.get(inner):
                    yield f"configuration.{inner}"
        elif before != after:
            yield name


def needs_new_run(old: RunSpec, new: RunSpec) -> list[str]:
    """The changed fields that a live run can't take over."""
    services = old.configuration.type == new.configuration.type == "service"
    in_place: Sequence[str] = SERVICE_IN_PLACE if services else RUN_IN_PLACE
    if services and any(_found_by_workers(each) for each in (old, new)):
        in_place = (*RUN_IN_PLACE, *(["configuration.groups"] if _only_counts(old, new) else []))
    changed = [name for name in changed_fields(old, new) if name not in in_place]
    if "configuration.resources" in changed and _arch_dropped(old, new):
        changed.remove("configuration.resources")
    if "configuration.files" in changed and "file_archives" not in changed:
        changed.remove("configuration.files")
    return sorted(changed)


def _found_by_workers(spec: RunSpec) -> bool:
    """Were the service's workers started with the address of its router? They would never find another router."""
    config = spec.configuration
    return isinstance(config, ServiceConfiguration) and discovery(config) is not None


def _only_counts(old: RunSpec, new: RunSpec) -> bool:
    """Whether groups differ only in how many replicas they have."""

    def without_counts(spec: RunSpec) -> list[ReplicaGroup]:
        groups = (spec.configuration.groups or ()) if isinstance(spec.configuration, ServiceConfiguration) else ()
        return [group.with_(replicas=Range[int](min=1, max=1), scaling=None) for group in groups]

    return without_counts(old) == without_counts(new)


def _arch_dropped(old: RunSpec, new: RunSpec) -> bool:
    """Whether the resources differ only in that the new ones no longer require a CPU architecture."""
    before, after = old.configuration.resources, new.configuration.resources
    return after.cpu.arch is None and before.with_(cpu=before.cpu.with_(arch=None)) == after


def needs_new_fleet(old: FleetSpec, new: FleetSpec) -> list[str]:
    changed = [name for name in changed_fields(old, new) if name not in FLEET_IN_PLACE]
    if (old.configuration.ssh_config is None) != (new.configuration.ssh_config is None):
        changed.append("configuration.ssh_config")
    return sorted(set(changed))
