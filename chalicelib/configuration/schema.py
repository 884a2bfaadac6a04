"""The language as JSON Schema 2020-12, for editors: `python -m chalicelib.configuration.schema [profiles]`.

Made from the very models that read the files, short forms included. The type is chosen with `if` and `then` rather than
`oneOf`, because an editor then completes and complains for the type at hand and not for all seven at once.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from chalicelib.configuration.parse import TYPES, VOLUME_TYPES
from chalicelib.domain.specs.profiles import ProfilesConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def configuration_schema() -> Schema:
    """For `*.dstack.yml`."""
    single = {kind: model for kind, model in TYPES.items() if kind != "volume"}
    definitions = _definitions([*single.values(), *VOLUME_TYPES.values()])
    return {
        "$schema": DIALECT,
        "title": "A dstack configuration",
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": list(TYPES), "description": "What it is."}},
        "allOf": [
            *(_when({"type": kind}, model) for kind, model in single.items()),
            {
                "if": {"properties": {"type": {"const": "volume"}}, "required": ["type"]},
                "then": {"required": ["backend"], "properties": {"backend": {"enum": list(VOLUME_TYPES)}}},
            },
            *(_when({"type": "volume", "backend": backend}, model) for backend, model in VOLUME_TYPES.items()),
        ],
        "$defs": definitions,
    }


def profiles_schema() -> Schema:
    """For `profiles.yml`."""
    definitions = _definitions([ProfilesConfig])
    return {"$schema": DIALECT, "title": "dstack profiles", "$ref": _place(ProfilesConfig), "$defs": definitions}


def _definitions(models: list[type[BaseModel]]) -> Schema:
    _, schema = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    return {name: _readable(definition) for name, definition in sorted(schema["$defs"].items())}


def _readable(schema: Any) -> Any:
    """Without the titles that only repeat names, and with numbers where text may be written as one."""
    if isinstance(schema, list):
        return [_readable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _readable(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    if found.get("type") == "string" and not {"enum", "const", "pattern"} & found.keys():
        found["type"] = ["string", "number"]
    return found


def _when(chosen: dict[str, str], model: type[BaseModel]) -> Schema:
    known = {field: {"const": value} for field, value in chosen.items()}
    return {"if": {"properties": known, "required": list(chosen)}, "then": {"$ref": _place(model)}}


def _place(model: type[BaseModel]) -> str:
    return f"#/$defs/{model.__name__}"


def main(arguments: list[str]) -> None:
    schema = profiles_schema() if arguments[:1] == ["profiles"] else configuration_schema()
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
