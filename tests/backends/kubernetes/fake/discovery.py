"""What the server has, as clients ask for it before anything else."""

from __future__ import annotations

from typing import Any

from tests.backends.kubernetes.fake.schema import DOCUMENT, SHORT, Resource, resources

VERSION = {
    **{"major": "1", "minor": "35", "gitVersion": "v1.35.0", "gitCommit": "", "gitTreeState": "clean"},
    **{"buildDate": "2026-01-05T00:00:00Z", "goVersion": "go1.25", "compiler": "gc", "platform": "linux/amd64"},
}
_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
# Of parts whose bodies are of another kind.
_OTHERS = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}


def answer(path: str) -> Any:
    """None if it isn't asked for here."""
    path = path.rstrip("/")
    parts = path.strip("/").split("/")
    groups = sorted({(each.group, each.version) for each in resources().values() if each.group})
    if path == "/version":
        return VERSION
    if path in ("/healthz", "/readyz", "/livez"):
        return "ok"
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in groups]}
    if len(parts) == 2 and parts[0] == "apis":
        return next((_group(*each) for each in groups if each[0] == parts[1]), None)
    if parts == ["api", "v1"]:
        return _list("", "v1")
    if len(parts) == 3 and parts[0] == "apis" and (parts[1], parts[2]) in groups:
        return _list(parts[1], parts[2])
    if parts[:2] == ["openapi", "v3"]:
        return _openapi("/".join(parts[2:]))
    return None


def _openapi(root: str) -> Any:
    """Without a root, the list of the documents; that of `api/v1` and others as far as it's known: the verbs of each
    path with their parameters, and the schemas."""
    roots = {"api/v1", *(f"apis/{each.group}/{each.version}" for each in resources().values() if each.group)}
    if not root:
        return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in sorted(roots)}}
    if root not in roots:
        return None
    known = {each.kind: each for each in resources().values()}
    paths: dict[str, Any] = {}
    for path, methods in DOCUMENT["paths"].items():
        if not path.startswith(f"/{root}/"):
            continue
        paths[path] = {}
        for method, operation in methods.items():
            if method == "parameters" or operation.get("kind") not in known:
                continue
            of, names = known[operation["kind"]], operation.get("query", ())
            paths[path][method] = {
                "x-kubernetes-action": operation["action"],
                "x-kubernetes-group-version-kind": {"group": of.group, "version": of.version, "kind": of.kind},
                "parameters": [{"name": each, "in": "query", "schema": {"type": "string"}} for each in names],
                "responses": {code: {"description": ""} for code in operation["codes"]},
            }
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": DOCUMENT["components"]}


def _group(group: str, version: str) -> dict[str, Any]:
    named = {"groupVersion": f"{group}/{version}", "version": version}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": [named], "preferredVersion": named}


def _list(group: str, version: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for each in resources().values():
        if (each.group, each.version) == (group, version):
            found.append(_resource(each))
            found += (_part(each, part) for part in each.parts)
    api = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": found}


def _resource(of: Resource) -> dict[str, Any]:
    return {
        "name": of.plural,
        "singularName": of.kind.lower(),
        "namespaced": of.namespaced,
        "kind": of.kind,
        "verbs": sorted(of.verbs & _VERBS),
        **({"shortNames": SHORT[of.plural]} if of.plural in SHORT else {}),
    }


def _part(of: Resource, part: str) -> dict[str, Any]:
    group, version, kind = _OTHERS.get(part, (of.group, of.version, of.kind))
    return {
        "name": f"{of.plural}/{part}",
        "singularName": "",
        "namespaced": of.namespaced,
        "group": group,
        "version": version,
        "kind": kind,
        "verbs": sorted(of.parts[part]),
    }
