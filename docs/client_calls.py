"""Makes the command line's calls from the route table: a function for each route, and the types of what is sent.

So a path, a key or an answer that the server doesn't have is the type checker's error where the command line uses it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, RootModel, WithJsonSchema
from typing_extensions import is_typeddict

from chalicelib import contract
from chalicelib.api.route import Route
from chalicelib.api.routes import BUILT
from cli import connection
from docs.openapi.declared import JSON, Declared, declared

CALLS = Path(connection.__path__[0]) / "calls.py"
BODIES = Path(contract.__path__[0]) / "bodies.py"
WIDTH = 120
IN_PROJECT = "/api/project/{project_name}/"

CALLS_HEAD = '''\
"""The calls of the server's API, a function for each route. Made by `make docs` from the route table and what its
handlers declare (`docs/client_calls.py`); change those instead."""

from __future__ import annotations

# mypy: disable-error-code="no-any-return"
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chalicelib import contract
    from chalicelib.contract import bodies
    from cli.connection.client import Client


def _quoted(text: str) -> str:
    return quote(text, safe="")
'''
BODIES_HEAD = '''\
"""The bodies and queries of calls, as they are sent. Made by `make docs` from the models that read them
(`docs/client_calls.py`), which also say what values may be; change those instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from typing_extensions import NotRequired, ReadOnly, TypedDict

from chalicelib.contract.events import AnyTarget
from chalicelib.contract.users import Verb
from chalicelib.contract.values import GlobalRole, ProjectRole
'''
NAMED = {  # literals that the contract has names for
    frozenset(get_args(kind)): name
    for name in ("AnyTarget", "GlobalRole", "ProjectRole", "Verb")
    for kind in [getattr(contract, name)]
}


class Call(NamedTuple):
    name: str
    route: Route
    declared: Declared


def calls() -> list[Call]:
    """Those of programs, with JSON. What is about all projects and what is about one may end alike."""
    found: dict[str, Call] = {}
    for route in BUILT:
        said = declared(route)
        ours = route.path.startswith("/api/") and not route.path.startswith("/api/v1/")
        if ours and said is not None and said.media == JSON and said.answer is not contract.OpenedStream:
            short = route.path.removeprefix(IN_PROJECT).removeprefix("/api/")
            name = "_".join(part for part in short.split("/") if not part.startswith("{"))
            if name in found and route.path.startswith(IN_PROJECT):
                twin = found.pop(name)
                found[f"{name}_of_projects"] = twin._replace(name=f"{name}_of_projects")
            if name in found:
                raise ValueError(f"{route.path} and {found[name].route.path} would both be called {name}")
            found[name] = Call(name, route, said)
    return sorted(found.values())


# --- types as text ----------------------------------------------------------------------------------------------------


def written(kind: Any, models: Mapping[type[BaseModel], str], types_in: str = "") -> str:
    """A type as text. `types_in`: the module with the contract's types, as it is named there."""
    if get_origin(kind) is Annotated:
        return _annotated(kind, models, types_in)
    if get_origin(kind) is Literal:
        return _choice(get_args(kind))
    if get_origin(kind) is not None:
        return _composed(kind, models, types_in)
    if kind is None or kind is type(None):
        return "None"
    if is_typeddict(kind):
        return f"{types_in}{kind.__name__}"
    if kind in models:
        return models[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice(tuple(one.value for one in kind))
    if kind not in (str, int, float, bool):
        raise TypeError(f"{kind} has no text here")
    return str(kind.__name__)


def _annotated(kind: Any, models: Mapping[type[BaseModel], str], types_in: str) -> str:
    """An instant is sent as text, and read as a number."""
    inner, *said = get_args(kind)
    schemas = [one.json_schema or {} for one in said if isinstance(one, WithJsonSchema)]
    if any(schema.get("type") == "string" for schema in schemas):
        return "str | None" if type(None) in get_args(inner) else "str"
    return written(inner, models, types_in)


def _composed(kind: Any, models: Mapping[type[BaseModel], str], types_in: str) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is dict and inside[1] is Any:
        return "Mapping[str, object]"  # its keys are described elsewhere
    parts = [written(one, models, types_in) for one in inside if one is not ...]
    if origin in (Union, types.UnionType):
        return " | ".join(parts)
    if origin not in (list, tuple, dict):
        raise TypeError(f"{kind} has no text here")
    return f"{'dict' if origin is dict else 'list'}[{', '.join(parts)}]"


def _choice(values: tuple[str, ...]) -> str:
    known = NAMED.get(frozenset(values))
    return known or "Literal[" + ", ".join(f'"{value}"' for value in values) + "]"


# --- bodies -----------------------------------------------------------------------------------------------------------


def sent() -> dict[type[BaseModel], str]:
    """The models of what is sent, with the names of their types: those within others come first."""
    found: dict[type[BaseModel], str] = {}
    for route in BUILT:
        said = declared(route)
        if said is not None and not route.path.startswith("/api/v1/"):
            for model in (said.body, said.query):
                if model is not None and model.model_fields:
                    _collect(model, found)
    names: dict[str, type[BaseModel]] = {}
    for model, name in found.items():
        if name in names:
            raise ValueError(f"{model} and {names[name]} have one name: call them by their routes")
        names[name] = model
    return found


def _collect(model: type[BaseModel], found: dict[type[BaseModel], str]) -> None:
    if model not in found and not issubclass(model, RootModel):
        for inner in _parts(model):
            _collect(inner, found)
        found[model] = model.__name__.lstrip("_")


def _parts(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for kind in typing.get_type_hints(model, include_extras=True).values():
        yield from _models_in(kind)


def _models_in(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and not get_args(kind) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from _models_in(inner)


def bodies() -> str:
    models = sent()
    within = {inner for model in models for inner in _parts(model)}
    return BODIES_HEAD + "".join(f"\n\n{_typed(model, models, within)}" for model in models)


def _typed(model: type[BaseModel], models: Mapping[type[BaseModel], str], within: Collection[type[BaseModel]]) -> str:
    """What stands within a body is often an answer, with more keys: so it is read-only, and may be one."""
    hints = typing.get_type_hints(model, include_extras=True)
    lines = [f"class {models[model]}(TypedDict):\n"]
    for key, field in model.model_fields.items():
        kind = written(hints[key], models)
        if model in within or any(_models_in(hints[key])):
            kind = f"ReadOnly[{kind}]"
        lines.append(f"    {key}: {kind if field.is_required() else f'NotRequired[{kind}]'}\n")
    return "".join(lines)


# --- calls ------------------------------------------------------------------------------------------------------------


def functions() -> str:
    models = sent()
    return CALLS_HEAD + "".join(f"\n\n{_function(call, models)}" for call in calls())


def _function(call: Call, models: Mapping[type[BaseModel], str]) -> str:
    route, said = call.route, call.declared
    inside = route.path.startswith(IN_PROJECT)
    path = route.path.removeprefix(IN_PROJECT)
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    text = f'"{path}"'
    if names:
        for name in names:
            path = path.replace(f"{{{name}}}", f"{{_quoted({name})}}")
        text = f'f"{path}"'
    takes, given = ["client: Client", *(f"{name}: str" for name in names)], [text]
    for kind, model in (("query", said.query), ("body", said.body)):
        if model is not None and (model.model_fields or kind == "body"):
            whole = models.get(model)
            typed = f"bodies.{whole}" if whole else "Mapping[str, object]"
            needed = whole is None or any(field.is_required() for field in model.model_fields.values())
            takes.append(f"{kind}: {typed}" if needed else f"{kind}: {typed} | None = None")
            given.append(kind)
    if said.uploads:
        takes += ["file_name: str", "data: bytes"]
        given = [given[0], "file_name", "data", *given[1:]]
    verb = "upload" if said.uploads else route.method.lower()
    method = f"{verb}_in_project".removeprefix("post_") if inside else verb
    answer = "None" if said.answer is None else written(said.answer, models, "contract.")
    returns = "" if answer == "None" else "return "
    head = f"def {call.name}({', '.join(takes)}) -> {answer}:"
    if len(head) > WIDTH:
        head = f"def {call.name}(\n    {', '.join(takes)}\n) -> {answer}:"
    return f"{head}\n    {returns}client.{method}({', '.join(given)})\n"


def write() -> None:
    CALLS.write_text(functions(), encoding="utf-8")
    BODIES.write_text(bodies(), encoding="utf-8")
