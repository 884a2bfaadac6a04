"""The pages of the docs generated from the code: `python -m chalicelib.configuration.reference docs/reference`.

Fields, types, defaults and descriptions come from the models through the JSON Schema; the messages in the error
catalog are the reader's own output for the wrong file. Text outside the marks in a page is handwritten and stays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from chalicelib.backends.registry import config_models
from chalicelib.configuration.error_catalog import ENTRIES, ErrorEntry
from chalicelib.configuration.parse import TYPES, located, parse, volume_types
from chalicelib.configuration.resolution import resolved
from chalicelib.configuration.schema import configuration_schema, definitions_of, long_form, profiles_schema
from chalicelib.configuration.server_spec import ServerConfig, backends_built
from chalicelib.domain.specs.credentials import types_of
from chalicelib.errors import Invalid

BEGIN, END = "<!-- made from the code: begin -->", "<!-- made from the code: end -->"
Schema = dict[str, Any]


def fields() -> str:
    """Every type and value type with its fields."""
    schema = configuration_schema()
    definitions: dict[str, Schema] = {**schema["$defs"], **profiles_schema()["$defs"]}
    titles = {model.__name__: f"`type: {kind}`" for kind, model in TYPES.items() if kind != "volume"}
    titles |= {model.__name__: f"`type: volume`, `backend: {kind}`" for kind, model in volume_types().items()}
    first = [*titles, "ProfilesConfig"]
    remaining = [name for name in sorted(definitions) if name not in first and not name.startswith("Range_")]
    return "\n\n".join(_section(name, titles.get(name, name), definitions[name]) for name in [*first, *remaining])


def server_fields() -> str:
    """`server/config.yml`: the file, its backends by type, and their parts."""
    definitions = definitions_of([ServerConfig])
    titles = {"ServerConfig": "`server/config.yml`"}
    titles |= {model.__name__: ", ".join(f"`type: {kind}`" for kind in types_of(model)) for model in config_models()}
    common = ["ServerConfig", "ProjectConfig", "EncryptionConfig", "IdentityKey", "AESKey", "DefaultPermissions"]
    backends = sorted((model.__name__ for model in config_models()), key=lambda name: titles[name])
    remaining = [name for name in sorted(definitions) if name not in (*common, *backends)]
    built_texts = {model.__name__: _built_text(types_of(model)) for model in config_models()}
    names = [*common, *backends, *remaining]
    return "\n\n".join(
        _section(name, titles.get(name, name), definitions[name], built_texts.get(name, "")) for name in names
    )


def _built_text(types: Sequence[str]) -> str:
    """Whether a server can use the backends of a section."""
    usable = backends_built()
    built = [kind for kind in types if kind in usable]
    if not built:
        return "**Not built yet**: a server refuses to start with it."
    extras = sorted({usable[kind] for kind in built} - {""})
    built_texts = "**Built.**" if len(built) == len(types) else f"**Built**: {', '.join(built)}; the others aren't yet."
    return " ".join([built_texts, *(f"It needs the [extra](../install.md) `{each}`." for each in extras)])


def _section(name: str, title: str, definition: Schema, more: str = "") -> str:
    full = long_form(definition)
    shorts = [arm for arm in definition.get("anyOf", []) if arm is not full]
    lines = [f'### <a id="{name.lower()}"></a>{title}', "", f"{full.get('description', '')} {more}".strip(), ""]
    if examples := [f"`{example}`" for short in shorts for example in short.get("examples", [])]:
        lines += [f"Short form: {', '.join(examples)}.", ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    needed = full.get("required", [])
    for key, field in full.get("properties", {}).items():
        default = "needed" if key in needed else _default(field)
        meaning = str(field.get("description", "")).replace("|", "\\|")
        lines.append(f"| `{key}` | {_kind(field)} | {default} | {meaning} |")
    return "\n".join(lines)


def _default(field: Schema) -> str:
    value = field.get("default")
    return "" if value is None or isinstance(value, dict | list) else f"`{json.dumps(value)}`"


def _kind(field: Schema) -> str:
    """A type in a few words."""
    if "$ref" in field:
        return _named(field["$ref"].rpartition("/")[2])
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return "a backend" if len(field["enum"]) > 12 else ", ".join(f"`{value}`" for value in field["enum"])
    arms = field.get("anyOf") or field.get("oneOf")
    if arms:
        if len(arms) == len(config_models()):
            return "a backend, by its `type`"
        if comments := [str(arm["$comment"]) for arm in arms if "$comment" in arm]:
            return comments[0]
        kinds = (kind for arm in arms if arm.get("type") != "null" for kind in _kind(arm).split(" or "))
        named = " or ".join(dict.fromkeys(kinds))
        return _plain_kind({"type": "string", **field}) if named == "text" else named
    return _plain_kind(field)


def _plain_kind(field: Schema) -> str:
    kind = field.get("type")
    if isinstance(kind, list) and kind != ["string", "number"]:
        kind = kind[0]  # the other is the same in quotes
    if kind == "array":
        return f"list of {_kind(field['items'])}" if isinstance(field.get("items"), dict) else "list"
    if kind in (["string", "number"], "string"):
        example = (field.get("examples") or [None])[0]
        return f"text like `{example}`" if isinstance(example, str) else "text"
    names = {"integer": "number", "number": "number", "boolean": "true or false", "object": "mapping"}
    return names.get(str(kind), "any")


def _named(model: str) -> str:
    return "number or range" if model.startswith("Range_") else f"[{model}](#{model.lower()})"


def errors() -> str:
    """The error catalog."""
    return "\n\n".join("\n".join(_entry(code, entry)) for code, entry in sorted(ENTRIES.items()))


def _entry(code: str, entry: ErrorEntry) -> Iterator[str]:
    yield f'### <a id="{code}"></a>{code}'
    yield ""
    yield entry.meaning
    if not entry.wrong:
        return
    yield ""
    yield "```yaml"
    yield entry.wrong.rstrip("\n")
    yield "```"
    yield ""
    yield "```text"
    yield from [entry.found_by_server] if entry.found_by_server else comments(entry.wrong)
    yield "```"
    yield ""
    yield "Right:"
    yield ""
    yield "```yaml"
    yield entry.right.rstrip("\n")
    yield "```"


def comments(text: str) -> list[str]:
    """The messages for a file applied without any variables set."""
    try:
        configuration = parse(text, filename=".dstack.yml")
        try:
            resolved(configuration, environment={})
        except Invalid as error:
            found = [
                located(problem, tuple(problem.path.split(".")), text.encode(), filename=".dstack.yml")
                for problem in error.problems
            ]
            raise Invalid(found) from None
    except Invalid as error:
        return [problem.render() for problem in error.problems]
    return []


def renewed(page: str, generated: str) -> str:
    """The page with the part between the marks regenerated."""
    before, _, tail = page.partition(BEGIN)
    _, _, after = tail.partition(END)
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}"


PAGES = {
    "configuration.md": fields,
    "errors.md": errors,
    "server-config.md": server_fields,
}


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0] if arguments else "docs/reference")
    for name, make in PAGES.items():
        page = folder / name
        page.write_text(renewed(page.read_text(encoding="utf-8"), make()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
