"""Applying volumes and gateways, and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from chalicelib.errors import NotFound
from cli.applying.certificates import with_certificate
from cli.applying.runs import ApplyOptions, LoadedConfiguration
from cli.connection import calls, console
from cli.connection.session import Session
from cli.screen.render import as_json, facts
from cli.tables.cells import gigabytes

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract.bodies import GetVolumeBody as ByName  # a gateway's is the same
    from cli.connection.client import Client

R = TypeVar("R", bound="contract.Volume | contract.Gateway")
READY_SECONDS = 2.0
GONE_SECONDS = 1.0
ENDED = ("active", "running", "failed")
SHOWN = {
    "name": "Name",
    "fleet": "Fleet",
    "backend": "Backend",
    "region": "Region",
    "instance_type": "Instance type",
    "size": "Size",
    "volume_id": "Volume id",
    "domain": "Domain",
    "http_port": "HTTP port",
    "https_port": "HTTPS port",
    "replicas": "Replicas",
}


def apply_volume(session: Session, definition: LoadedConfiguration, options: ApplyOptions) -> int:
    """Creates or re-creates the volume, which never changes in place. Returns the exit code."""
    configuration, name = definition.configuration, definition.name
    current = _found(calls.volumes_get, session, name) if name else None
    if not options.as_json:
        _show(session, definition)
    if current is not None and _same(current["configuration"], configuration) and options.yes and not options.force:
        unchanged = f"Volume {name} is up to date. To delete and re-create it, add --force."
        session.terminal.print(as_json(current) if options.as_json else unchanged)
        return 0
    question = (
        f"Set up the volume {name or ''}".rstrip() + "?"
        if current is None
        else f"Delete the volume {name} and all its data, and re-create it?"
    )
    if not _agreed(session, options, question):
        return 0
    if current is not None:
        delete_volume(session, str(name))
    created = calls.volumes_create(session.client, {"configuration": configuration})
    if options.as_json:
        session.terminal.print(as_json(created))
        return 0
    console.mention(session.terminal, session.client, "volumes", created["name"], opened=options.web)
    settled = _settled(session, created, calls.volumes_get, options)
    return _ending(session, f"Volume {settled['name']}", settled)


def delete_volume(session: Session, name: str) -> None:
    """Deletes the volume and waits until it is gone."""
    calls.volumes_delete(session.client, {"names": [name]})
    while _found(calls.volumes_get, session, name) is not None:
        session.terminal.sleep(GONE_SECONDS)


def delete_gateway(session: Session, name: str) -> None:
    """Deletes the gateway and waits until no machine carries it any more."""
    calls.gateways_delete(session.client, {"names": [name]})
    while _found(calls.gateways_get, session, name) is not None:
        session.terminal.sleep(GONE_SECONDS)


def apply_gateway(session: Session, definition: LoadedConfiguration, options: ApplyOptions) -> int:
    """Creates the gateway, or changes it if possible; returns the exit code."""
    configuration = with_certificate(definition.configuration, session.terminal.cwd, session.terminal.home)
    spec = {"configuration": configuration, "configuration_path": definition.path}
    plan = calls.gateways_get_plan(session.client, {"spec": spec})
    current = plan["current_resource"]
    if not options.as_json:
        _show(session, definition, plan["remarks"])
    if current is None:
        question = f"Set up the gateway {definition.name or ''}".rstrip() + "?"
    elif plan["action"] == "update" and not plan["changes"]:
        return _unchanged(session, plan, options)
    elif plan["action"] == "update":
        question = f"Change the gateway {current['name']}: {', '.join(plan['changes'])}?"
    else:
        question = f"Delete the gateway {current['name']} and re-create it?"
    if not _agreed(session, options, question):
        return 0
    if current is not None and plan["action"] != "update":
        delete_gateway(session, current["name"])
        current = None
    applied = _applied(session, plan, current, options)
    if options.as_json:
        session.terminal.print(as_json(applied))
        return 0
    console.mention(session.terminal, session.client, "gateways", applied["name"], opened=options.web)
    settled = _settled(session, applied, calls.gateways_get, options)
    return _ending(session, f"Gateway {settled['name']}", settled, _share(settled))


def _applied(
    session: Session, plan: contract.GatewayPlan, current: contract.Gateway | None, options: ApplyOptions
) -> contract.Gateway:
    return calls.gateways_apply(
        session.client,
        {"plan": {"spec": plan["spec"], "current_resource": current}, "force": options.force},
    )


def _unchanged(session: Session, plan: contract.GatewayPlan, options: ApplyOptions) -> int:
    """Applies an unchanged gateway, so that failed certificates are retried at once."""
    resource = _applied(session, plan, plan["current_resource"], options)
    if options.as_json:
        session.terminal.print(as_json(resource))
    else:
        session.terminal.print(f"Gateway {resource['name']} is up to date.")
    return 0


def _found(get: Callable[[Client, ByName], R], session: Session, name: str) -> R | None:
    try:
        return get(session.client, {"name": name})
    except NotFound:
        return None


def _same(before: contract.Configuration, after: contract.Configuration) -> bool:
    """Are the two equal, if an absent key means null?"""
    return {k: v for k, v in before.items() if v is not None} == {k: v for k, v in after.items() if v is not None}


def _show(session: Session, definition: LoadedConfiguration, remarks: Iterable[str] = ()) -> None:
    terminal, configuration = session.terminal, definition.configuration
    rows = [("Project", session.project), ("Type", definition.kind), ("Configuration", definition.path)]
    rows += [(label, _text(configuration[field])) for field, label in SHOWN.items() if configuration.get(field)]
    if definition.kind == "gateway":
        rows.append(("Certificate", (configuration.get("certificate") or {"type": "none"})["type"]))
    terminal.print(facts(rows, terminal.width, terminal.colour))
    for remark in remarks:
        terminal.print(remark)
    terminal.print()


def _text(value: object) -> str:
    return gigabytes(value) if isinstance(value, float) else str(value)


def _agreed(session: Session, options: ApplyOptions, question: str) -> bool:
    if options.yes or session.terminal.confirm(question):
        return True
    session.terminal.print("Nothing was changed.")
    return False


def _share(gateway: contract.Gateway) -> str:
    """How many of its replicas run, if not all."""
    wanted = gateway["configuration"].get("replicas") or 1
    up = sum(each["status"] == "running" for each in gateway["replicas"])
    return f" with {up} of {wanted} replicas" if gateway["status"] == "running" and up < wanted and wanted > 1 else ""


def _settled(session: Session, resource: R, get: Callable[[Client, ByName], R], options: ApplyOptions) -> R:
    """Waits until the volume or the gateway is active or has failed, unless it is detached from."""
    terminal, name = session.terminal, resource["name"]
    shown = ""
    while resource["status"] not in ENDED and not options.detach:
        if (why := resource["status_message"] or "") != shown:
            shown = why
            terminal.warn(f"{name}: {why}" if why else f"{name}: {resource['status']}")
        terminal.sleep(READY_SECONDS)
        resource = get(session.client, {"name": name})
    return resource


def _ending(session: Session, what: str, resource: contract.Volume | contract.Gateway, share: str = "") -> int:
    why = resource["status_message"]
    reason = f": {why.rstrip('.')}" if why else ""
    status = "failed" if resource["status"] == "failed" else f"is {resource['status']}"
    session.terminal.print(f"{what} {status}{share}{reason}.")
    return 1 if resource["status"] == "failed" else 0
