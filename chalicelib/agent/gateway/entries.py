"""The gateway's configuration → the entries of nginx's shared memory. Pure.

The control plane sends the configuration (`GatewayConfiguration` of the contract), which is stored on disk as it is.
An entry is a key and a text. Only the entries that differ are sent to nginx.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Set

from .relays import ReplicaAddress, place

if TYPE_CHECKING:
    from ...contract.agent_gateway import GatewayConfiguration, GatewayService, RateLimit, ServedReplica

HOLD = 30  # seconds that a request may wait for a replica
ROUTED = ("/generate", "/chat/completions", "/health", "/v1/models")  # a router's paths besides /v1/…


def entries(configuration: GatewayConfiguration, relays: str) -> Dict[str, str]:
    """The entries by key. `relays`: the folder with the sockets of replicas that have no address."""
    found: Dict[str, Any] = {}
    for service in configuration.get("services", ()):
        for host in service["hosts"]:
            found["host|" + host.lower()] = _service(service, relays)
    for host, project in configuration.get("model_hosts", {}).items():
        found["host|" + host.lower()] = _models(project, configuration.get("services", ()))
    for host, pair in configuration.get("certificates", {}).items():
        found["certificate|" + host.lower()] = {"certificate": pair["certificate"], "key": pair["key"]}
    for token, answer in configuration.get("challenges", {}).items():
        found["challenge|" + token] = {"answer": answer}
    return {key: json.dumps(value, sort_keys=True, separators=(",", ":")) for key, value in found.items()}


def difference(present: Iterable[str], known: Mapping[str, str], wanted: Mapping[str, str]) -> Dict[str, Optional[str]]:
    """The entries to set, None to remove one. `present`: nginx's keys; `known`: their texts, as far as known."""
    changed: Dict[str, Optional[str]] = {key: text for key, text in wanted.items() if known.get(key) != text}
    changed.update({key: None for key in present if key not in wanted})
    return changed


def draining(configuration: GatewayConfiguration) -> Dict[str, List[str]]:
    """The draining jobs of each run, which get no new requests."""
    found = {}
    for service in configuration.get("services", ()):
        jobs = [each["job_id"] for each in service["replicas"] if each.get("draining")]
        if jobs:
            found[service["run_id"]] = jobs
    return found


def relayed(configuration: GatewayConfiguration) -> Dict[str, ReplicaAddress]:
    """The replicas that are reached over their agents' streams only, by job. A draining one stays until it is let
    go."""
    found = {}
    for service in configuration.get("services", ()):
        for each in service["replicas"]:
            if each.get("ready") and not each.get("address"):
                found[each["job_id"]] = ReplicaAddress(
                    each["job_id"], each["instance_id"], each["port"], service["run_id"]
                )
    return found


def direct(configuration: GatewayConfiguration) -> Set[str]:
    """The runs with a replica that nginx reaches directly."""
    return {
        service["run_id"] for service in configuration.get("services", ()) if any(map(_is_direct, service["replicas"]))
    }


def _is_direct(replica: ServedReplica) -> bool:
    return bool(replica.get("ready") and not replica.get("draining") and replica.get("address"))


def _service(service: GatewayService, relays: str) -> Dict[str, Any]:
    model = service.get("model")
    found: Dict[str, Any] = {
        "run": service["run_id"],
        "project": service["project_id"],
        "auth": service["auth"],
        "https": 443 if service.get("https") is True else service.get("https") or False,
        "body": service["body"],
        "hold": service.get("hold", HOLD),
        "limits": [_limit(each) for each in service.get("rate_limits", ())],
        "replicas": [
            _replica(each, relays) for each in service["replicas"] if each.get("ready") and not each.get("draining")
        ],
    }
    if model:
        prefix = model["prefix"].strip("/")
        found["model"] = "/" + prefix if prefix else ""
    if service.get("off"):
        found["off"] = True
    if service.get("routed"):
        found["paths"] = {path: True for path in ROUTED}
    return found


def _limit(limit: RateLimit) -> Dict[str, Any]:
    found: Dict[str, Any] = {"prefix": limit["prefix"], "rps": limit["rps"], "burst": limit["burst"]}
    if limit["key"]["type"] == "header":
        found["header"] = limit["key"]["header"]
    return found


def _replica(replica: ServedReplica, relays: str) -> Dict[str, Any]:
    address = replica["address"] or "unix:" + place(relays, replica["job_id"])
    return {"job": replica["job_id"], "host": replica["instance_id"], "address": address, "port": replica["port"]}


def _models(project: str, services: Iterable[GatewayService]) -> Dict[str, Any]:
    models: Dict[str, Any] = {}
    owner = ""
    for service in services:
        model = service.get("model")
        if service["project_id"] == project and model:
            created = service["since"] // 1000000
            entry = models.setdefault(model["name"], {"hosts": [], "created": created})
            entry["created"] = min(entry["created"], created)
            entry["hosts"].append(service["hosts"][0].lower())
            owner = service["project_name"]
    return {"project": project, "owner": owner, "models": models}
