"""Server-side apply: who owns which field, and what becomes of a field that its owner no longer applies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.schema import Object, Resource, of_kind, resolved
from tests.backends.kubernetes.fake.store import copied

Path = tuple[str, ...]  # in the form of fieldsV1: f:spec, k:{"name":"a"}, v:"finalizer", and `.` for an entry itself
_SERVERS = {
    *("f:uid", "f:creationTimestamp", "f:resourceVersion", "f:generation", "f:managedFields", "f:name", "f:namespace"),
    *("f:deletionTimestamp", "f:deletionGracePeriodSeconds", "f:selfLink", "f:generateName"),
}


def _schema_of(of: Resource) -> Mapping[str, Any]:
    return {"$ref": "/" + of.schema}


def paths(schema: Mapping[str, Any], value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of an object, as owners have them."""
    known = resolved(schema)
    if isinstance(value, dict) and value and known.get("x-kubernetes-map-type") != "atomic":
        for key, each in value.items():
            inner = known.get("properties", {}).get(key) or known.get("additionalProperties")
            if not inner or (at == () and key in ("apiVersion", "kind")):
                continue
            if at == ("f:metadata",) and f"f:{key}" in _SERVERS:
                continue
            yield from paths(inner, each, (*at, f"f:{key}"))
    elif isinstance(value, list) and (keys := known.get("x-kubernetes-list-map-keys")):
        for each in value:
            entry = (*at, _entry(keys, each))
            yield (*entry, "."), None
            yield from paths(known["items"], each, entry)
    elif isinstance(value, list) and known.get("x-kubernetes-list-type") == "set":
        for each in value:
            yield (*at, f"v:{json.dumps(each)}"), each
    else:
        yield at, value


def _entry(keys: Sequence[str], value: Mapping[str, Any]) -> str:
    return "k:" + json.dumps({key: value.get(key) for key in sorted(keys) if key in value}, separators=(",", ":"))


def _tree(owned: Iterator[Path] | Sequence[Path]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in owned:
        node = root
        for part in path:
            node = node.setdefault(part, {})
    return root


def _owned(tree: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    for part, inner in tree.items():
        if inner:
            yield from _owned(inner, (*at, part))
        else:
            yield (*at, part)


def _managers(given: Object) -> list[tuple[dict[str, Any], set[Path]]]:
    return [(each, set(_owned(each["fieldsV1"]))) for each in given.get("metadata", {}).get("managedFields", ())]


def _write(given: Object, managers: Sequence[tuple[dict[str, Any], set[Path]]]) -> None:
    entries = [{**entry, "fieldsV1": _tree(sorted(owned))} for entry, owned in managers if owned]
    given["metadata"]["managedFields"] = entries


def _entry_of(given: Object, manager: str, operation: str, now: str) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": given["apiVersion"],
        "time": now,
        "fieldsType": "FieldsV1",
    }


def note_update(target: Object, old: Object, new: Object, manager: str, now: str) -> None:
    """What was changed without applying belongs to who changed it. In place."""
    schema = _schema_of(of_kind(new["kind"]))
    before, after = dict(paths(schema, old)), dict(paths(schema, new))
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    changed = {path for path in changed if path[:1] != ("f:status",)}
    if not changed and before.keys() == after.keys():
        target["metadata"]["managedFields"] = old.get("metadata", {}).get("managedFields", [])
        return
    managers = [
        (entry, {path for path in owned if path in after and path not in changed})
        for entry, owned in _managers(old)
        if (entry["manager"], entry["operation"]) != (manager, "Update")
    ]
    own = next(
        (owned for entry, owned in _managers(old) if (entry["manager"], entry["operation"]) == (manager, "Update")),
        set(),
    )
    managers.append((_entry_of(new, manager, "Update", now), {path for path in own if path in after} | changed))
    _write(target, managers)


def applied(of: Resource, old: Object, config: Object, manager: str, now: str, *, force: bool) -> Object:
    """The old object with this configuration of the manager's. Raises a conflict if others own what it changes."""
    schema = _schema_of(of)
    before, wanted = dict(paths(schema, old)), dict(paths(schema, config))
    managers = _managers(old) if old else []
    managed = next(
        (owned for entry, owned in managers if (entry["manager"], entry["operation"]) == (manager, "Apply")), set()
    )
    others = [
        (entry, owned) for entry, owned in managers if (entry["manager"], entry["operation"]) != (manager, "Apply")
    ]
    changed = {path for path, value in wanted.items() if path in before and before[path] != value}
    conflicts = [(entry["manager"], path) for entry, owned in others for path in sorted(owned & changed)]
    if conflicts and not force:
        raise _conflict(conflicts)
    new: Object = _laid(schema, copied(old), config)
    held = set().union(*(owned for _, owned in others)) if others else set()
    for path in sorted(managed - wanted.keys() - held, key=len, reverse=True):
        _drop(new, path)
    others = [(entry, owned - changed) for entry, owned in others]
    _write(new, [*others, (_entry_of(config, manager, "Apply", now), set(wanted))])
    new["metadata"].pop("resourceVersion", None)
    if stated := config["metadata"].get("resourceVersion"):
        new["metadata"]["resourceVersion"] = stated
    return new


def _conflict(conflicts: Sequence[tuple[str, Path]]) -> Exception:
    shown = [(f'conflict with "{manager}"', _dotted(path)) for manager, path in conflicts]
    message = f"Apply failed with {len(shown)} conflict{'s' if len(shown) > 1 else ''}: " + ", ".join(
        f"{why}: {field}" for why, field in shown
    )
    causes = [{"reason": "FieldManagerConflict", "message": why, "field": field} for why, field in shown]
    return errors.refusal(409, "Conflict", message, {"causes": causes})


def _dotted(path: Path) -> str:
    """.spec.containers[name="a"].image"""
    out = ""
    for part in path:
        kind, _, rest = part.partition(":")
        if kind == "f":
            out += f".{rest}"
        elif kind == "k":
            out += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items()) + "]"
        elif kind == "v":
            out += f"[={rest}]"
    return out


def _laid(schema: Mapping[str, Any], old: Any, config: Any) -> Any:
    """The configuration over the object: lists are merged by their keys."""
    known = resolved(schema)
    if isinstance(config, dict) and isinstance(old, dict) and known.get("x-kubernetes-map-type") != "atomic":
        inner = known.get("properties", {})
        extra = known.get("additionalProperties") or {}
        return {**old, **{key: _laid(inner.get(key, extra), old.get(key), each) for key, each in config.items()}}
    if isinstance(config, list) and isinstance(old, list):
        if keys := known.get("x-kubernetes-list-map-keys"):
            merged = {_entry(keys, each): each for each in old}
            for each in config:
                name = _entry(keys, each)
                merged[name] = _laid(known["items"], merged.get(name), each)
            return list(merged.values())
        if known.get("x-kubernetes-list-type") == "set":
            return [*old, *(each for each in config if each not in old)]
    return config


def _drop(given: Any, path: Path) -> None:
    """Removes a field, if it's there."""
    for part in path[:-1] if path[-1] != "." else path[:-2]:
        given = _inside(given, part)
        if given is None:
            return
    last = path[-1] if path[-1] != "." else path[-2]
    if isinstance(given, dict):
        given.pop(last[2:], None)
    elif (found := _inside(given, last)) is not None:
        given.remove(found)


def _inside(given: Any, part: str) -> Any:
    kind, _, rest = part.partition(":")
    if kind == "f":
        return given.get(rest) if isinstance(given, dict) else None
    wanted = json.loads(rest)
    if kind == "v":
        return wanted if wanted in given else None
    return next((each for each in given if all(each.get(key) == value for key, value in wanted.items())), None)
