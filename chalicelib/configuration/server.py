"""Reads `server/config.yml`, or reports all of its problems together.

The file contains credentials, and messages end up in terminals and logs. So a problem here never repeats a value that
is or may be secret, such as a key pasted in the place of a mapping, or one that YAML reads as a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.configuration.parse import decode, parse_as, parse_placed, type_and_name
from chalicelib.configuration.problems import ELSEWHERE, Marks, Path
from chalicelib.configuration.reading import read
from chalicelib.configuration.server_spec import AnyBackend, ServerConfig, config_model
from chalicelib.domain.specs.reading import Spec
from chalicelib.errors import Invalid, Problem

_SECRET = {"creds", "kubeconfig", "private_key", "keys", "secret", "url"}  # values in or below these are never repeated
_NO_VALUE = {"unknown-key", "duplicate-key", "duplicate", "missing", "exclusive"}  # these name keys only
_MISREAD = {
    "ambiguous-number": ("this would be misread: YAML takes it for a number", "put it in quotes: then it is text"),
    "yaml-tag": ("YAML takes what begins with `!` for a tag", "put the value in quotes"),
}
_OF_CONFIGURATIONS = set(ELSEWHERE.values())  # hints for another kind of file
_BELONGS = {
    "access_key": "it belongs under `creds`, with `type: access_key`",
    "api_key": "it belongs under `creds`, with `type: api_key`",
    "backends": "backends belong to a project: `projects: [{name: main, backends: [...]}]`",
    "credentials": "the key is `creds`",
    "secret_key": "it belongs under `creds`, with `type: access_key`",
    "token": "credentials belong under `creds`",
}


@dataclass(frozen=True)
class ServerFile:
    """A parsed file, and the positions of its keys."""

    config: ServerConfig
    filename: str
    marks: Marks

    def problem(self, path: Path, message: str, hint: str, code: str) -> Problem:
        line, column = self.marks(path)
        return Problem(message, ".".join(map(str, path)), self.filename, line, column, hint, code)


def parse_server(text: str, *, filename: str = "") -> ServerFile:
    """Parse the whole file. Raises Invalid with every problem."""
    try:
        config, marks = parse_placed(ServerConfig, text, filename=filename)
    except Invalid as error:
        redacted = [_redacted(problem) for problem in error.problems]
    else:
        return ServerFile(config, filename, marks)
    raise Invalid(redacted)  # outside the handler, so that the original error with its quotes isn't attached


def parse_backend(text: str, *, filename: str = "") -> Spec:
    """Parse a single backend as YAML. Raises Invalid with every problem."""
    model = config_model(type_and_name(text.encode())[0])
    if model is not None:
        return _redacting(lambda: parse_as(model, text, filename=filename))
    return _redacting(lambda: parse_as(AnyBackend, text, filename=filename).root)


def read_backend(raw: Mapping[str, Any]) -> Spec:
    """Read a single backend from plain data, in which null means unset. Raises Invalid with every problem."""
    model, given = config_model(str(raw.get("type"))), _without_nulls(raw)
    if model is not None:
        return _redacting(lambda: read(model, given))
    return _redacting(lambda: read(AnyBackend, given).root)


def _redacting(reading: Callable[[], Spec]) -> Spec:
    try:
        return reading()
    except Invalid as error:
        redacted = [_redacted(problem) for problem in error.problems]
    raise Invalid(redacted)  # outside the handler, so that the original error with its quotes isn't attached


def _without_nulls(raw: Any) -> Any:
    if isinstance(raw, Mapping):
        return {name: _without_nulls(value) for name, value in raw.items() if value is not None}
    return raw


def parse_server_bytes(raw: bytes, *, filename: str = "") -> ServerFile:
    return parse_server(decode(raw, filename), filename=filename)


def _redacted(problem: Problem) -> Problem:
    if problem.code in _MISREAD:
        message, hint = _MISREAD[problem.code]
        return replace(problem, message=message, hint=hint)
    if problem.code == "unknown-key":
        return replace(problem, hint=_place_of(problem))
    if problem.code in _NO_VALUE:
        return problem
    expected, got, _ = problem.message.partition(", got `")
    if got and (expected in ("expected a mapping", "expected a list") or _in_secret(problem)):
        return replace(problem, message=expected)
    if _in_secret(problem):  # a word similar to a known one may still be a password
        return replace(problem, message=re.sub(r"`.*`", "this", problem.message, flags=re.DOTALL))
    return problem


def _in_secret(problem: Problem) -> bool:
    return not _SECRET.isdisjoint(problem.path.split("."))


def _place_of(problem: Problem) -> str:
    """The hint for an unknown key that belongs elsewhere in this kind of file."""
    if problem.hint.startswith("did you mean"):
        return problem.hint
    key = problem.path.rpartition(".")[2]
    return _BELONGS.get(key, "" if problem.hint in _OF_CONFIGURATIONS else problem.hint)
