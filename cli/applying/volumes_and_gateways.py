"""Applying volumes and gateways, and deleting them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chalicelib.errors import NotFound
from cli.applying.certificates import with_certificate
from cli.applying.runs import ApplyOptions, LoadedConfiguration
from cli.connection.session import Session
from cli.screen.render import as_json, facts
from cli.tables.cells import gigabytes

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
    current = _get(session, "volumes", name) if name else None
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
    return _wait(
        session, "volumes", session.client.in_project("volumes/create", {"configuration": configuration}), options
    )


def delete_volume(session: Session, name: str) -> None:
    """Deletes the volume and waits until it is gone."""
    _delete(session, "volumes", name)


def delete_gateway(session: Session, name: str) -> None:
    """Deletes the gateway and waits until no machine carries it any more."""
    _delete(session, "gateways", name)


def apply_gateway(session: Session, definition: LoadedConfiguration, options: ApplyOptions) -> int:
    """Creates the gateway, or changes it if possible; returns the exit code."""
    configuration = with_certificate(definition.configuration, session.terminal.cwd, session.terminal.home)
    spec = {"configuration": configuration, "configuration_path": definition.path}
    plan = session.client.in_project("gateways/get_plan", {"spec": spec})
    current = plan.get("current_resource")
    if not options.as_json:
        _show(session, definition, plan.get("remarks") or ())
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
    body = {"plan": {"spec": plan["spec"], "current_resource": current}, "force": options.force}
    return _wait(session, "gateways", session.client.in_project("gateways/apply", body), options)


def _unchanged(session: Session, plan: dict[str, Any], options: ApplyOptions) -> int:
    """Applies an unchanged gateway, so that failed certificates are retried at once."""
    current = plan["current_resource"]
    resource = session.client.in_project(
        "gateways/apply", {"plan": {"spec": plan["spec"], "current_resource": current}, "force": options.force}
    )
    if options.as_json:
        session.terminal.print(as_json(resource))
    else:
        session.terminal.print(f"Gateway {resource['name']} is up to date.")
    return 0


def _get(session: Session, kind: str, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = session.client.in_project(f"{kind}/get", {"name": name})
    except NotFound:
        return None
    return found


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Are the two equal, if an absent key means null?"""
    return {k: v for k, v in before.items() if v is not None} == {k: v for k, v in after.items() if v is not None}


def _delete(session: Session, kind: str, name: str) -> None:
    session.client.in_project(f"{kind}/delete", {"names": [name]})
    while _get(session, kind, name) is not None:
        session.terminal.sleep(GONE_SECONDS)


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


def _text(value: Any) -> str:
    return gigabytes(value) if isinstance(value, float) else str(value)


def _agreed(session: Session, options: ApplyOptions, question: str) -> bool:
    if options.yes or session.terminal.confirm(question):
        return True
    session.terminal.print("Nothing was changed.")
    return False


def _share(resource: dict[str, Any]) -> str:
    """How many of a gateway's replicas run, if not all."""
    wanted = resource["configuration"].get("replicas") or 1
    up = sum(each["status"] == "running" for each in resource.get("replicas") or ())
    return f" with {up} of {wanted} replicas" if resource["status"] == "running" and up < wanted and wanted > 1 else ""


def _wait(session: Session, kind: str, resource: dict[str, Any], options: ApplyOptions) -> int:
    """Waits until the volume or the gateway is active or has failed."""
    terminal, name = session.terminal, resource["name"]
    if options.as_json:
        terminal.print(as_json(resource))
        return 0
    shown = ""
    while resource["status"] not in ENDED and not options.detach:
        if (why := resource.get("status_message") or "") != shown:
            shown = why
            terminal.warn(f"{name}: {why}" if why else f"{name}: {resource['status']}")
        terminal.sleep(READY_SECONDS)
        resource = session.client.in_project(f"{kind}/get", {"name": name})
    reason = f": {resource['status_message'].rstrip('.')}" if resource.get("status_message") else ""
    status = "failed" if resource["status"] == "failed" else f"is {resource['status']}"
    terminal.print(f"{kind[:-1].capitalize()} {name} {status}{_share(resource)}{reason}.")
    return 1 if resource["status"] == "failed" else 0
