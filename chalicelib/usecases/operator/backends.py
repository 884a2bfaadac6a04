"""Backends of a project, configured over the API or in the server's file.

A configuration from the API is tried at the provider before it is stored; one from the file isn't, because a server
must start while a provider is down. Credentials are sealed for their project and type and shown to nobody: they are
hidden where a configuration is read, and an update with hidden credentials leaves the stored ones as they are. A
backend of the file can be changed only there, and one of the API only over the API, so that neither undoes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from chalicelib.configuration.server import read_backend
from chalicelib.configuration.server_spec import config_model
from chalicelib.domain import keys
from chalicelib.domain.backends import BackendRoster, Configured
from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros
from chalicelib.domain.names import first_of
from chalicelib.domain.specs.credentials import DefaultCreds, UsesServersOwn
from chalicelib.domain.specs.reading import Spec
from chalicelib.domain.specs.secrecy import HIDDEN, filled
from chalicelib.domain.tenants import GlobalRole, Project, User
from chalicelib.engine.ports import AccountWork, Backends, ConfigurationCheck
from chalicelib.errors import AlreadyExists, BackendError, Invalid, NotFound, NotSupported, Problem, Refused
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.listing import every
from chalicelib.store.port import Change, Delete, Store
from chalicelib.usecases.audit_events import audit_event, backend_target, project_target
from chalicelib.usecases.context import Providers
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.ports import RecordPorts, SealedPorts

Raw = dict[str, Any]
NEWEST = 200  # instances of a fleet: more than it buys while an index lags behind
IN_FILE = "server/config.yml"


# --- read -------------------------------------------------------------------------------------------------------------


class BackendPorts(SealedPorts, Protocol):
    """The ports for configuring backends."""

    @property
    def backends(self) -> Backends: ...

    @property
    def providers(self) -> Providers: ...

    @property
    def account_work(self) -> AccountWork: ...

    @property
    def random_id(self) -> Callable[[], str]: ...


def list_backends(store: Store, project_id: str) -> list[Configured]:
    """The project's backends, by type."""
    return [nouns.read(Configured, record) for record in every(store, f"project/{project_id}", "backend/")]


def get_backend(plane: RecordPorts, project: Project, type: str) -> Configured:
    found = nouns.find(plane.store, Configured, keys.backend(project.id, type))
    if found is None:
        raise NotFound(
            f"The project {project.name} has no backend {type[:80]!r} that was configured.",
            hint="See `dstack backend list`.",
        )
    return found


def shown(backend: Configured) -> Raw:
    """The backend's configuration, with its secrets hidden."""
    model = config_model(backend.type)
    assert model is not None, "only known types are stored"
    found: Raw = orjson.loads(sealed_specs.marked(model, backend.config))
    return found


def opened(plane: SealedPorts, backend: Configured) -> Raw:
    """The configuration with its secrets in clear, to make the backend. Never shown, stored or logged."""
    model = config_model(backend.type)
    assert model is not None, "only known types are stored"
    raw = orjson.loads(backend.config)
    return sealed_specs.opened(plane.seal, model, raw, sealed_specs.of_backend(backend.project_id, backend.type))


# --- changed ----------------------------------------------------------------------------------------------------------


def create_backend(plane: BackendPorts, project: Project, actor: User, config: Spec) -> Configured:
    """Check and store a new backend. Raises the provider's own error if it refuses the configuration."""
    type = type_of(config)
    _refuse_unknown(plane, project, type)
    if nouns.find(plane.store, Configured, keys.backend(project.id, type)) is not None:
        raise AlreadyExists(
            f"The project {project.name} has a backend `{type}` already.", hint="Change that one, or delete it first."
        )
    _refuse_hidden(plain(config))
    _refuse_own_credentials(config, actor)
    check(plane, project, config)
    return store(plane, project, config, None, actor=actor)


def update_backend(plane: BackendPorts, project: Project, actor: User, config: Spec) -> Configured:
    """Change the configuration. Machines and volumes stay, so the new one must reach them."""
    type = type_of(config)
    _refuse_unknown(plane, project, type)
    known = get_backend(plane, project, type)
    _refuse_of_file(known)
    raw = filled(plain(config), _readable(plane, known))
    _refuse_hidden(raw)
    config = read_backend(raw)
    _refuse_own_credentials(config, actor)
    check(plane, project, config, _machines(plane, project.id, type))
    return store(plane, project, config, known, actor=actor)


def delete_backends(plane: BackendPorts, project: Project, actor: User, types: Sequence[str]) -> None:
    """Delete all of them or none. If a fleet or a run was applied just before, the deletion is undone."""
    found = [get_backend(plane, project, type) for type in dict.fromkeys(types)]
    for backend in found:
        _refuse_of_file(backend)
        _refuse_used(plane, backend)
    forget(plane, found, actor=actor)
    try:
        for backend in found:
            _refuse_used(plane, backend)
    except Refused:
        for backend in found:
            _put_back(plane, backend, actor)
        raise


def check_backend(plane: BackendPorts, project: Project, type: str) -> None:
    """Ask the provider whether the stored configuration works. Raises what is wrong."""
    backend = get_backend(plane, project, type)
    _refuse_unknown(plane, project, type)
    check(plane, project, read_backend(opened(plane, backend)))


def check(plane: BackendPorts, project: Project, config: Spec, machines: Iterable[Instance] = ()) -> None:
    """Check the configuration at the provider. Raises its refusal, or Refused if `machines` can't be seen with this
    configuration."""
    type = type_of(config)
    shown = plane.clock.now() - plane.providers.facts(type).visibility_lag
    expected = {machine.id: machine.name for machine in machines if _must_show(machine, shown)}
    try:
        plane.account_work.check(ConfigurationCheck(project.id, type, _sealed(plane, project, config), expected))
    except BackendError as error:
        error.fields = error.fields or ("creds",)
        raise


# --- stored -----------------------------------------------------------------------------------------------------------


def store(
    plane: BackendPorts,
    project: Project,
    config: Spec,
    known: Configured | None,
    *,
    actor: User | None = None,
    from_file: bool = False,
) -> Configured:
    """Store a backend, as a new one or in the place of `known`."""
    type, now, text = type_of(config), plane.clock.now(), _sealed(plane, project, config)
    if known is None:
        backend = Configured(
            id=plane.random_id(), project_id=project.id, type=type, config=text, from_file=from_file, changed_at=now
        )
    else:
        backend = known.with_(config=text, from_file=from_file, changed_at=now)
    did = EventType.created if known is None else EventType.changed
    roster = _roster(plane.store, add=[(project.id, type)])
    event = _event(plane, did, backend, project, actor)
    plane.store.commit([undeleted(plane.store, project), nouns.put(backend), roster, event])
    plane.backends.invalidate(backend.account)
    return backend


def forget(plane: BackendPorts, backends: Sequence[Configured], *, actor: User | None = None) -> None:
    """Delete the records of backends. The caller has checked that nothing uses them."""
    if not backends:
        return
    changes: list[Change] = [_roster(plane.store, drop=[(one.project_id, one.type) for one in backends])]
    for one in backends:
        project = nouns.find(plane.store, Project, keys.project(one.project_id))
        changes.append(Delete(nouns.key_of(one), one.version))
        if project is not None:
            changes.append(_event(plane, EventType.deleted, one, project, actor))
    plane.store.commit(changes)
    plane.backends.invalidate(*(one.account for one in backends))


def uses(plane: RecordPorts, project_id: str, type: str) -> list[str]:
    """The names of all that uses this backend: machines, volumes, gateways, and fleets with a placement group there."""
    groups = [
        f"placement group of fleet {fleet.name}"
        for fleet in plane.read.fleets(project_id)
        if any(group.backend == type for group in fleet.groups)
    ]
    volumes = [f"volume {volume.name}" for volume in plane.read.volumes(project_id) if volume.backend == type]
    gateways = [f"gateway {gateway.name}" for gateway in plane.read.gateways(project_id) if gateway.backend == type]
    return [*(machine.name for machine in _machines(plane, project_id, type)), *volumes, *groups, *gateways]


def _machines(plane: RecordPorts, project_id: str, type: str) -> list[Instance]:
    return [
        instance
        for fleet in plane.read.fleets(project_id)
        for instance in _instances(plane, fleet)
        if instance.offer.backend == type
    ]


def _instances(plane: RecordPorts, fleet: Fleet) -> list[Instance]:
    """The fleet's instances: those in the index, and the newest, which the index may not show yet."""
    found = {instance.id: instance for instance in plane.read.instances(fleet.id)}
    newest = range(max(0, fleet.next_instance_num - NEWEST), fleet.next_instance_num)
    unseen = [id_ for num in newest if (id_ := derive(fleet.id, "instance", num)) not in found]
    for instance in plane.read.find_many(Instance, [keys.instance(id_) for id_ in unseen]):
        if instance is not None and instance.status is not InstanceStatus.terminated:
            found[instance.id] = instance
    return sorted(found.values(), key=lambda each: each.num)


def _must_show(machine: Instance, shown: Micros) -> bool:
    """Must the provider's listing contain the machine? Only if it has existed for long enough and isn't ending."""
    return bool(machine.handles) and machine.created_at <= shown and machine.status is not InstanceStatus.terminating


def _readable(plane: SealedPorts, backend: Configured) -> Raw:
    """The configuration in clear; empty if it can't be opened, so that it can still be replaced as a whole."""
    try:
        return opened(plane, backend)
    except Refused:
        return {}


def _sealed(plane: SealedPorts, project: Project, config: Spec) -> str:
    """The configuration as it is stored: JSON with sealed secrets."""
    context = sealed_specs.of_backend(project.id, type_of(config))
    return orjson.dumps(sealed_specs.sealed(plane.seal, _kind(config), plain(config), context)).decode()


def _put_back(plane: BackendPorts, backend: Configured, actor: User) -> None:
    if nouns.find(plane.store, Configured, nouns.key_of(backend)) is not None:
        return  # it was configured again meanwhile
    restored = backend.with_(version=0)
    project = nouns.find(plane.store, Project, keys.project(backend.project_id))
    roster = _roster(plane.store, add=[(backend.project_id, backend.type)])
    changes: list[Change] = [nouns.put(restored), roster]
    if project is not None:
        changes.append(_event(plane, EventType.changed, backend, project, actor, "not deleted, because it is in use"))
    plane.store.commit(changes)
    plane.backends.invalidate(restored.account)


def _roster(store: Store, add: Iterable[tuple[str, str]] = (), drop: Iterable[tuple[str, str]] = ()) -> Change:
    """The change of the roster, which also drops backends that were erased with their project."""
    now = nouns.find(store, BackendRoster, keys.ROSTER) or BackendRoster()
    records = store.get_many([keys.backend(*row) for row in now.rows]) if now.rows else []
    stored = {row for row, record in zip(now.rows, records, strict=True) if record is not None}
    return nouns.put(now.with_(rows=tuple(sorted((stored | set(add)) - set(drop)))))


def _event(
    plane: RecordPorts, type: EventType, backend: Configured, project: Project, actor: User | None, detail: str = ""
) -> Change:
    seed = f"{backend.id}/{backend.version}/{detail}"
    text = ": ".join(part for part in (backend.type, detail) if part)
    text += f", by {IN_FILE}" if backend.from_file else ""
    targets = (backend_target(backend), project_target(project))
    event = audit_event(type, plane.clock.now(), *targets, project_id=project.id, seed=seed, actor=actor, detail=text)
    return nouns.put(event)


# --- what is refused --------------------------------------------------------------------------------------------------


def type_of(config: Spec) -> str:
    return str(getattr(config, "type"))  # noqa: B009 - every configuration of a backend has it


def plain(config: Spec) -> Raw:
    """The fields that were set, as plain data."""
    return config.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def _kind(config: Spec) -> type[Spec]:
    return type(config)


def _refuse_unknown(plane: BackendPorts, project: Project, type: str) -> None:
    shared = [account.facts.name for account in plane.backends.accounts(project.id) if account.project_id is None]
    if type in shared:
        raise Refused(f"The simulated cloud stands in for the backend `{type}` here.", hint="Configure another type.")
    if type not in plane.providers.types:
        known = ", ".join(sorted(plane.providers.types)) or "none"
        raise NotSupported(f"The backend {type} isn't built yet.", hint=f"These are: {known}.")


def _refuse_of_file(backend: Configured) -> None:
    if backend.from_file:
        raise Refused(
            f"The backend {backend.type} of this project is configured in {IN_FILE}.",
            hint="Change it there; the server follows.",
        )


def _refuse_used(plane: RecordPorts, backend: Configured) -> None:
    used = uses(plane, backend.project_id, backend.type)
    if used:
        raise Refused(
            f"The backend {backend.type} is in use: {first_of(used)}.",
            hint="Delete the fleets, volumes and gateways that they belong to, and wait until they are gone.",
        )


def _refuse_own_credentials(config: Spec, actor: User) -> None:
    """Refuse the control plane's own credentials and files, except to global admins."""
    if actor.role is GlobalRole.admin:
        return
    if isinstance(getattr(config, "creds", None), DefaultCreds):
        what = "`default` means the control plane's own credentials, which only a global admin may let a project use"
        raise Invalid([Problem(what, path="creds.type", hint="give keys of your own")])
    if isinstance(config, UsesServersOwn) and (field := config.servers_own()):
        what = (
            "this names files, credentials or addresses of the control plane's own machine, which only a global admin "
            "may let a project use"
        )
        hint = "give credentials of your own, by value, and an address that others can reach"
        raise Invalid([Problem(what, path=field, hint=hint)])


def _refuse_hidden(raw: Any, path: str = "") -> None:
    if raw == HIDDEN:
        raise Invalid([Problem(f"{HIDDEN} stands for a secret that isn't known", path=path, hint="write the secret")])
    if isinstance(raw, Mapping):
        for name, value in raw.items():
            _refuse_hidden(value, f"{path}.{name}" if path else str(name))
    if isinstance(raw, list):
        for at, value in enumerate(raw):
            _refuse_hidden(value, f"{path}.{at}")
