"""Gateways: listing and deleting them, the default gateway of a project, and the domain of each.

The default is a pointer of the project, replaced in the commit that makes another gateway the default, so there is
never more than one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from chalicelib.configuration.interpolation import fill
from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.gateways import Gateway, GatewayStatus
from chalicelib.domain.names import those
from chalicelib.domain.tenants import Project, User
from chalicelib.errors import Conflict, Contended, Invalid, NotFound, Problem, Refused
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.requests import delete_gateway
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.port import Change, Delete
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.ports import ChangePorts, RecordPorts, SealedChangePorts, SealedPorts
from chalicelib.usecases.services import certificates, uploaded_certificates
from chalicelib.usecases.services.uploaded_certificates import GivenCertificate

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})+")
_ADDRESS = re.compile(r"[0-9.]+")  # an IPv4 address, which has no subdomains
_LONGEST = 200  # a service's name comes before it, and a host name has 253 characters at most


# --- read -----------------------------------------------------------------------------------------------------------


def get(plane: RecordPorts, project: Project, name: str) -> Gateway:
    gateway = holder(plane, project, name)[0]
    if gateway is None:
        raise NotFound(f"There is no gateway {name[:80]} in project {project.name}.")
    return gateway


def list_all(plane: RecordPorts, project: Project) -> list[Gateway]:
    """Every gateway of a project, oldest first."""
    return sorted(plane.read.gateways(project.id), key=lambda gateway: (gateway.created_at, gateway.id))


def holder(plane: RecordPorts, project: Project, name: str) -> tuple[Gateway | None, int]:
    """The gateway of that name, and the version of its pointer, on which the next claim of the name depends."""
    pointer = nouns.find_target(plane.store, keys.gateway_name(project.id, name))
    if pointer is None:
        return None, 0
    gateway = nouns.find(plane.store, Gateway, keys.gateway(pointer[0]))
    return None if gateway is None or gateway.deleted else gateway, pointer[1]


def dumped(configuration: dict[str, Any]) -> str:
    return orjson.dumps(configuration).decode()


# --- the default ----------------------------------------------------------------------------------------------------


def default_change(plane: RecordPorts, gateway: Gateway, wanted: bool | None) -> Change | None:
    """The change that makes the gateway the default (True), not the default (False), or the default if there is
    none."""
    pointer = nouns.find_target(plane.store, keys.default_gateway(gateway.project_id))
    current = plane.read.default_gateway(gateway.project_id)
    is_it = current is not None and current.id == gateway.id
    if wanted is False:
        return Delete(keys.default_gateway(gateway.project_id), pointer[1]) if pointer and is_it else None
    if is_it or (wanted is None and current is not None):
        return None
    return nouns.pointer(keys.default_gateway(gateway.project_id), gateway.id, version=pointer[1] if pointer else 0)


def set_default(plane: ChangePorts, user: User, project: Project, name: str) -> None:
    def change(gateway: Gateway, draft: Draft) -> tuple[Plan, list[Change]]:
        _refuse_ending(gateway)
        swap = default_change(plane, gateway, True)
        if swap is None:
            return Plan(), []
        draft.save(gateway.with_(last_processed_at=draft.now))
        draft.record(EventType.changed, gateway, fields=("default",))
        return draft.plan(), [swap]

    _changed(plane, user, project, name, change)


# --- the domain -----------------------------------------------------------------------------------------------------


def domain_of(written: str | None, project: Project) -> str:
    """The domain that a configuration gives: without `*.`, and with the project's name filled in. Raises Invalid."""
    if not written:
        return ""
    hint = "write one like `example.com` or `*.example.com`, and have its subdomains' DNS record point to the gateway"
    filled = fill(written.strip(), {"run": {"project_name": project.name}})
    domain = filled.lower().removeprefix("*.").rstrip(".")
    if "${{" in domain:
        text = "only `${{ run.project_name }}` can be in a gateway's domain"
        raise Invalid([Problem(text, path="domain", hint=hint)])
    if not _DOMAIN.fullmatch(domain) or _ADDRESS.fullmatch(domain) or len(domain) > _LONGEST:
        raise Invalid([Problem(f"`{filled[:80]}` isn't a domain", path="domain", hint=hint)])
    return domain


def set_domain(plane: SealedChangePorts, user: User, project: Project, name: str, written: str | None) -> Gateway:
    """Change the domain: an older call, for what `apply` does now. Empty for none."""
    domain = domain_of(written, project)

    def change(gateway: Gateway, draft: Draft) -> tuple[Plan, list[Change]]:
        _refuse_ending(gateway)
        configuration = {**gateway.written, "domain": written or None}
        if configuration == gateway.written:
            return Plan(), []
        _refuse_uncovered(plane, gateway, domain)
        draft.save(
            gateway.with_(
                configuration=dumped(configuration), domain=domain, last_processed_at=draft.now, due_at=draft.now
            )
        )
        draft.record(EventType.changed, gateway, fields=("domain",))
        draft.wake(gateway.unit)
        return draft.plan(), []

    return _changed(plane, user, project, name, change)


def _refuse_uncovered(plane: SealedPorts, gateway: Gateway, domain: str) -> None:
    """Refuse a domain that the gateway's given certificate doesn't cover."""
    if certificates.kind_of(gateway) == certificates.GIVEN:
        refuse_certificate(plane, uploaded_certificates.of_gateway(plane, gateway), domain, gateway)


def refuse_certificate(
    plane: RecordPorts, read: GivenCertificate | list[Problem], domain: str, gateway: Gateway | None
) -> None:
    """Raises Invalid unless the certificate fits this domain and the hosts of the gateway, if it exists already."""
    if not isinstance(read, list):
        hosts = set() if gateway is None else uploaded_certificates.hosts_with_https(plane, gateway)
        read = list(uploaded_certificates.wrong(read, domain, plane.clock.now(), hosts))
    if read:
        raise Invalid(read)


# --- delete ---------------------------------------------------------------------------------------------------------


def delete(plane: ChangePorts, user: User, project: Project, wanted: Sequence[str]) -> None:
    """Deletes gateways; none if one of them is in use or doesn't exist."""
    names = list(dict.fromkeys(wanted))
    for name in names:
        _refuse_if_used(plane, get(plane, project, name))

    def change(gateway: Gateway, draft: Draft) -> tuple[Plan, list[Change]]:
        _refuse_if_used(plane, gateway)  # checked again: applying a service also writes its gateway
        return delete_gateway(gateway, draft), []

    for name in names:
        gateway = get(plane, project, name)
        _changed(plane, user, project, name, change)
        plane.wake([each.unit for each in certificates.of_gateway(plane, gateway.id)])  # which are deleted with it


def _refuse_if_used(plane: RecordPorts, gateway: Gateway) -> None:
    runs = [run.name for run in plane.read.live_runs(gateway.project_id) if run.gateway_id == gateway.id]
    if not runs:
        return
    hint = f"Stop what uses it (dstack stop {runs[0]}), or apply it with another `gateway`."
    raise Refused(f"The gateway {gateway.name} is in use by {those('service', runs)}.", hint=hint)


def _refuse_ending(gateway: Gateway) -> None:
    if gateway.status is GatewayStatus.deleting:
        raise Refused(f"The gateway {gateway.name} is being deleted.", hint="Wait until it is gone.")


def _changed(
    plane: ChangePorts,
    user: User,
    project: Project,
    name: str,
    change: Callable[[Gateway, Draft], tuple[Plan, list[Change]]],
) -> Gateway:
    """The gateway after the change, which is computed again after a conflict."""
    for _ in range(TRIES):
        gateway, now = get(plane, project, name), plane.clock.now()
        plan, beside = change(gateway, Draft.of(user, now))
        if plan.empty:
            return gateway
        try:
            plane.committer.take(NounsSnapshot(now, (gateway,)), plan, beside)
        except Conflict:
            continue
        return nouns.find(plane.store, Gateway, keys.gateway(gateway.id)) or gateway  # it may be deleted by now
    raise Contended(f"The gateway {name} keeps changing.", hint="Try again.")
