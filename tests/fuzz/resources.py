"""What the resources under `/api/v1` take, by the types that their handlers declare."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from chalicelib.api.route import Route
from docs.openapi.declared import declared
from tests.fuzz.tenants import Handles


@cache
def taken(route: Route) -> dict[str, Any]:
    """The schema of the body, and those of the query's parameters."""
    found = declared(route)
    assert found is not None, f"{route.method} {route.path} declares nothing"
    body, query = _schema(found.body), _schema(found.query)
    return {**({"body": body} if body else {}), **({"query": query["properties"]} if query else {})}


def _schema(model: type[BaseModel] | None) -> dict[str, Any]:
    if model is None:
        return {}
    schema = model.model_json_schema()
    found: dict[str, Any] = _inlined(schema, schema.get("$defs", {}))
    return found


def _inlined(schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(named[schema["$ref"].rpartition("/")[2]], named)
    return {name: _inlined(each, named) for name, each in schema.items() if name != "$defs"}


def handles_of(handles: Handles) -> Handles:
    """The names in their paths and queries."""
    seen = handles.get("run_name", ["x"])
    return {
        "fleet_name": [*seen, "pool-1"],
        "volume_name": [*seen, "disk"],
        "gateway_name": [*seen, "door"],
        "secret_name": [*seen, "fresh"],
        "instance_id": handles.get("instance", ["x"]),
        "instance_num": [0, 1],
        "user_name": [*handles.get("username", ["x"]), "loner", "person-1"],
        "backend_type": ["aws", "vultr"],
        "fleet_id": [each for ids in handles.get("fleet_ids", [["x"]]) for each in ids],
        "actor_id": [each for ids in handles.get("target_users", [["x"]]) for each in ids],
        "job": handles.get("task", ["x"]),
        "user": handles.get("username", ["x"]),
        "status": ["running", "done,failed", "submitted,", "x"],
        "dry_run": ["true", "false", "true", "maybe"],
        "cpu": ["1..", "2", "many"],
        "memory": ["8GB..", "0GB..", "1"],
        "gpu": ["A100:1", "24GB..", "0..", "x:y"],
        "disk": ["100GB..", "1"],
    }
