"""Which keys a JSON document has and what kind of value each holds, as one flat table: `runs[].fleet.id: string`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

KINDS = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
OPEN = ("configuration", "profile", "env", "tags", "repo_data", "ports")  # a language of their own, or free keys
Outline = dict[str, str]


def outline(documents: Iterable[Any], parts: Mapping[str, str], nouns: dict[str, list[Any]]) -> Outline:
    """The keys of all `documents` together; what stands at one of `parts` is put aside in `nouns`."""
    kinds: dict[str, set[str]] = {}
    for found in documents:
        _walk(found, "", parts, kinds, nouns)
    return {path: " | ".join(sorted(found, key=lambda kind: (kind == "null", kind))) for path, found in kinds.items()}


def _walk(value: Any, path: str, parts: Mapping[str, str], kinds: dict[str, set[str]], nouns: dict[str, Any]) -> None:
    here = kinds.setdefault(path, set()) if path or path in parts else set()
    if path in parts and value is not None:
        here.add(parts[path])
        if "|" not in parts[path]:
            nouns.setdefault(parts[path], []).append(value)
    elif isinstance(value, dict):
        here.add("object")
        if path.rpartition(".")[2] not in OPEN:
            for key, item in value.items():
                _walk(item, f"{path}.{key}" if path else key, parts, kinds, nouns)
    elif isinstance(value, list):
        here.add("list")
        for item in value:
            _walk(item, f"{path}[]", parts, kinds, nouns)
    else:
        here.add(KINDS[type(value)])


def breaks(before: Outline, after: Outline) -> list[str]:
    """What a script that knew `before` would miss in `after`: a key that went, or that says something else."""
    return [path for path, kinds in before.items() if path not in after or not _still(kinds, after[path])]


def _still(before: str, after: str) -> bool:
    old, new = ({kind for kind in kinds.split(" | ") if kind != "null"} for kinds in (before, after))
    return not old or old == new
