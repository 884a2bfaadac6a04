"""Four kinds of patches but the fifth, server-side apply (`applying`): JSON, merge and strategic merge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.schema import resolved
from tests.backends.kubernetes.fake.store import copied


def json_patch(given: Any, steps: Sequence[Mapping[str, Any]]) -> Any:
    out = copied(given)
    for step in steps:
        try:
            out = _step(out, step)
        except (KeyError, IndexError, ValueError, TypeError) as problem:
            message = f"the server rejected our request due to an error in our request: {step}: {problem!r}"
            raise errors.refusal(422, "Invalid", message) from problem
    return out


def _step(given: Any, step: Mapping[str, Any]) -> Any:
    kind, path = step["op"], _path(step["path"])
    if kind in ("move", "copy"):
        source = _path(step["from"])
        value = copied(_at(given, source))
        if kind == "move":
            _change(given, source, "remove", None)
        return _change(given, path, "add", value)
    if kind == "test":
        if _at(given, path) != step["value"]:
            raise ValueError(f"testing value {step['path']} failed")
        return given
    return _change(given, path, kind, step.get("value"))


def _path(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(given: Any, path: Sequence[str]) -> Any:
    for part in path:
        given = given[int(part)] if isinstance(given, list) else given[part]
    return given


def _change(given: Any, path: Sequence[str], kind: str, value: Any) -> Any:
    if not path:
        return value
    holder, last = _at(given, path[:-1]), path[-1]
    if isinstance(holder, list):
        at = len(holder) if last == "-" else int(last)
        if kind == "add":
            holder.insert(at, value)
        elif kind == "remove":
            del holder[at]
        else:
            holder[at] = value
    elif kind == "remove":
        del holder[last]
    elif kind in ("add", "replace"):
        if kind == "replace" and last not in holder:
            raise KeyError(last)
        holder[last] = value
    else:
        raise ValueError(f"there is no operation {kind}")
    return given


def merge_patch(given: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    out = dict(given) if isinstance(given, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def strategic_patch(schema: Mapping[str, Any], given: Any, patch: Mapping[str, Any]) -> Any:
    """Lists with a merge key are merged by it, and so are those of plain values that say so; others are replaced."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    known = resolved(schema).get("properties", {})
    out = dict(given) if isinstance(given, dict) else {}
    for key, value in patch.items():
        if key == "$retainKeys":
            out = {name: each for name, each in out.items() if name in value}
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            out[name] = [each for each in out.get(name, []) if each not in value]
        elif key.startswith("$setElementOrder/") or key == "$patch":
            continue
        elif value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            own = known.get(key) or resolved(schema).get("additionalProperties") or {}
            out[key] = strategic_patch(own, out.get(key), value)
        elif isinstance(value, list) and "merge" in known.get(key, {}).get("x-kubernetes-patch-strategy", ""):
            out[key] = _merged_list(known[key], out.get(key, []), value)
        else:
            out[key] = value
    for key, order in patch.items():
        name = key.partition("/")[2]
        if key.startswith("$setElementOrder/") and name in out:
            out[name] = _ordered(out[name], order, known[name].get("x-kubernetes-patch-merge-key"))
    return out


def _merged_list(schema: Mapping[str, Any], given: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    key = schema.get("x-kubernetes-patch-merge-key")
    if key is None:
        return [*given, *(each for each in patch if each not in given)]
    if any(each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if "$patch" not in each]
    out = {json.dumps(each.get(key)): each for each in given}
    for each in patch:
        if key not in each:
            raise errors.bad_request(f"map: {each} does not contain declared merge key: {key}")
        name = json.dumps(each[key])
        if each.get("$patch") == "delete":
            out.pop(name, None)
        else:
            out[name] = strategic_patch(schema["items"], out.get(name), each)
    return list(out.values())


def _ordered(given: Sequence[Any], order: Sequence[Any], key: str | None) -> list[Any]:
    place = {json.dumps(each[key] if key else each): at for at, each in enumerate(order)}
    return sorted(given, key=lambda each: place.get(json.dumps(each[key] if key else each), len(place)))
