"""`dstack_serverless/api`: a function for each operation of the OpenAPI document, in modules like those of the routes.

A function only describes a call, so both clients send what it returns. The types of answers and of parts of bodies are
those of the contract.
"""

from __future__ import annotations

import re
import textwrap
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from chalicelib import contract
from chalicelib.api import routes
from chalicelib.api.routes import BUILT, ByName
from chalicelib.contract import bodies
from docs.openapi.document import DOCUMENT

FOLDER = Path(__file__).parents[2] / "dstack_serverless" / "api"
LEFT_OUT = (  # pages, and what isn't one answer
    *(
        "console_file",
        "console_file_2",
        "console_file_3",
        "console_page",
        "console_signed_on",
        "documents_page",
        "documents_openapi",
        "streams_open_stream",
    ),
)
READS = re.compile(
    r"(get|list|poll|check|config_info|prometheus|healthcheck|job)(_|$)"
)  # functions that change nothing
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
ALIASES = {  # of the contract, by their values
    frozenset(typing.get_args(kind)): name
    for name, kind in vars(contract).items()
    if typing.get_origin(kind) is typing.Literal
}
WIDTH = 120
INDEX = '''"""Every call of the API as a function that describes it: `client.send(runs.get("main", run_name="hello"))`.

A module for each noun. Keys that aren't given aren't sent. Generated: `make docs`.
"""
'''

Schema = dict[str, Any]


class Parameter(NamedTuple):
    name: str
    type: str
    needed: bool
    where: str  # path, query, body: one of its keys, or whole: all of it

    @property
    def line(self) -> str:
        return f"{self.name}: {self.type}" if self.needed else f"{self.name}: {self.type} = UNSET"


class Types:
    """Schemas as Python types."""

    def __init__(self, named: dict[str, Schema]) -> None:
        self.named = named

    def of(self, schema: Schema) -> str:
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2])
        if "const" in schema:
            return f"Literal[{_literal(schema['const'])}]"
        if "enum" in schema:
            if name := ALIASES.get(frozenset(schema["enum"])):
                return f"contract.{name}"
            text = f"Literal[{', '.join(_literal(each) for each in schema['enum'])}]"
            return text if len(text) < WIDTH // 2 else "str"  # without a name it would take the page; the server knows
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(self.of(each) for each in schema["anyOf"]))
        kind = schema.get("type")
        if kind == "array":
            return f"list[{self.of(schema.get('items', {}))}]"
        if kind == "object":
            inner = schema.get("additionalProperties")
            return f"dict[str, {self.of(inner) if isinstance(inner, dict) else 'Any'}]"
        return PLAIN.get(str(kind), "Any")

    def _named(self, name: str) -> str:
        if hasattr(contract, name):
            return f"contract.{name}"
        return f"bodies.{name}" if hasattr(bodies, name) else self.of(self.named[name])


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def modules() -> dict[str, str]:
    """The text of each file, by its name."""
    found: Schema = orjson.loads(DOCUMENT.read_bytes())
    types = Types(found["components"]["schemas"])
    by_module: dict[str, list[str]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] not in LEFT_OUT:
                module, name = place_of(operation["operationId"])
                by_module.setdefault(module, []).append(_function(name, path, method, operation, types))
    files = {f"{module.replace('.', '_')}.py": _module(module, functions) for module, functions in by_module.items()}
    files["__init__.py"] = INDEX
    return files


def place_of(operation: str) -> tuple[str, str]:
    """The module of the routes with an operation's handler, and the name of that."""
    names = (route.handler.name for route in BUILT if isinstance(route.handler, ByName))
    module, _, name = next(name for name in names if name.replace(".", "_") == operation).rpartition(".")
    return module, name


def _module(module: str, functions: list[str]) -> str:
    about, _, _ = (import_module(f"{routes.__name__}.{module}").__doc__ or "").partition("\n\n")
    text = "\n\n\n".join(functions)
    own = ["    from chalicelib import contract"] if "contract." in text else []
    own += ["    from chalicelib.contract import bodies"] if "bodies." in text else []
    names = [*(["TYPE_CHECKING"] if own else []), *_used(("Any", "Literal"), text)]
    shared = _used(("UNSET", "Request", "given", "segment"), text)
    lines = [*_text(f"{about}\n\nGenerated: `make docs`.", ""), "", "from __future__ import annotations", ""]
    lines += [f"from typing import {', '.join(names)}", ""] if names else []
    lines += [f"from dstack_serverless.sdk.flow import {', '.join(shared)}", ""]
    lines += ["if TYPE_CHECKING:", *own, ""] if own else []
    return "\n".join([*lines, "", text, ""])


def _used(names: tuple[str, ...], text: str) -> list[str]:
    return [name for name in names if re.search(rf"\b{name}\b", text)]


def _function(name: str, path: str, method: str, operation: Schema, types: Types) -> str:
    parameters, content = [*_parameters(operation, types)], operation.get("requestBody", {}).get("content", {})
    uploads = "multipart/form-data" in content
    answer = _answer(operation, types)
    lines = [f"def {name}({_signature(parameters, uploads)}) -> Request[{answer}]:", *_text(operation["description"])]
    filled = re.sub(r"\{(\w+)\}", r"{segment(\1)}", path)
    lines += ["    return Request(", f'        "{method.upper()}",']
    lines += [f'        {"f" if "{" in path else ""}"{filled}",']
    for where in ("query", "body"):
        if named := [each for each in parameters if each.where == where]:
            lines += [f"        {where}=given(", *(f"            {_given(each)}," for each in named), "        ),"]
    lines += ["        body=body,"] if any(each.where == "whole" for each in parameters) else []
    lines += ["        file=file,", "        file_name=file_name,"] if uploads else []
    lines += ["        safe=True,"] if method == "get" or READS.match(name) else []
    shared = [each.get("$ref", "") for each in operation.get("parameters", ())]
    lines += ["        once=True,"] if any(each.endswith("/IdempotencyKey") for each in shared) else []
    lines += ["        text=True,"] if answer == "str" else []
    return "\n".join([*lines, "    )"])


def _given(parameter: Parameter) -> str:
    return f"{parameter.name}={parameter.name}"


def _signature(parameters: list[Parameter], uploads: bool) -> str:
    if not parameters and not uploads:
        return ""
    first = [each.line for each in parameters if each.where == "path"]
    named = [each.line for each in sorted(parameters, key=lambda each: not each.needed) if each.where != "path"]
    named += ["file: bytes", "file_name: str"] if uploads else []
    lines = [*first, *(["*", *named] if named else [])]
    return "\n    " + "".join(f"{line},\n    " for line in lines).removesuffix("    ")


def _parameters(operation: Schema, types: Types) -> Iterator[Parameter]:
    for each in operation.get("parameters", ()):
        if "$ref" not in each and each["in"] != "header":  # those that are shared are headers
            yield Parameter(each["name"], types.of(each["schema"]), each["required"], each["in"])
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return
    schema = types.named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "properties" not in schema:
        yield Parameter("body", types.of(schema), True, "whole")
        return
    needed = schema.get("required", ())
    for name, inner in schema["properties"].items():
        yield Parameter(name, types.of(inner), name in needed, "body")


def _answer(operation: Schema, types: Types) -> str:
    found = []
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            content = response.get("content", {})
            if "application/json" in content:
                schema = content["application/json"]["schema"]
                found += [types.of(each) for each in schema.get("anyOf", [schema])]
            else:
                found.append("str" if content else "None")
    return " | ".join(dict.fromkeys(found))


def _text(description: str, indent: str = "    ") -> Iterator[str]:
    """A docstring."""
    paragraphs = [" ".join(part.split()) for part in description.replace("\\", "\\\\").split("\n\n")]
    first, *others = [textwrap.wrap(part, WIDTH - 8) for part in paragraphs]
    lines = [f'"""{first[0]}', *first[1:], *(line for part in others for line in ("", *part))]
    lines = [f'{lines[0]}"""'] if len(lines) == 1 else [*lines, '"""']
    yield from (f"{indent}{line}" if line else "" for line in lines)


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    files = modules()
    for path in FOLDER.glob("*.py"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
