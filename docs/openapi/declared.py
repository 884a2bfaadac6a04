"""What a route declares: the types of its body, its query and its answer. Read from its handler's decorator and return
annotation, which nothing reads while a request is answered."""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import is_typeddict

from chalicelib import contract
from chalicelib.api import routes
from chalicelib.api.dispatch import is_v1
from chalicelib.api.route import (
    Answer,
    DryRun,
    Route,
    TakesBody,
    TakesBoth,
    TakesFile,
    TakesQuery,
    of_agents,
    of_directories,
)
from chalicelib.api.routes import ByName

JSON, NOTHING = "application/json", ""  # content types
AS_SENT = (contract.RunSpec, contract.FleetSpec, contract.GatewaySpec)  # they keep what a later client sends


@dataclass(frozen=True)
class Declared:
    name: str  # module.function
    text: str  # the handler's docstring
    answer: Any  # the type of its JSON; None: there is no JSON
    media: str = JSON
    status: int = HTTPStatus.OK
    creates: bool = False  # with status 201, if it makes something
    lacks: bool = False  # with status 404, if there is no such file
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    uploads: bool = False
    dry_run: Any = None  # the type of the answer to `?dry_run=true`, with status 200


class Schemas(GenerateJsonSchema):
    """Without the titles that pydantic makes of the names of keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Answers(NamedTuple):
    answer: Any
    media: str = JSON
    status: int = HTTPStatus.OK
    creates: bool = False
    dry_run: Any = None
    lacks: bool = False


@cache
def declared(route: Route) -> Declared | None:
    """None for a route that refuses every call, and for those of agents and directories, whose protocols aren't for
    other programs."""
    if of_agents(route) or of_directories(route) or not isinstance(route.handler, ByName):
        return None
    name = route.handler.name
    found: Any = routes.handler(name)
    taken: dict[str, Any] = {
        "body": found.body if isinstance(found, TakesBody | TakesBoth) else None,
        "query": found.query if isinstance(found, TakesQuery | TakesBoth | TakesFile) else None,
        "uploads": isinstance(found, TakesFile),
    }
    function = found.handler if isinstance(found, TakesBody | TakesBoth | TakesQuery | TakesFile) else found
    hints = typing.get_type_hints(function, localns={"contract": contract}, include_extras=True)
    return Declared(name, inspect.getdoc(function) or "", **answers_of(hints["return"])._asdict(), **taken)


def answers_of(hint: Any) -> Answers:
    """Of a return annotation. A handler that doesn't return JSON with status 200 says beside `Answer` what it does: a
    content type or the type of its JSON, and a status."""
    if hint is Answer:
        raise TypeError("an Answer needs its content type, the type of its JSON, or a status: Annotated[Answer, …]")
    if typing.get_origin(hint) is not Annotated or typing.get_args(hint)[0] is not Answer:
        return Answers(hint)
    said = typing.get_args(hint)[1:]
    status, *others = [each for each in said if isinstance(each, int)] or [HTTPStatus.OK]
    dry_run = next((each.answer for each in said if isinstance(each, DryRun)), None)
    kinds = [each for each in said if not isinstance(each, int | DryRun)]
    if not kinds:
        return Answers(None, NOTHING, status, dry_run=dry_run)
    if isinstance(kinds[0], str):
        return Answers(None, kinds[0], status, lacks=HTTPStatus.NOT_FOUND in others)
    return Answers(kinds[0], status=status, creates=HTTPStatus.CREATED in others, dry_run=dry_run)


def close_types(*, described: bool = False) -> None:
    """A key that a type doesn't have is an error, also in a schema that is made from now on. `described`: the texts
    below keys are read, too."""
    for kind in vars(contract).values():
        if is_typeddict(kind):
            extra = "allow" if kind in AS_SENT else "forbid"
            kind.__pydantic_config__ = {"extra": extra, "strict": True, "use_attribute_docstrings": described}


@cache
def reader(route: Route, status: int) -> TypeAdapter[Any] | None:
    """Reads the JSON that the route may answer with this status; None if it isn't declared."""
    found = declared(route)
    if found is None or (status == found.status and found.media != JSON):
        return None
    if status == HTTPStatus.OK and found.dry_run is not None:
        return _of(found.dry_run if found.status != HTTPStatus.OK else found.dry_run | found.answer)
    if status < HTTPStatus.BAD_REQUEST:
        made = found.creates and status == HTTPStatus.CREATED
        return _of(found.answer) if made or status == found.status else None
    if is_v1(route.path):
        return _of(contract.V1Problem)
    return _of(contract.Denied if status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND) else contract.Failure)


@cache
def _of(kind: Any) -> TypeAdapter[Any]:
    close_types()
    return TypeAdapter(kind)
