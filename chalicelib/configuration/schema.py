"""The language as JSON Schema 2020-12, for editors:
`python -m chalicelib.configuration.schema [profiles|server]`.

Generated from the models that read the files, including short forms. The type is chosen with `if` and `then` rather
than `oneOf`, so that an editor's completions and errors are those of the chosen type and not of all seven.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from chalicelib.configuration.examples import example_of
from chalicelib.configuration.parse import TYPES, volume_types
from chalicelib.configuration.providers import PROVIDERS
from chalicelib.domain.specs.profiles import ProfilesConfig
from chalicelib.domain.specs.providers import OF_PROVIDERS, ProviderUnion, backend_names

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def configuration_schema() -> Schema:
    """For `*.dstack.yml`."""
    single = {kind: model for kind, model in TYPES.items() if kind != "volume"}
    volumes = volume_types()
    definitions = definitions_of([*single.values(), *volumes.values()])
    return {
        "$schema": DIALECT,
        "title": "A dstack configuration",
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": list(TYPES), "description": "What it is."}},
        "allOf": [
            *(_condition({"type": kind}, model) for kind, model in single.items()),
            {
                "if": {"properties": {"type": {"const": "volume"}}, "required": ["type"]},
                "then": {"required": ["backend"], "properties": {"backend": {"enum": list(volumes)}}},
            },
            *(_condition({"type": "volume", "backend": backend}, model) for backend, model in volumes.items()),
        ],
        "$defs": _with_examples(definitions),
    }


def _with_examples(definitions: Schema) -> Schema:
    for name, definition in definitions.items():
        for field, described in long_form(definition).get("properties", {}).items():
            if not explains_itself(described) and (example := example_of(name, field)) is not None:
                described["examples"] = [example]
    return definitions


def long_form(definition: Schema) -> Schema:
    """The long form of a definition, which has fields."""
    return next((arm for arm in definition.get("anyOf", []) if "properties" in arm), definition)


def explains_itself(described: Schema) -> bool:
    """Whether a field's own schema shows what a valid value looks like."""
    kind = described.get("type")
    if {"examples", "enum", "const", "$ref"} & described.keys() or "boolean" in (
        kind if isinstance(kind, list) else [kind]
    ):
        return True
    items = described.get("items")
    arms = [*described.get("anyOf", []), *described.get("oneOf", []), *([items] if isinstance(items, dict) else [])]
    return any(explains_itself(arm) for arm in arms)


def profiles_schema() -> Schema:
    """For `profiles.yml`."""
    definitions = definitions_of([ProfilesConfig])
    named = _with_examples(definitions)
    return {"$schema": DIALECT, "title": "dstack profiles", "$ref": _place(ProfilesConfig), "$defs": named}


def server_schema() -> Schema:
    """For `server/config.yml`."""
    from chalicelib.configuration.server_spec import ServerConfig  # loads a module a provider

    definitions = definitions_of([ServerConfig])
    chosen = {name: _chosen(definition, definitions) for name, definition in definitions.items()}
    return {"$schema": DIALECT, "title": "A dstack server", "$ref": _place(ServerConfig), "$defs": chosen}


def _chosen(schema: Any, definitions: Schema) -> Any:
    """With `if` and `then` instead of every `oneOf` whose arms differ by `type`."""
    if isinstance(schema, list):
        return [_chosen(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _chosen(value, definitions) for key, value in schema.items()}
    if "oneOf" not in found:
        return found
    arms = {arm["$ref"]: _types(definitions[arm["$ref"].rpartition("/")[2]]) for arm in found.pop("oneOf")}
    known = {"enum": sorted(kind for kinds in arms.values() for kind in kinds)}
    cases = [
        {"if": {"properties": {"type": {"enum": kinds}}, "required": ["type"]}, "then": {"$ref": place}}
        for place, kinds in arms.items()
    ]
    return {**found, "type": "object", "required": ["type"], "properties": {"type": known}, "allOf": cases}


def _types(definition: Schema) -> list[str]:
    written = definition["properties"]["type"]
    return list(written["enum"]) if "enum" in written else [written["const"]]


def definitions_of(models: list[type[BaseModel]]) -> Schema:
    """Every model used in these, by name."""
    found: Schema = {}
    waiting = list(models)
    while waiting:
        _, schema = models_json_schema([(model, "validation") for model in waiting], ref_template="#/$defs/{model}")
        arms: list[type[BaseModel]] = []
        found = {name: _filled_in(each, arms) for name, each in schema["$defs"].items()} | found
        waiting = [model for model in arms if model.__name__ not in found]
    return {name: _readable(definition) for name, definition in sorted(found.items())}


def _filled_in(schema: Any, arms: list[type[BaseModel]]) -> Any:
    """With what the providers have for each place that is left to them; their models are added to `arms`."""
    if isinstance(schema, list):
        return [_filled_in(item, arms) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _filled_in(value, arms) for key, value in schema.items() if key != OF_PROVIDERS}
    place = schema.get(OF_PROVIDERS)
    if isinstance(place, ProviderUnion):
        kinds = PROVIDERS.kinds(place.part)
        models = dict.fromkeys([*place.own.values(), *(PROVIDERS.model(place.part, kind) for kind in kinds)])
        arms += models
        refs = [{"$ref": _place(model)} for model in models]
        return found | (refs[0] if len(refs) == 1 else {"oneOf": refs})
    return found if place is None else found | {"enum": backend_names(PROVIDERS.names()), "type": "string"}


def _readable(schema: Any) -> Any:
    """Without titles that only repeat names, with standard bounds, and with every way to write a type: text as a
    number, and numbers and switches in quotes."""
    if isinstance(schema, list):
        return [_readable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _readable(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    for keyword, standard in _BOUNDS.items():
        if isinstance(found.get(keyword), int | float):
            found[standard] = found.pop(keyword)
    kind = found.get("type")
    for keyword, standard in (("min_length", "min"), ("max_length", "max")):
        if isinstance(found.get(keyword), int):
            found[standard + ("Items" if kind == "array" else "Length")] = found.pop(keyword)
    if not all("$ref" in arm for arm in found.get("oneOf", ())):
        found["anyOf"] = found.pop("oneOf")  # text may be a switch in quotes, or a name
    if kind == "string" and not {"enum", "const", "pattern"} & found.keys():
        found["type"] = ["string", "number"]
    elif isinstance(kind, str) and kind in _AS_TEXT and not {"enum", "const"} & found.keys():
        found |= {"type": [kind, "string"], "pattern": _AS_TEXT[kind]}
    return found


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_AS_TEXT = {
    "integer": "^ *[+-]?[0-9]+ *$",
    "number": "^ *[+-]?[0-9.]+([eE][+-]?[0-9]+)? *$",
    "boolean": "^(true|false|yes|no|on|off|True|False|Yes|No|On|Off)$",
}


def _condition(chosen: dict[str, str], model: type[BaseModel]) -> Schema:
    known = {field: {"const": value} for field, value in chosen.items()}
    return {"if": {"properties": known, "required": list(chosen)}, "then": {"$ref": _place(model)}}


def _place(model: type[BaseModel]) -> str:
    return f"#/$defs/{model.__name__}"


def main(arguments: list[str]) -> None:
    make_schema = {"profiles": profiles_schema, "server": server_schema}.get(
        "".join(arguments[:1]), configuration_schema
    )
    schema = make_schema()
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
