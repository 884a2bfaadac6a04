"""One call, drawn from its number: who, which route, and what it says."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import orjson

from chalicelib.api.dispatch import Request, is_v1
from chalicelib.api.route import Access, Route
from chalicelib.api.routes import BUILT, ROUTES
from tests.api.rig import fleet, task
from tests.api.uploads import BOUNDARY, multipart, tar
from tests.fuzz import resources
from tests.fuzz.documents import archive
from tests.fuzz.shapes import Shapes, changed, known, spoilt
from tests.fuzz.tenants import TENANTS, Handles
from tests.fuzz.watch import Caller
from tests.usecases.cluster import FACTS
from tests.world.time import NOW

ROUGH = 0.08  # of the bodies are spoilt as bytes
WRITTEN = Path(__file__).parents[1] / "configuration" / "bodies.json"
Draw = random.Random


class Cast(Protocol):
    """Who can call, and what each tenant has."""

    @property
    def callers(self) -> list[Caller]: ...

    def handles_of(self, tenant: str) -> Handles: ...


def draw(town: Cast, rng: Draw) -> tuple[Caller, Request]:
    agents = [each for each in town.callers if each.agent_of]
    if agents and rng.random() < 0.2:
        caller = rng.choice(agents)
        return caller, agents_call(town, caller, rng)
    people = [each for each in town.callers if not each.agent_of]
    (caller,) = rng.choices(people, [weight(each) for each in people])
    route = rng.choice(BUILT if rng.random() < 0.97 else ROUTES)
    if route.access is Access.admin and rng.random() < 0.4:
        caller = next(each for each in reversed(people) if each.user_id)  # the mighty one comes last
    tenant = caller.home if rng.random() < 0.75 else rng.choice(TENANTS)
    return caller, users_call(town, caller, route, tenant, rng)


def weight(caller: Caller) -> float:
    """How often a caller is drawn: those who may do something meet more of the code."""
    return 0.2 if caller.name.endswith("gone") or caller.name in ("nobody", "forger", "loner", "root") else 1


def users_call(town: Cast, caller: Caller, route: Route, tenant: str, rng: Draw) -> Request:
    handles = {**town.handles_of(tenant)}
    if (
        route.path.startswith(("/api/project/{project_name}/runs", "/api/project/{project_name}/instances"))
        and rng.random() < 0.7
    ):
        handles["id"] = handles["instance" if "/instances/" in route.path else "run_id"]
    if is_v1(route.path):
        handles |= resources.handles_of(handles)
    if rng.random() < 0.2:  # things of one in the project of another
        handles |= town.handles_of(rng.choice(TENANTS))
    headers = headers_of(caller, rng)
    if is_v1(route.path):
        headers |= conditions(route, rng)
    shapes = Shapes(rng, handles)
    path = filled(route, {**handles, "project_name": [tenant]}, rng)
    query = {name: str(shapes.field(name, inner, 0)) for name, inner in row(route).get("query", {}).items()}
    query = {name: value for name, value in query.items() if rng.random() < (0.2 if is_v1(route.path) else 0.7)}
    if path.endswith(("upload_code", "upload_archive")):
        headers["content-type"] = f"multipart/form-data; boundary={BOUNDARY}"
        content = archive(rng) if rng.random() < 0.6 else tar(("a.txt", rng.randbytes(9)))
        body = multipart(content, None if rng.random() < 0.8 else rng.choice(("", "x", "../x", "0" * 64)))
    else:
        body = encoded(json_body(route, shapes, rng))
    if rng.random() < ROUGH:
        body = spoilt(body, rng)
    return Request(route.method, path, query, headers, body)


def json_body(route: Route, shapes: Shapes, rng: Draw) -> Any:
    name = route.path.rpartition("/project/{project_name}/")[2]
    if name in COMPOSED and rng.random() < 0.9:
        value: Any = COMPOSED[name](shapes, rng)
    else:
        value = shapes.value(row(route).get("body", {"type": "object"}))
    for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 1, 4))):
        value = changed(value, rng, within=rng.random() < 0.9)
    return value


_TEXT = {"type": "string"}
_STATE = {"type": "object", "properties": {"state": _TEXT}, "required": ["state"]}
_ENTERED = {
    "type": "object",
    "properties": {"code": _TEXT, "state": _TEXT, "base_url": {"anyOf": [_TEXT, {"type": "null"}]}},
}
_BEGUN = {"type": "object", "properties": {"local_port": {"type": "integer"}, "base_url": {"type": "null"}}}
OWN_ROUTES: dict[str, Any] = {  # routes that the genuine server's list doesn't have
    "POST /api/auth/{provider}/authorize": {"body": _BEGUN},
    "POST /api/auth/{provider}/callback": {"body": {**_ENTERED, "required": ["code", "state"]}},
    "POST /api/auth/{provider}/device_token": {"body": _STATE},
    "GET /api/project/{project_name}/streams/{run_name}": {
        "query": {
            "target": {"enum": ["ssh", "logs", "port:80", "port:0", "shell"]},
            "replica": {"type": "integer"},
            "job": {"type": "integer"},
            "start_time": {"type": "string", "format": "date-time"},
        }
    },
}


def row(route: Route) -> dict[str, Any]:
    if is_v1(route.path):
        return resources.taken(route)
    name = f"{route.method} {route.path}"
    found: dict[str, Any] = OWN_ROUTES.get(name) or known()["routes"].get(name, {})
    return found


def conditions(route: Route, rng: Draw) -> dict[str, str]:
    """What a caller of a resource may send beside."""
    found = {}
    if rng.random() < 0.2:
        found["idempotency-key"] = rng.choice(("a", "b", "c", "", "x" * 300, "\0", "é"))
    if route.method != "GET" and rng.random() < 0.1:
        found[rng.choice(("if-match", "if-none-match"))] = rng.choice(("*", '"x"', 'W/"x"', '"x", "y"', "", ","))
    if rng.random() < 0.1:
        found["prefer"] = rng.choice(("wait=1", "wait=0", "wait", "wait=99999999999"))
    return found


def headers_of(caller: Caller, rng: Draw) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if caller.token is not None:
        headers["authorization"] = f"Bearer {caller.token}"
    if rng.random() < 0.02:
        headers["x-api-version"] = rng.choice(("0.22.5", "latest", "9", "0.19.0", "x" * 300, "0.22.٥"))
    if rng.random() < 0.02:
        headers["authorization"] = rng.choice(("", "Bearer", "Bearer  ", "Basic x", "Bearer \0", "bearer " + "é" * 9))
    return headers


def filled(route: Route, handles: dict[str, list[Any]], rng: Draw) -> str:
    parts = []
    for part in route.path.split("/"):
        if not part.startswith("{"):
            parts.append(part)
        elif rng.random() < 0.02:
            parts.append(rng.choice(("", "..", "%2e%2e", "\0", "é", "x" * 3000, "none-such", "\ud800")))
        else:
            parts.append(str(rng.choice(handles.get(part[1:-1], ["x"]))))
    return "/".join(parts)


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


# --- bodies that get far: what clients send of a run and of a fleet ---------------------------------------------------


@cache
def written() -> dict[str, list[Any]]:
    """Specs as the genuine client sent them, by kind."""
    found: dict[str, list[Any]] = {}
    for kind, spec, *_ in orjson.loads(WRITTEN.read_bytes()):
        found.setdefault(kind, []).append(spec)
    return found


def run_spec(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    spec = dict(rng.choice(written()["run"])) if rng.random() < 0.3 else {**task(), "profile": {"name": "default"}}
    spec["run_name"] = rng.choice(("seen", "other", f"run-{rng.randrange(30)}", None))
    for name in ("repo_id", "file_archives", "repo_code_hash"):
        if rng.random() < 0.4 and name in shapes.handles:
            spec[name] = rng.choice(shapes.handles[name])
    if rng.random() < 0.4:
        spec["configuration"] = shaped(shapes, rng, "TaskConfiguration-Input", spec["configuration"])
    return spec


def fleet_spec(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    plain = fleet(rng.choice(("seen", "another", f"pool-{rng.randrange(20)}", None)))
    spec = dict(rng.choice([*written().get("fleet", []), plain])) if rng.random() < 0.5 else plain
    if rng.random() < 0.5:
        spec["configuration"] = shaped(shapes, rng, "FleetConfiguration-Input", spec["configuration"])
    return spec


def shaped(shapes: Shapes, rng: Draw, model: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with up to three of its fields drawn anew."""
    fields = known()["schemas"][model]["properties"]
    chosen = rng.sample(sorted(fields), k=rng.choice((1, 1, 2, 3)))
    return {**spec, **{name: shapes.value(fields[name]) for name in chosen if name != "type"}}


def named_page(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    return {"after": rng.choice(("", "a", "seen", "zzz")), "limit": rng.choice((None, 1, 2000))}


def setting(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    names = [*shapes.handles["username"], "loner", "none-such"]
    roles = ("admin", "manager", "user")
    return {"members": [{"username": name, "project_role": rng.choice(roles)} for name in rng.sample(names, 3)]}


def export(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    """The fields of all calls about exports and imports; each takes its own."""
    lists = ("importer_projects", "exported_fleets", "exported_gateways")
    things = ("red", "green", "blue", "seen", "another", "", None)
    lists += tuple(f"{verb}_{name}" for verb in ("add", "remove") for name in lists)
    found: dict[str, Any] = {each: rng.sample(things, 2) for each in lists if rng.random() < 0.3}
    named = {each: rng.choice(things) for each in ("name", "export_name", "export_project_name")}
    return {**found, **named, "is_global": rng.random() < 0.3, "set_global": rng.random() < 0.3}


def quota(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    limits = {name: rng.choice((None, 0, 3, -1, 2.5, 1e30, "9", True)) for name in ("gpus", "jobs", "money")}
    whose = {"username": rng.choice((None, *shapes.handles["username"])), "each_user": rng.random() < 0.2}
    return {**whose, **{name: most for name, most in limits.items() if rng.random() < 0.5}}


def user(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    name = rng.choice((*shapes.handles["username"], f"person-{rng.randrange(9)}"))
    role = rng.choice(("user", "user", "admin"))
    return {"username": name, "global_role": role, "email": rng.choice((None, "a@b.c")), "active": rng.random() < 0.7}


def backend(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    """The configuration of one, mostly of AWS."""
    creds = {"type": rng.choice(("access_key", "default", "api_key")), "access_key": "AKIA", "secret_key": "(hidden)"}
    fields = {"regions": ["eu-west-1"], "public_ips": None, "vpc_ids": {"a": 1}, "tags": {"a": "b"}, "x": [[{}]]}
    more = {name: value for name, value in fields.items() if rng.random() < 0.2}
    return {"type": rng.choice(("aws", "aws", "lambda", "x", None)), "creds": creds, **more}


def backend_yaml(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    return {"config_yaml": rng.choice((json.dumps(backend(shapes, rng)), "type: aws", "- {", "!x", ""))}


def gateway(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    """The fields of all calls about gateways; each takes its own."""
    names = ("seen", "another", "door", "", None)
    values: dict[str, Sequence[Any]] = {
        "fleet": ("seen", "another", "none", "red/seen", 5),
        "backend": ("aws", "remote", "x", None),
        "region": ("seen", "r", "", None),
        "domain": ("example.com", "*.${{ run.project_name }}.a.b", "${{ secrets.x }}", "-", "x" * 300),
        "default": (True, False, None),
        "replicas": (1, 2, 9, 10, 0, "2"),
        "http_port": (80, 8080, 0, 70_000, True),
        "https_port": (80, 8443, None),
        "certificate": (None, {"type": "lets-encrypt"}, {"type": "acm", "arn": "a"}, "x"),
        "tags": ({"a": "b"}, {"dstack-a": "b"}, []),
    }
    chosen = rng.sample(sorted(values), k=rng.choice((1, 2, 3, 4)))
    configuration = {
        "type": "gateway",
        "name": rng.choice(names),
        **{name: rng.choice(values[name]) for name in chosen},
    }
    spec = {"configuration": configuration}
    seen = rng.choice((None, {"id": rng.choice(shapes.handles["instance"]), "configuration": configuration}))
    return {
        "name": rng.choice(names),
        "names": rng.choice((["door"], ["seen", "another"], [""], [])),
        "gateway_project": rng.choice(("red", "green", "", None)),
        "wildcard_domain": rng.choice(values["domain"]),
        "configuration": configuration,
        "spec": spec,
        "plan": {"spec": spec, "current_resource": seen},
        "force": rng.random() < 0.3,
    }


def run_configuration(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    name = rng.choice(("seen", f"run-{rng.randrange(30)}", None))
    return {**run_spec(shapes, rng)["configuration"], **({"name": name} if rng.random() < 0.5 else {})}


def fleet_configuration(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    found: dict[str, Any] = fleet_spec(shapes, rng)["configuration"]
    return found


def volume(shapes: Shapes, rng: Draw) -> dict[str, Any]:
    more = {"region": ("r", "", 5), "size": ("100GB", "0", None), "volume_id": ("vol-1", None), "tags": ({"a": "b"},)}
    values = {name: rng.choice(choices) for name, choices in more.items() if rng.random() < 0.6}
    name, backend_name = rng.choice(("disk", "seen", None)), rng.choice(("aws", "vultr", "x", None))
    return {"type": "volume", "name": name, "backend": backend_name, **values}


_V1 = "/api/v1/projects/{project_name}"
COMPOSED: dict[str, Callable[[Shapes, Draw], Any]] = {
    f"{_V1}/runs": run_configuration,
    f"{_V1}/runs/{{run_name}}/spec": run_configuration,
    f"{_V1}/fleets": fleet_configuration,
    f"{_V1}/fleets/{{fleet_name}}/spec": fleet_configuration,
    **dict.fromkeys(
        (f"{_V1}/gateways", f"{_V1}/gateways/{{gateway_name}}/spec"),
        lambda shapes, rng: gateway(shapes, rng)["configuration"],
    ),
    f"{_V1}/volumes": volume,
    f"{_V1}/backends/{{backend_type}}": backend,
    "automations/add": lambda shapes, rng: {"spec": rng.choice((run_spec, fleet_spec))(shapes, rng)},
    "automations/delete": lambda shapes, rng: {"names": rng.choice((["seen"], ["run-1", "run-2"], [""], []))},
    "events/changes": lambda shapes, rng: {
        "prev_recorded_at": rng.choice(("2026-11-21T04:00:00Z", "2000-01-01", "9999-12-31T23:59:59Z", 5, None)),
        "prev_id": rng.choice((None, None, "x")),
        "limit": rng.choice((1, 100, 101)),
    },
    "/api/projects/{project_name}/set_members": setting,
    "/api/projects/{project_name}/add_members": setting,
    "/api/projects/{project_name}/set_quota": quota,
    "/api/projects/create": lambda shapes, rng: {"project_name": f"project-{rng.randrange(30)}"},
    "/api/users/create": user,
    "/api/users/update": user,
    **{f"exports/{verb}": export for verb in ("create", "update", "delete")},
    "imports/delete": export,
    **{f"gateways/{verb}": gateway for verb in ("get", "get_plan", "apply", "create", "delete")},
    **{f"gateways/{verb}": gateway for verb in ("set_default", "set_wildcard_domain")},
    "repos/list": named_page,
    **{f"backends/{verb}": backend for verb in ("create", "update")},
    **{f"backends/{verb}_yaml": backend_yaml for verb in ("create", "update")},
    "backends/delete": lambda shapes, rng: {"backends_names": rng.choice((["aws"], ["aws", "aws"], [""], []))},
    "secrets/list": named_page,
    "volumes/list": named_page,
    "runs/get_plan": lambda shapes, rng: {"run_spec": run_spec(shapes, rng), "max_offers": rng.choice((None, 1, 3))},
    "runs/apply": lambda shapes, rng: {
        "plan": {"run_spec": run_spec(shapes, rng), "current_resource": None},
        "force": rng.random() < 0.5,
    },
    "gpus/list": lambda shapes, rng: {"run_spec": run_spec(shapes, rng), "group_by": ["backend"][: rng.randrange(2)]},
    "fleets/get_plan": lambda shapes, rng: {"spec": fleet_spec(shapes, rng)},
    "fleets/apply": lambda shapes, rng: {"plan": {"spec": fleet_spec(shapes, rng)}, "force": rng.random() < 0.5},
    "fleets/create_join": lambda shapes, rng: {
        "name": "seen",
        "expires_in": rng.choice((0, 60, 3600, 2**31, None, "1h")),
    },
    "services/get": lambda shapes, rng: {"run_name": rng.choice(("seen", "nothing", "", None))},
    "services/create_token": lambda shapes, rng: {
        "run_name": rng.choice(("seen", "nothing", "", None)),
        "expires_in": rng.choice((0, 60, 3600, 2**31, None, "1h")),
    },
    "/api/auth/oidc/exchange": lambda shapes, rng: {
        "id_token": rng.choice(("", "x", "a.b.c", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.", "é", None)),
    },
    "/api/auth/sign_in_codes/exchange": lambda shapes, rng: {"code": rng.choice(("", "x", "é", "x" * 300, None))},
    "/api/users/access_tokens/create": lambda shapes, rng: {
        "name": rng.choice(("seen", "another", "a/b", "")),
        "verbs": rng.choice((["read"], ["run", "run"], ["server"], ["fly"], [])),
        "projects": rng.choice(([], ["red"], ["blue", "blue"], [""], None)),
        "expires_in": rng.choice((0, 60, 3600, 2**31, None, "1h")),
    },
    **dict.fromkeys(
        ("/api/scim/tokens/create", "/api/scim/tokens/revoke"),
        lambda shapes, rng: {"name": rng.choice(("okta", "another", "a/b", "", None))},
    ),
    "/api/users/access_tokens/list": lambda shapes, rng: {"username": rng.choice(("redadmin", "nobody", "", None))},
    "/api/users/access_tokens/revoke": lambda shapes, rng: {"name": "seen", "username": rng.choice(("redadmin", None))},
    "fleets/list_joins": lambda shapes, rng: {"name": rng.choice(("seen", "another", None))},
    "fleets/revoke_join": lambda shapes, rng: {"name": "seen", "id": rng.choice(("x", "0" * 36, None))},
}


# --- agents -----------------------------------------------------------------------------------------------------------


def agents_call(town: Cast, caller: Caller, rng: Draw) -> Request:
    handles = town.handles_of(caller.home if rng.random() < 0.7 else rng.choice(TENANTS))
    headers = headers_of(caller, rng)
    if rng.random() < 0.15:
        kind = rng.choice(("archive_id", "archive_id", "id"))
        return Request("GET", f"/agent/files/{rng.choice(handles[kind])}", {}, headers)
    caller.seq += rng.choice((0, 1, 1, 1, 5))
    value: Any = message(caller, handles, rng)
    own = [{"id": job, "state": "running"} for job in town.handles_of(caller.home)["task"]]
    if rng.random() < 0.97:  # one that isn't listed is lost, and the host has nothing to do any more
        value["tasks"] = own + [each for each in value.get("tasks", ()) if each["id"] != own[0]["id"]]
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 3))):
        value = changed(value, rng, within=rng.random() < 0.9)
    body = encoded(value)
    return Request("POST", "/agent/sync", {}, headers, spoilt(body, rng) if rng.random() < ROUGH else body)


def message(caller: Caller, handles: dict[str, list[Any]], rng: Draw) -> dict[str, Any]:
    """A message of the agent, mostly about its own instance and job."""
    job = rng.choice(handles["task"])
    line = base64.b64encode(f"said by {caller.home}\n".encode()).decode()
    at = NOW + rng.choice((0, -1, 10**6, 10**15))
    parts = {
        "agent": "1.2.3",
        "facts": {**FACTS, "gpus": [{"name": "A100", "memory_mib": 40_960, "vendor": "nvidia"}]},
        "tasks": [
            {"id": job, "state": rng.choice(("preparing", "pulling", "running", "running")), "at": at,
             "exit_status": None, "reason": None, "message": "so so", "log_end": 0,
             "pull": {"downloaded_bytes": 1, "extracted_bytes": 1, "total_bytes": 5}, "username": "u",
             "working_dir": "/w"},
        ],
        "logs": [
            {"task": job, "offset": rng.choice((0, 14, 14, 26, 10**9)), "records": [[at, line]] * rng.choice((1, 3))},
        ],
        "metrics": [
            {"task": job, "at": at, "cpu_usage_micro": 5, "memory_usage_bytes": 2**30, "memory_working_set_bytes": 9,
             "gpus": [{"memory_usage_bytes": 1, "util_percent": 50}]},
        ],
        "wait": rng.choice((0, 5)),
    }  # fmt: skip
    head = {"v": 1, "instance": rng.choice(handles["instance"]), "boot": "boot-1", "seq": caller.seq}
    if rng.random() < 0.01:
        parts["tasks"] = [{**parts["tasks"][0], "state": "exited", "exit_status": rng.choice((0, 1, None))}]  # type: ignore[index]
    return {**head, **{name: part for name, part in parts.items() if rng.random() < 0.5}}
