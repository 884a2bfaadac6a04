"""Configurations as bodies: JSON, or YAML as people write it.

YAML is read as `dstack apply` reads a file: whatever is wrong with it has its line, also if it is found out later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydantic import RootModel

from chalicelib.api.requests import Object
from chalicelib.api.route import Call, TakesBoth
from chalicelib.api.v1.writes import WriteQuery
from chalicelib.errors import Invalid, Problem, WrongQuery

if TYPE_CHECKING:
    from chalicelib.configuration.text import Document

T = TypeVar("T")

YAML = "application/yaml"
_NAMES = (YAML, "application/x-yaml", "text/yaml")


class Written(RootModel[Object]):
    """What a user writes into a `*.dstack.yml`."""


@dataclass(frozen=True)
class TakesConfiguration(TakesBoth[Written, WriteQuery, T]):
    def __call__(self, call: Call) -> T:
        if call.headers.get("content-type", "").partition(";")[0].strip().lower() not in _NAMES:
            return super().__call__(call)
        with read(call.body) as written:
            return self.handler(call, Written.model_validate(written), call.asked(self.query))


def takes_configuration(handler: Callable[[Call, Written, WriteQuery], T]) -> TakesConfiguration[T]:
    """The handler gets the request's configuration, and how to write it."""
    return TakesConfiguration(handler, Written, WriteQuery)


@contextmanager
def read(text: bytes) -> Iterator[Object]:
    """The configuration in a text. What is found wrong with it within has the line."""
    from chalicelib.configuration.parse import read_written  # which loads the YAML library

    document = read_written(text)
    with _located(document):
        yield document.value


@contextmanager
def _located(document: Document) -> Iterator[None]:
    try:
        yield
    except WrongQuery:
        raise
    except Invalid as wrong:
        raise Invalid([_placed(problem, document) for problem in wrong.problems], hint=wrong.hint) from None


def _placed(problem: Problem, document: Document) -> Problem:
    from chalicelib.configuration.parse import placed

    path = tuple(problem.path.removeprefix("configuration.").split("."))
    return problem if problem.line else placed(problem, path, document)
