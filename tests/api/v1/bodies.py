"""What a caller sends who means it, for each write of a resource."""

from __future__ import annotations

from typing import Any

from chalicelib.api.route import Route

TASK = {"type": "task", "commands": ["echo hello"], "resources": {"cpu": {"count": {"min": 1}}}}
FLEET = {"type": "fleet", "nodes": {"min": 0, "target": 0, "max": 2}}
VOLUME = {"type": "volume", "backend": "aws", "region": "r", "size": "100GB"}
GATEWAY = {"type": "gateway", "backend": "aws", "region": "r"}
FRESH = "fresh"
BODIES: dict[str, Any] = {
    "POST runs": {**TASK, "name": FRESH},
    "PUT runs/{run_name}/spec": {**TASK, "priority": 7},
    "POST runs/{run_name}/roll-back": {"revision": 0},
    "POST fleets": {**FLEET, "name": FRESH},
    "PUT fleets/{fleet_name}/spec": {**FLEET, "idle_duration": "1h"},
    "POST volumes": {**VOLUME, "name": FRESH},
    "POST gateways": GATEWAY,
    "PUT gateways/{gateway_name}/spec": GATEWAY,
    "POST projects": {"name": FRESH},
    "PATCH projects/{project_name}": {"public": True},
    "PUT members/{user_name}": {"role": "user"},
    "PUT secrets/{secret_name}": {"value": "v"},
    "PUT quota": {"jobs": 3},
    "PUT quota/each-user": {"jobs": 3},
    "PUT quota/users/{user_name}": {"jobs": 3},
    "PUT backends/{backend_type}": {"creds": {"type": "default"}},
    "POST users": {"name": FRESH},
    "PATCH users/{user_name}": {"active": False},
}


def body_of(route: Route) -> dict[str, Any]:
    path = route.path.removeprefix("/api/v1/").removeprefix("projects/{project_name}/")
    found: dict[str, Any] = BODIES.get(f"{route.method} {path}", {})
    return found
