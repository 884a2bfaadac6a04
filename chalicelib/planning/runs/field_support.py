"""Unsupported parts of the configuration of runs and fleets: a table by path, and rules for what no table can express.

A field either has an effect or is refused by name, with what to do instead. Nothing is accepted and ignored. A path
covers everything below it. Tests walk the models and require a proof for every field that isn't listed here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from chalicelib.domain.editors import EDITORS, VERSION
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.specs.env import unresolved
from chalicelib.domain.specs.fleets import NEEDS_NODES, FleetConfiguration, FleetSpec
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration, NodeGroup, RunSpec, TaskConfiguration
from chalicelib.domain.specs.services import ReplicaGroup, ServiceConfiguration, of_group
from chalicelib.domain.specs.workloads import RunConfiguration
from chalicelib.errors import Problem
from chalicelib.planning.jobs import command_lists, neighbours, replica_groups
from chalicelib.planning.jobs.jobs import RESERVED_PORTS
from chalicelib.planning.jobs.nodes import unknown_nodes
from chalicelib.planning.kernel.field_support import NotBuilt, refused
from chalicelib.planning.matching.requirements import merged_fleet, merged_run
from chalicelib.planning.runs.schedule import schedule_of
from chalicelib.planning.runs.utilization import LONGEST_WINDOW
from chalicelib.planning.volumes.mounts import first_folder, wrong_mounts

MOST_NODES = 500  # of a task
MOST_REPLICAS = 500  # of a service
LONGEST_PROBE = 300  # seconds
AnyConfiguration = TaskConfiguration | DevEnvironmentConfiguration | ServiceConfiguration

_SHARED = "are in their hosts' network, where an engine of their own would change that of the hosts"

RUN_NOT_BUILT: dict[str, NotBuilt] = {
    "repo_data.repo_diff": NotBuilt(
        "a patch is uploaded apart from the run", "send it to repos/upload_code, and its SHA-256 in `repo_code_hash`"
    ),
    "working_dir": NotBuilt("the working directory is part of the configuration", "set `configuration.working_dir`"),
    "configuration.model.format": NotBuilt(
        "only OpenAI's API is passed on", "write `format: openai`, which TGI serves too", ("openai",)
    ),
    "configuration.model.chat_template": NotBuilt("the model server applies its own template", "configure it there"),
    "configuration.model.eos_token": NotBuilt("the model server has its own", "configure it there"),
    "configuration.setup": NotBuilt("there is no stage before the commands", "put them first in `commands` or `init`"),
}

FLEET_NOT_BUILT: dict[str, NotBuilt] = {
    "configuration.resources.shm_size": NotBuilt("shared memory belongs to a job", "set it in the run's `resources`"),
    "configuration.retry": NotBuilt(
        "a fleet below its target always retries, at its own pace", "remove it", (False, True)
    ),
}


def refusals(run_spec: RunSpec) -> list[Problem]:
    """Problems for every unsupported field and value of a run."""
    config = run_spec.configuration
    found = [*refused(run_spec, RUN_NOT_BUILT), *_port_refusals(config), *_too_long(run_spec)]
    found += [*wrong_mounts(config.volumes), *_shell_refusals(config)]
    if isinstance(config, DevEnvironmentConfiguration):
        found += _editor_refusals(config)
    elif isinstance(config, TaskConfiguration):
        found += _node_refusals(config)
    else:
        found += _replica_refusals(run_spec, config)
    # Report a value from the profile once, where it was written.
    written = {problem.path.removeprefix("profile.") for problem in found if problem.path.startswith("profile.")}
    reported = [
        p for p in found if p.path.removeprefix("configuration.") not in written or p.path.startswith("profile.")
    ]
    return reported + unresolved(run_spec.configuration.env, "configuration.env")


def _port_refusals(config: AnyConfiguration) -> Iterator[Problem]:
    if isinstance(config, ServiceConfiguration):
        written = [("port", config.port)]
    else:
        written = [(f"ports.{place}", port) for place, port in enumerate(config.ports)]
    for number, group in enumerate((config.groups or ()) if isinstance(config, TaskConfiguration) else ()):
        written += [(f"groups.{number}.ports.{place}", port) for place, port in enumerate(group.ports)]
    for path, port in written:
        if port.container_port in RESERVED_PORTS:
            text = f"the port {port.container_port} of a job is reserved, as are all from 10000 to 10999"
            hint = "have the job listen on another"
            yield Problem(text, path=f"configuration.{path}", hint=hint, code="unsupported")


def _editor_refusals(config: DevEnvironmentConfiguration) -> Iterator[Problem]:
    if config.ide is None or config.version is None:
        return
    editor = EDITORS[config.ide]
    if not editor.server:
        text = f"`version` doesn't apply to {editor.name}, which brings its own server"
        yield Problem(text, path="configuration.version", hint="remove it", code="unsupported")
    elif not VERSION.fullmatch(config.version):  # it becomes part of a command and of an address
        text = f"`{config.version[:60]}` isn't a version of {editor.name}"
        hint = f"write the commit that `{editor.command} --version` prints"
        yield Problem(text, path="configuration.version", hint=hint)


def _shell_refusals(config: AnyConfiguration) -> Iterator[Problem]:
    """Problems of shells that can't run a list of commands, and of values that can't be passed to any program."""
    if posixpath.basename(config.shell or "") in command_lists.FOREIGN:
        text = f"`commands` are in the language of POSIX shells, and `{config.shell}` has one of its own"
        hint = f"leave `shell` out, and run a script: `{posixpath.basename(config.shell or '')} SCRIPT`"
        yield Problem(text, path="configuration.shell", hint=hint, code="unsupported")
    if isinstance(config, DevEnvironmentConfiguration):
        yield from command_lists.unusable("configuration.init", config.init)
    else:
        arguments = config.entrypoint is not None
        yield from command_lists.unusable("configuration.commands", config.commands, arguments=arguments)
        groups: Sequence[NodeGroup | ReplicaGroup] = config.groups or ()
        for at, group in enumerate(groups):
            yield from command_lists.unusable(f"configuration.groups.{at}.commands", group.commands)
    for name, value in config.env.items():
        yield from command_lists.too_long(f"configuration.env.{name}", f"{name}={value}", "a variable")


def _too_long(run_spec: RunSpec) -> Iterator[Problem]:
    """Problems of windows that are longer than samples are kept."""
    for path, part in (("configuration", run_spec.configuration), ("profile", run_spec.profile)):
        policy = getattr(part, "utilization_policy", None)
        if policy is not None and policy.time_window > LONGEST_WINDOW:
            text = f"the use of GPUs is known for the last hour, and the window is {policy.time_window} s"
            where = f"{path}.utilization_policy.time_window"
            yield Problem(text, path=where, hint="set `time_window: 1h` or less", code="too-large")


def _node_refusals(config: TaskConfiguration) -> Iterator[Problem]:
    """Problems of a task's nodes: too many, addresses of ones that don't exist, engines that would disturb hosts."""
    nodes = (config.nodes or 1,) if config.groups is None else tuple(group.nodes for group in config.groups)
    field = "nodes" if config.groups is None else "groups"
    if sum(nodes) > MOST_NODES:
        text = f"a task has at most {MOST_NODES} nodes, and this one has {sum(nodes)}"
        yield Problem(text, path=f"configuration.{field}", hint="split it into several runs", code="too-large")
    if config.docker and sum(nodes) > 1:
        text = f"several nodes {_SHARED}"
        hint = "remove it, or run the task on one node"
        yield Problem(text, path="configuration.docker", hint=hint)
    there = ", ".join(f"groups[{at}].nodes[0..{count - 1}]" for at, count in enumerate(nodes[:5]))
    for path, command in _commands(config):
        for unknown in unknown_nodes(command, nodes):
            text, hint = f"`{unknown}` isn't a node of this task", f"there are {there}: both count from 0"
            yield Problem(text, path=f"configuration.{path}", hint=hint)


def _commands(config: TaskConfiguration | ServiceConfiguration) -> Iterator[tuple[str, str]]:
    """Every command, with its path in the configuration."""
    yield from ((f"commands.{at}", command) for at, command in enumerate(config.commands))
    groups: Sequence[NodeGroup | ReplicaGroup] = config.groups or ()
    for number, group in enumerate(groups):
        yield from ((f"groups.{number}.commands.{at}", command) for at, command in enumerate(group.commands))


def _replica_refusals(run_spec: RunSpec, config: ServiceConfiguration) -> Iterator[Problem]:
    """Problems of a service's replicas: too many, probes that take too long, addresses of ones that may be missing, a
    schedule beside starts by request."""
    groups = replica_groups.groups_of(config)
    field = "replicas" if config.groups is None else "groups"
    most = sum(count.max or 0 for count in groups.values())
    if most > MOST_REPLICAS:
        text = f"a service has at most {MOST_REPLICAS} replicas, and this one may have {most}"
        yield Problem(text, path=f"configuration.{field}", hint="split it into several services", code="too-large")
    yield from _own_engines(config)
    for at, probe in enumerate(config.probes or ()):
        if probe.timeout is not None and probe.timeout > LONGEST_PROBE:
            text = f"a probe waits at most {LONGEST_PROBE} s for its response, not {probe.timeout} s"
            path = f"configuration.probes.{at}.timeout"
            yield Problem(text, path=path, hint="set `timeout: 5m` or less", code="too-large")
    least = [count.min or 0 for count in groups.values()]
    there = [f"groups[{at}].replicas[0..{count - 1}]" for at, count in enumerate(least) if count]
    hint = f"there are {', '.join(there[:5])}: both count from 0" if there else "let `replicas` begin at 1"
    for path, command in _commands(config):
        for unknown in neighbours.unknown(command, least):
            text = f"`{unknown}` isn't a replica that this service always has"
            yield Problem(text, path=f"configuration.{path}", hint=hint)
    if schedule_of(run_spec) is not None and not any(count.min for count in groups.values()):
        text = "a service that may have no replicas starts with its first request, not by a schedule"
        hint = f"let `{field}` begin at 1, or remove `schedule`"
        yield Problem(text, path="configuration.schedule", hint=hint, code="exclusive")


def _own_engines(config: ServiceConfiguration) -> Iterator[Problem]:
    if not replica_groups.networked(config):
        return
    docker_fields = {"configuration": config.docker}
    docker_fields |= {f"configuration.groups.{at}": group.docker for at, group in enumerate(config.groups or ())}
    for path, docker in docker_fields.items():
        if docker:
            text = f"replicas that reach each other, as a router and its workers do, {_SHARED}"
            hint = "remove it, or name no replica in `commands` and have no router"
            yield Problem(text, path=f"{path}.docker", hint=hint)


def privileged(run_spec: RunSpec) -> list[Problem]:
    """Problems of a run that would give it control of its host, for a user who may not have that."""
    hint = "remove it, or ask the server's operator for `allow_non_admins_run_privileged`"
    if path := first_folder(run_spec.configuration.volumes):
        text = "folders of hosts are for the project's admins here: a job could read or change anything on its host"
        return [Problem(text, path=path, hint=hint, code="not-permitted")]
    config = run_spec.configuration
    groups = (config.groups or ()) if isinstance(config, ServiceConfiguration) else ()
    parts = [("configuration", config), *((f"configuration.groups.{at}", group) for at, group in enumerate(groups))]
    for path, part in parts:
        for name in ("privileged", "docker"):
            if getattr(part, name):
                text = f"`{name}` is for the project's admins here: the container could take over its host"
                return [Problem(text, path=f"{path}.{name}", hint=hint, code="not-permitted")]
    return []


def doorless(run_spec: RunSpec) -> list[Problem]:
    """Problems of a service without a gateway, where this control plane takes no requests for services itself."""
    config = run_spec.configuration
    if not isinstance(config, ServiceConfiguration) or config.gateway:
        return []
    text = "a service needs a gateway here: this control plane runs in AWS Lambda, which can't pass requests on"
    hint = "apply a configuration with `type: gateway`, then add `gateway: NAME` to this one"
    return [Problem(text, path="configuration.gateway", hint=hint, code="missing")]


def fleet_refusals(spec: FleetSpec) -> list[Problem]:
    """Problems for every unsupported field and value of a fleet."""
    found = list(refused(spec, FLEET_NOT_BUILT))
    if spec.configuration.nodes is None and spec.configuration.ssh_config is None:
        found.append(Problem(NEEDS_NODES[1], path="configuration", hint=NEEDS_NODES[2], code=NEEDS_NODES[0]))
    return found + unresolved(spec.configuration.env, "configuration.env")


def option_refusals(spec: RunSpec | FleetSpec, facts: Iterable[BackendFacts]) -> Iterator[Problem]:
    """Problems of options for a backend that the project doesn't have, that has none, or that isn't to be used. Those
    of a profile may be for others who use it, unless it excludes the backend itself."""
    able = {each.name for each in facts if each.options}
    profile, config = spec.profile, spec.configuration
    written, allowed = (profile.backend_options, profile.backends) if profile is not None else (None, None)
    used = config.backends if config.backends is not None else allowed
    parts = [("profile", written, used if allowed is not None else None)]
    if config.backend_options != written:  # a profile's may have been merged in
        parts.append(("configuration", config.backend_options, used))
    for part, options, backends in parts:
        for at, each in enumerate(options or ()):
            if each.type not in able:
                text = f"this project has no backend `{each.type}` that chooses among its offers by options"
                hint = "remove them, or add the backend, if it has any (see its page)"
                yield Problem(text, path=f"{part}.backend_options.{at}", hint=hint, code="unsupported")
            elif backends is not None and each.type not in map(str.lower, backends):
                text = f"these options have no effect: `backends` doesn't name `{each.type}`"
                hint = f"remove them, or add `{each.type}` to `backends`"
                yield Problem(text, path=f"{part}.backend_options.{at}", hint=hint, code="invalid-value")


def reservation_refusals(spec: RunSpec | FleetSpec, facts: Iterable[BackendFacts]) -> list[Problem]:
    """Problems of a reservation that no backend of the project could use, whichever it is."""
    config = merged_run(spec) if isinstance(spec, RunSpec) else merged_fleet(spec)
    in_profile = spec.profile is not None and spec.profile.reservation == config.reservation
    parts = [(f"{'profile' if in_profile else 'configuration'}.reservation", config)]
    if isinstance(config, ServiceConfiguration):
        names = replica_groups.groups_of(config) if config.groups else ()
        own = (of_group(config, name) for name in names)
        parts += [(f"configuration.groups.{at}.reservation", group) for at, group in enumerate(own)]
    able = {each.name for each in facts if each.reservations}
    problems = (_reservation_refusal(path, part, able) for path, part in parts)
    return [problem for problem in problems if problem is not None][:1]


def _reservation_refusal(path: str, config: RunConfiguration | FleetConfiguration, able: set[str]) -> Problem | None:
    if config.reservation is None:
        return None
    if config.spot_policy == "spot":
        text = "a machine in a reservation is never a spot machine"
        return Problem(text, path=path, hint="remove `reservation`, or set `spot_policy: on-demand`", code="exclusive")
    if able if config.backends is None else able & set(config.backends):
        return None
    which = "the backends that `backends` names" if config.backends is not None else "this project's backends"
    text, hint = (
        f"none of {which} can launch machines into reservations",
        "remove it, or add a backend that can, such as AWS",
    )
    return Problem(text, path=path, hint=hint, code="unsupported")
