"""Planning and applying gateways.

A new gateway is one commit: the gateway, its name, the event and, if it becomes the default, that pointer. The
reconciler finds machines for it. `default`, `domain` and `replicas` change in place, and so does `certificate`, if
there is one before and after.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from chalicelib.configuration import references
from chalicelib.configuration.reading import read
from chalicelib.domain import keys, names
from chalicelib.domain.events import EventType
from chalicelib.domain.gateways import Gateway, GatewayStatus
from chalicelib.domain.specs.gateways import GatewayConfiguration, GatewaySpec, GivenGatewayCertificate
from chalicelib.domain.tenants import Project, User
from chalicelib.errors import AlreadyExists, Conflict, Contended, Invalid, PreconditionFailed, Problem
from chalicelib.planning.gateways.field_support import gateway_refusals
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.runs import remarks
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.port import Change
from chalicelib.usecases import specs
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.machines import fleets
from chalicelib.usecases.people import secrets
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.ports import OfferPorts, RecordPorts, SealedChangePorts, SealedPorts
from chalicelib.usecases.services import certificates, gateways, uploaded_certificates

IN_PLACE = frozenset({"default", "domain", "replicas"})


@dataclass(frozen=True)
class GatewayPlan:
    spec: str  # as sent; its secrets are sealed for the sender, who returns the plan to apply it
    current: Gateway | None
    action: Literal["create", "update"]
    changes: tuple[str, ...] = ()  # with `update`: the fields that would change
    remarks: tuple[str, ...] = ()  # further notes for the reader


@dataclass(frozen=True)
class SeenGateway:
    """The gateway as the client saw it when it planned."""

    id: str
    configuration: dict[str, Any]


def get_plan(plane: OfferPorts, user: User, project: Project, raw: dict[str, Any]) -> GatewayPlan:
    raw, configuration = _checked(plane, user, project, raw)
    name = configuration.name
    current = None if name is None else gateways.holder(plane, project, name)[0]
    changes: set[str] | None = None  # that can be made in place; None: the gateway can't be changed like this
    if current is not None and not _obstacles(plane, current, configuration):
        changes = _changes(plane, current, configuration)[0]
    spec = {**raw, "configuration": {**raw["configuration"], "type": "gateway", "name": name}}
    sealed = sealed_specs.to_client(plane.seal, GatewaySpec, spec, project.id, user.id)
    return GatewayPlan(
        specs.text_of(sealed),
        current,
        action="create" if changes is None else "update",
        changes=tuple(sorted(changes or ())),
        remarks=tuple(remarks.of_gateway(configuration)),
    )


def create(plane: OfferPorts, user: User, project: Project, configuration: dict[str, Any], *, new: str = "") -> Gateway:
    """Create a gateway. Unlike `apply_plan`, this never changes an existing one. `new`: its id, if that is known."""
    name = configuration.get("name")
    found = gateways.holder(plane, project, name)[0] if isinstance(name, str) else None
    if found is not None:
        raise _taken(found, [])
    return apply_plan(plane, user, project, {"configuration": configuration}, None, new=new)


def apply_plan(
    plane: OfferPorts,
    user: User,
    project: Project,
    raw: dict[str, Any],
    seen: SeenGateway | None,
    *,
    new: str = "",
    or_change: bool = False,
) -> Gateway:
    """Creates the gateway, or changes it in place if possible. `seen`: the one that the plan was about, which must
    still be as it was; None: whatever is there. With `new`, the id of the gateway to make, none is changed,
    unless `or_change`."""
    _, configuration = _checked(plane, user, project, raw)
    name = configuration.name or specs.invented_name(
        plane.random_id(), "gateway", lambda name: plane.store.get(keys.gateway_name(project.id, name)) is not None
    )
    configuration = configuration.with_(name=name)
    for _ in range(TRIES):
        current, version = gateways.holder(plane, project, name)
        if seen is not None:
            _check_seen(current, seen, name)
        try:
            if current is None:
                return _create(plane, user, project, configuration, version, new or plane.random_id())
            if new and not or_change:
                raise _taken(current, [])
            return _update(plane, user, project, current, configuration)
        except Conflict:
            continue  # somebody took the name, or the engine moved the gateway: try again
    raise Contended(f"The gateway {name} keeps changing.", hint="Try again.")


# --- what speaks against it -----------------------------------------------------------------------------------------


def _checked(
    plane: OfferPorts, user: User, project: Project, raw: dict[str, Any]
) -> tuple[dict[str, Any], GatewayConfiguration]:
    """The spec with what an earlier plan sealed opened, and its configuration. Raises Invalid with every problem, each
    with the path that its author knows."""
    specs.text_of(raw)  # refuses a spec that is too large
    raw = sealed_specs.from_client(plane.seal, GatewaySpec, raw, project.id, user.id)
    found: list[Problem] = []
    try:
        spec = read(GatewaySpec, raw)
    except Invalid as refused:
        found = list(refused.problems)
    else:
        raw = specs.with_texts(raw, spec)
        found = [*references.misplaced(spec), *secrets.missing(plane, project, references.secrets_named(spec))]
        found += gateway_refusals(spec)
    configuration = raw.get("configuration")
    name = configuration.get("name") if isinstance(configuration, dict) else None
    wrong = names.problem(name, "gateway") if isinstance(name, str) else None
    if wrong:
        found.append(Problem(wrong[0], path="configuration.name", hint=wrong[1], code="invalid-name"))
    if found:
        raise Invalid([replace(each, path=_as_written(each.path)) for each in found])
    domain = gateways.domain_of(spec.configuration.domain, project)
    if isinstance(spec.configuration.certificate, GivenGatewayCertificate):
        read_certificate = uploaded_certificates.found(plane, project.id, spec.configuration.certificate)
        current = gateways.holder(plane, project, name)[0] if isinstance(name, str) else None
        gateways.refuse_certificate(plane, read_certificate, domain, current)
    _refuse_place(plane, project, spec.configuration)
    return raw, spec.configuration


def _as_written(path: str) -> str:
    first, _, below = path.partition(".")
    return below if first == "configuration" else f"spec.{path}".rstrip(".")


def _refuse_place(plane: OfferPorts, project: Project, configuration: GatewayConfiguration) -> None:
    if configuration.hosts:
        _refuse_fleet(plane, project, configuration)
        return
    backend, facts = configuration.backend, plane.backends.facts(project.id)
    able = [name for name, each in facts.items() if each.gateways]
    which = f"Backends with gateways: {', '.join(able)}" if able else "None of the project's backends has gateways"
    hint = f"{which}; or name an SSH fleet with `fleet`"
    if backend not in facts:
        text = f"the backend {backend} isn't configured for the project {project.name}"
        raise Invalid([Problem(text, path="backend", hint=hint, code="unknown-value")])
    if backend not in able:
        text = f"gateways in the backend {backend} aren't supported yet"
        raise Invalid([Problem(text, path="backend", hint=hint, code="unsupported")])


def _refuse_fleet(plane: RecordPorts, project: Project, configuration: GatewayConfiguration) -> None:
    name, path = configuration.hosts, "fleet" if configuration.fleet else "region"
    hint = "name an SSH fleet of this project, or the server's own; see them with `dstack fleet`"
    if "/" in name:
        text = f"`{name[:80]}` is a fleet of another project, and only the host's owner may make it a gateway"
        raise Invalid([Problem(text, path=path, hint=hint, code="not-permitted")])
    fleet = fleets.named(plane.store, project, name)
    if fleet is None:
        raise Invalid(
            [Problem(f"there is no fleet `{name[:80]}` in this project", path=path, hint=hint, code="unknown-value")]
        )
    if plane.read.fleet_spec(fleet.id, fleet.spec_num).configuration.nodes is not None:
        text = f"the machines of the fleet `{name}` are bought, so they come and go"
        hint = "name an SSH fleet, or leave out `fleet` and write `backend` and `region`: it gets a machine of its own"
        raise Invalid([Problem(text, path=path, hint=hint, code="exclusive")])


def _obstacles(plane: SealedPorts, current: Gateway, wanted: GatewayConfiguration) -> list[str]:
    if current.status is GatewayStatus.deleting:
        return ["it is being deleted"]
    old = _clear(plane, current)
    served = (
        {"certificate"} if old.certificate and wanted.certificate else set()
    )  # in place only if it has https before and after
    return sorted(_differences(old, wanted) - IN_PLACE - served)


def _clear(plane: SealedPorts, gateway: Gateway) -> GatewayConfiguration:
    """The configuration with its keys in clear, as in a new one, so that an unchanged key doesn't count as a change."""
    spec = {"configuration": gateway.written}
    return GatewaySpec.model_validate(
        sealed_specs.opened(plane.seal, GatewaySpec, spec, sealed_specs.of_gateway(gateway.id))
    ).configuration


def _differences(old: GatewayConfiguration, new: GatewayConfiguration) -> set[str]:
    """The fields that differ, except the name. A default that isn't set stays as it is."""
    before, after = _settled(old), _settled(new)
    changed = {field for field in after if before[field] != after[field]}
    return changed - ({"default"} if new.default is None else set())


def _settled(configuration: GatewayConfiguration) -> dict[str, Any]:
    same = {"fleet": configuration.hosts} if configuration.hosts else {}
    data = {**dict.fromkeys(GatewayConfiguration.model_fields), **configuration.model_dump(), **same}
    if same:
        data["backend"] = data["region"] = None
    data["replicas"] = data["replicas"] or 1
    return {name: value or None for name, value in data.items() if name != "name"}


def _taken(current: Gateway, obstacles: list[str]) -> AlreadyExists:
    if current.status is GatewayStatus.deleting:
        return AlreadyExists(f"The gateway {current.name} is being deleted.", hint="Wait until it is gone.")
    hint = f"Delete it first (dstack gateway delete {current.name}) or choose another name."
    what = f", and this can't be changed in place: {', '.join(obstacles)}" if obstacles else ""
    return AlreadyExists(f"There is a gateway {current.name} already{what}.", hint=hint)


def _check_seen(current: Gateway | None, seen: SeenGateway, name: str) -> None:
    if current is not None and current.id == seen.id:
        then = read(GatewaySpec, {"configuration": seen.configuration}, "current_resource").configuration
        now = GatewaySpec.model_validate_json(shown(current)).configuration
        given = (
            {"certificate"} if isinstance(now.certificate, GivenGatewayCertificate) else set()
        )  # clients don't know it
        if not _differences(then, now) - given:
            return
    what = "was deleted" if current is None else "was changed"
    raise PreconditionFailed(
        f"The gateway {name} {what} since this plan was made.", hint="Plan it again, or apply with --force."
    )


# --- writing it -----------------------------------------------------------------------------------------------------


def shown(gateway: Gateway) -> str:
    """The gateway's spec without its secrets."""
    return sealed_specs.shown(GatewaySpec, orjson.dumps({"configuration": gateway.written}).decode())


def _fields(
    plane: SealedPorts, project: Project, gateway_id: str, configuration: GatewayConfiguration
) -> dict[str, Any]:
    """The fields of its record that follow from its configuration."""
    spec = {"configuration": configuration.model_dump(mode="json")}
    sealed = sealed_specs.sealed(plane.seal, GatewaySpec, spec, sealed_specs.of_gateway(gateway_id))
    hosts = configuration.hosts
    return {
        "configuration": gateways.dumped(sealed["configuration"]),
        "fleet": hosts,
        "backend": "" if hosts else configuration.backend,
        "region": "" if hosts else configuration.region,
        "domain": gateways.domain_of(configuration.domain, project),
        "wanted": configuration.replicas or 1,
        "http_port": configuration.http_port or 80,
        "https_port": (configuration.https_port or 443) if configuration.certificate else None,
    }


def _create(
    plane: SealedChangePorts,
    user: User,
    project: Project,
    configuration: GatewayConfiguration,
    version: int,
    gateway_id: str,
) -> Gateway:
    """A new gateway. `version`: of the name's pointer, at which the name was free."""
    now = plane.clock.now()
    gateway = Gateway(
        id=gateway_id,
        project_id=project.id,
        name=str(configuration.name),
        created_at=now,
        last_processed_at=now,
        due_at=now,
        **_fields(plane, project, gateway_id, configuration),
    )
    draft = Draft.of(user, now)
    draft.save(gateway)
    draft.record(EventType.created, gateway)
    draft.wake(gateway.unit)
    pointer = nouns.pointer(keys.gateway_name(project.id, gateway.name), gateway.id, version=version)
    swap = gateways.default_change(plane, gateway, configuration.default)
    plane.committer.take(
        NounsSnapshot(now, ()), draft.plan(), [pointer, *_present(swap), undeleted(plane.store, project)]
    )
    return gateways.get(plane, project, gateway.name)


def _update(
    plane: SealedChangePorts, user: User, project: Project, current: Gateway, configuration: GatewayConfiguration
) -> Gateway:
    obstacles = _obstacles(plane, current, configuration)
    if obstacles:
        raise _taken(current, obstacles)
    changed, swap = _changes(plane, current, configuration)
    if not changed:
        certificates.retry_failed(plane, current)
        return current
    now = plane.clock.now()
    fields = _fields(plane, project, current.id, configuration)
    message = "" if current.status is GatewayStatus.running else current.message  # the next pass writes a current one
    gateway = current.with_(**fields, message=message, last_processed_at=now, due_at=now)
    change = Draft.of(user, now)
    change.save(gateway)
    change.record(EventType.changed, gateway, fields=tuple(sorted(changed)))
    change.wake(gateway.unit)
    plane.committer.take(NounsSnapshot(now, (current,)), change.plan(), _present(swap))
    certificates.retry_failed(plane, current)
    return gateways.get(plane, project, gateway.name)


def _changes(plane: SealedPorts, current: Gateway, wanted: GatewayConfiguration) -> tuple[set[str], Change | None]:
    """The fields that change in place, and the change that makes it the default or ends that."""
    swap = gateways.default_change(plane, current, wanted.default) if wanted.default is not None else None
    changed = _differences(_clear(plane, current), wanted) - {"default"}
    return changed | ({"default"} if swap else set()), swap


def _present(swap: Change | None) -> list[Change]:
    return [] if swap is None else [swap]
