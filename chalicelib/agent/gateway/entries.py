"""What the control plane says of the services → the entries of nginx's shared memory. Pure.

What the control plane says is kept on disk as it comes:

    version       for the next poll
    services      each with its `hosts`, and what a door needs to know of it: run_id, project_id, auth, https, body,
                  rate_limits, model, routed, replicas; `https`: the port to which requests without TLS are sent
    model_hosts   a host that serves every model of a project: {host: project_id}
    certificates  {host: {certificate, key}}, both PEM
    challenges    {token: answer} of certificates that are being asked for

An entry is a key and a text. Only the entries that differ are sent to nginx.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

from .relays import ReplicaAddress, place

HOLD = 30  # seconds that a request may wait for a replica
Configuration = Mapping[str, Any]
ROUTED = ("/generate", "/chat/completions", "/health", "/v1/models")  # besides /v1/…: what a router serves


def entries(configuration: Configuration, relays: str) -> Dict[str, str]:
    """`relays`: the folder of the sockets behind which replicas are that have no address."""
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


def difference(old: Iterable[str], had: Mapping[str, str], wanted: Mapping[str, str]) -> Dict[str, Optional[str]]:
    """`old`: the keys that are there; `had`: the texts among them that are known."""
    changed: Dict[str, Optional[str]] = {key: text for key, text in wanted.items() if had.get(key) != text}
    changed.update({key: None for key in old if key not in wanted})
    return changed


def draining(configuration: Configuration) -> Dict[str, List[str]]:
    """The jobs of each run that get nothing new."""
    found = {}
    for service in configuration.get("services", ()):
        jobs = [each["job_id"] for each in service["replicas"] if each.get("draining")]
        if jobs:
            found[service["run_id"]] = jobs
    return found


def relayed(configuration: Configuration) -> Dict[str, ReplicaAddress]:
    """The replicas that are reached over their agents' streams only, by job. One that drains isn't forgotten before
    it is let go."""
    found = {}
    for service in configuration.get("services", ()):
        for each in service["replicas"]:
            if each.get("ready") and not each.get("address"):
                found[each["job_id"]] = ReplicaAddress(
                    each["job_id"], each["instance_id"], each["port"], service["run_id"]
                )
    return found


def direct(configuration: Configuration) -> Set[str]:
    """The runs that have a replica which needs no stream."""
    return {
        service["run_id"] for service in configuration.get("services", ()) if any(map(_is_direct, service["replicas"]))
    }


def _is_direct(replica: Mapping[str, Any]) -> bool:
    return bool(replica.get("ready") and not replica.get("draining") and replica.get("address"))


def _service(service: Mapping[str, Any], relays: str) -> Dict[str, Any]:
    model = service.get("model")
    found = {
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


def _limit(limit: Mapping[str, Any]) -> Dict[str, Any]:
    found = {"prefix": limit["prefix"], "rps": limit["rps"], "burst": limit["burst"]}
    if limit["key"]["type"] == "header":
        found["header"] = limit["key"]["header"]
    return found


def _replica(replica: Mapping[str, Any], relays: str) -> Dict[str, Any]:
    address = replica["address"] or "unix:" + place(relays, replica["job_id"])
    return {"job": replica["job_id"], "host": replica["instance_id"], "address": address, "port": replica["port"]}


def _models(project: str, services: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    models: Dict[str, Any] = {}
    owner = ""
    for service in services:
        if service["project_id"] == project and service.get("model"):
            created = service["since"] // 1000000
            made = models.setdefault(service["model"]["name"], {"hosts": [], "created": created})
            made["created"] = min(made["created"], created)
            made["hosts"].append(service["hosts"][0].lower())
            owner = service["project_name"]
    return {"project": project, "owner": owner, "models": models}
