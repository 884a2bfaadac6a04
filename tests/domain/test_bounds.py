"""No number crosses a border without bounds: every model that reads files, requests, agents' messages or backends'
answers is walked, so a new field is found the day it is written."""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import chalicelib
from chalicelib.api.requests import RequestBody
from chalicelib.domain.offers import Offer
from chalicelib.domain.ranges import Range
from chalicelib.domain.reports import AgentInput
from chalicelib.domain.specs.reading import Spec
from chalicelib.errors import Throttled

Model = type[BaseModel]

for module in pkgutil.walk_packages(chalicelib.__path__, "chalicelib."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)


def below(model: Model) -> Iterator[Model]:
    for child in model.__subclasses__():
        yield child
        yield from below(child)


BORDERS = sorted(
    {Offer, *below(Spec), *below(RequestBody), *below(AgentInput)}, key=lambda m: (m.__module__, m.__qualname__)
)


class Walk:
    """The numbers of a model that lack a bound, by field."""

    def __init__(self, model: Model) -> None:
        model.model_rebuild()
        self.found: list[str] = []
        self._defs: dict[str, Any] = {}
        self._open: set[str] = set()  # definitions being walked: specs may contain themselves
        self._visit(model.__pydantic_core_schema__, "", frozenset())

    def _visit(self, schema: Mapping[str, Any], path: str, bounds: frozenset[str]) -> None:
        kind = schema["type"]
        bounds |= bounds_of(schema)
        if kind in ("int", "float"):
            wanted = {"low", "high"} | ({"finite"} if kind == "float" else set())
            if wanted - bounds:
                self.found.append(f"{path}: {kind} without {', '.join(sorted(wanted - bounds))}")
        elif kind == "definitions":
            self._defs |= {item["ref"]: item for item in schema["definitions"]}
            self._visit(schema["schema"], path, bounds)
        elif kind == "definition-ref":
            ref = schema["schema_ref"]
            if ref not in self._open:
                self._open.add(ref)
                self._visit(self._defs[ref], path, bounds)
                self._open.discard(ref)
        elif kind == "model" and issubclass(schema["cls"], Range):
            return  # it bounds itself: `test_a_range_has_bounds_that_can_be_counted`
        elif kind == "model-fields":
            for name, field in schema["fields"].items():
                self._visit(field["schema"], f"{path}.{name}".lstrip("."), frozenset())
        else:
            wraps = kind.startswith("function-") or kind in ("nullable", "default")
            for part in parts_of(schema):
                self._visit(part, path, bounds if wraps else frozenset())


def bounds_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """What this level bounds: by the type's own limits, or by a check that follows it."""
    given = set(schema)
    if schema["type"] == "function-after" and isinstance(check := schema["function"]["function"], functools.partial):
        given |= set(check.keywords)
    found = {side for side, names in (("low", {"ge", "gt"}), ("high", {"le", "lt"})) if given & names}
    return frozenset(found | ({"finite"} if schema.get("allow_inf_nan") is False else set()))


def parts_of(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    def within(value: Any) -> Iterator[Mapping[str, Any]]:
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            yield value
        elif isinstance(value, dict):
            for item in value.values():
                yield from within(item)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from within(item)

    for name, value in schema.items():
        if name not in ("type", "cls", "ref", "metadata", "serialization", "function", "default", "config"):
            yield from within(value)


@pytest.mark.slow
def test_every_number_at_a_border_has_bounds() -> None:
    assert {model.__qualname__: found for model in BORDERS if (found := Walk(model).found)} == {}


def test_the_walk_finds_what_has_no_bounds() -> None:
    class Inner(BaseModel):
        size: float

    class Open(BaseModel):
        count: int | None = None
        inner: dict[str, list[Inner]] = {}

    assert Walk(Open).found == ["count: int without high, low", "inner.size: float without finite, high, low"]
    assert len(BORDERS) > 100 and {"RunSpec", "AgentMessage", "PollBody"} <= {model.__name__ for model in BORDERS}


@pytest.mark.parametrize(
    ("given", "bounded"), [(7.5, 7.5), (0, 0), (-1, 5.0), (math.nan, 5.0), (math.inf, 3600.0), (10**30, 3600.0)]
)
def test_a_provider_cant_have_us_wait_for_ever(given: float, bounded: float) -> None:
    assert Throttled("later", retry_after=given).retry_after == bounded


@pytest.mark.parametrize("bound", [10**30, -(10**30), math.inf, math.nan, "9" * 30])
@pytest.mark.parametrize("kind", [Range[int], Range[float]])
def test_a_range_has_bounds_that_can_be_counted(kind: type[Range[Any]], bound: Any) -> None:
    for written in (bound, {"min": bound}, {"max": bound, "min": None}):
        with pytest.raises(ValidationError):
            kind.model_validate(written)
