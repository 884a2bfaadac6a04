"""Parses a file into a configuration, or reports all of its problems together.

Pure: text in, model out. Whatever the input, only `errors.Invalid` is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from chalicelib.configuration.problems import MAX_PROBLEMS, Marks, Path, nearest, problems_of
from chalicelib.configuration.providers import FROM_FILE, PROVIDERS
from chalicelib.domain.specs.fleets import FleetConfiguration
from chalicelib.domain.specs.gateways import GatewayConfiguration
from chalicelib.domain.specs.presets import PresetConfiguration
from chalicelib.domain.specs.profiles import ProfilesConfig
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration, TaskConfiguration
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.domain.specs.volumes import VolumeConfiguration
from chalicelib.errors import Invalid, Problem

if TYPE_CHECKING:
    from chalicelib.configuration.text import Document

Configuration = (
    DevEnvironmentConfiguration
    | TaskConfiguration
    | ServiceConfiguration
    | FleetConfiguration
    | VolumeConfiguration
    | GatewayConfiguration
    | PresetConfiguration
)
M = TypeVar("M", bound=BaseModel)

TYPES: dict[str, type[Configuration]] = {
    "dev-environment": DevEnvironmentConfiguration,
    "task": TaskConfiguration,
    "service": ServiceConfiguration,
    "fleet": FleetConfiguration,
    "volume": VolumeConfiguration,
    "gateway": GatewayConfiguration,
    "preset": PresetConfiguration,
}


def volume_types() -> dict[str, type[Any]]:
    """The model of a volume, chosen by its `backend`."""
    return {backend: PROVIDERS.model("volume", backend) for backend in PROVIDERS.kinds("volume")}


def parse(text: str, *, filename: str = "") -> Configuration:
    """Parse a `*.dstack.yml` file. Raises Invalid with every problem."""
    document = _document(text, filename)
    model = _model_for(document, filename)
    found: Configuration = _validated(document, model, filename)
    return found


def parse_bytes(raw: bytes, *, filename: str = "") -> Configuration:
    return parse(decode(raw, filename), filename=filename)


def read_written(raw: bytes) -> Document:
    """What a file says, once it is known to be a configuration. Raises Invalid with every problem."""
    document = _document(decode(raw, ""), "")
    _validated(document, _model_for(document, ""), "")
    return document


def located(problem: Problem, path: Path, raw: bytes, *, filename: str = "") -> Problem:
    """A problem found after a file was parsed, with its position there; unchanged if the file has no such key."""
    return placed(problem, path, _document(decode(raw, filename), filename), filename=filename)


def placed(problem: Problem, path: Path, document: Document, *, filename: str = "") -> Problem:
    """The same, for a file that is read already."""
    where = tuple(int(part) if isinstance(part, str) and part.isdecimal() else part for part in path)
    if not document.has(where[0]):
        return problem
    line, column = document.mark(where)
    return replace(problem, file=filename, line=line, column=column)


def parse_rest(raw: bytes, problems: Iterable[Problem]) -> Configuration | None:
    """Parse a file without the keys that have `problems`, to find more; None if the rest isn't a configuration."""
    spoilt = {problem.path.partition(".")[0] for problem in problems}
    if "env" in spoilt:
        spoilt |= {"registry_auth", "probes"}  # they may refer to it
    try:
        document = _document(decode(raw, ""), "")
        model = _model_for(document, "")
        left = {key: value for key, value in document.value.items() if key not in spoilt}
        found: Configuration = model.model_validate(left, context=FROM_FILE)
    except (Invalid, ValidationError):
        return None
    return found


def type_and_name(raw: bytes) -> tuple[str, str]:
    """A file's `type` and `name`, even if other parts are invalid; empty where they are missing."""
    try:
        written = _document(decode(raw, ""), "").value
    except Invalid:
        return "", ""
    kind, name = (written.get(field) if isinstance(written, dict) else None for field in ("type", "name"))
    return (kind if isinstance(kind, str) else ""), (name if isinstance(name, str) else "")


def parse_profiles(text: str, *, filename: str = "") -> ProfilesConfig:
    """Parse a `profiles.yml` file. Raises Invalid with every problem."""
    return parse_as(ProfilesConfig, text, filename=filename)


def parse_as(model: type[M], text: str, *, filename: str = "") -> M:
    """Parse a YAML file as a model. Raises Invalid with every problem."""
    return parse_placed(model, text, filename=filename)[0]


def parse_placed(model: type[M], text: str, *, filename: str = "") -> tuple[M, Marks]:
    """The same, with the positions of its keys for problems found later."""
    document = _document(text, filename)
    return _validated(document, model, filename), document.mark


def decode(raw: bytes, filename: str) -> str:
    """Raises Invalid for a file that is too long. It is enough to read one byte more than `MAX_BYTES`."""
    _bounded(raw, filename)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        hint = "save the file as UTF-8"
        raise _refused("not-utf8", "this byte isn't UTF-8 text", hint, filename, line, column) from None


# --- text to values --------------------------------------------------------------------------------------------------

# Part of the parser's message → our message and hint.
_SYNTAX = (
    ("found a tab", "a tab can't indent", "indent with spaces"),
    ("mapping values are not allowed", "a colon where none can be", 'put text that holds ": " in quotes'),
    ("cannot start any token", "this character can't begin a value", "put the text in quotes"),
    ("found undefined alias", "this alias has no anchor", "write `&name` where the value first stands"),
    ("found duplicate anchor", "this anchor already exists", "give it another name"),
    ("but found another document", "one document a file", "put what follows `---` in a file of its own"),
    ("unexpected end of stream", "quotes that are never closed", "close them"),
    ("expected ',' or", "a bracket that is never closed, or a comma missing", "close it with `]` or `}`"),
    (
        "expected <block end>",
        "this line isn't indented like those above it",
        "give all keys of a mapping the same indent",
    ),
    ("block sequence entries are not allowed", "a `-` where no list can begin", "put the list on lines of its own"),
    ("unknown escape", "a backslash that escapes nothing", "use single quotes, or double the backslash"),
    ("control characters", "a character that text can't hold", "remove it"),
    ("special characters", "a character that text can't hold", "remove it"),
)


_STARTS_AT = re.compile("unexpected end of stream|expected ',' or")


def _document(text: str, filename: str) -> Document:
    import yaml

    from chalicelib.configuration.text import TooLarge, compose

    try:
        _bounded(text.encode(), filename)
    except UnicodeEncodeError as error:
        message, hint = "the text holds half a character", "save the file as UTF-8"
        raise _refused("not-utf8", message, hint, filename, *_place(text[: error.start])) from None
    try:
        return compose(text)
    except TooLarge as error:
        message = f"the file isn't a configuration: {error}"
        raise _refused("too-much", message, error.hint, filename, error.line, error.column) from None
    except yaml.YAMLError as error:
        raise Invalid([_syntax(error, text, filename)]) from None


def _bounded(raw: bytes, filename: str) -> None:
    from chalicelib.configuration.text import MAX_BYTES

    if len(raw) > MAX_BYTES:
        message = f"the file has more than {MAX_BYTES:,} bytes"
        raise _refused("too-much", message, "bring data along with `files`", filename)


def _syntax(error: Any, text: str, filename: str) -> Problem:
    reported = " ".join(
        str(part)
        for part in (getattr(error, "context", ""), getattr(error, "problem", ""), getattr(error, "reason", ""))
    )
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if (without := _without_colon(error, text, reported)) is not None:
        return replace(without, file=filename)
    if mark and _STARTS_AT.search(reported) and error.context_mark and error.context_mark.line != mark.line:
        mark = error.context_mark  # where it begins, not where the parser gave up
    if mark and "cannot start any token" in reported and _character(text, mark) == "\t":
        reported = "found a tab"
    message, hint = "this can't be read as YAML", "check quotes, colons and indentation"
    for part, plain, fix in _SYNTAX:
        if part in reported:
            message, hint = plain, fix
            break
    if mark:
        line, column = mark.line + 1, mark.column + 1
    else:  # an invalid character has only a byte position
        line, column = _place(text.encode()[: getattr(error, "position", 0)].decode(errors="ignore"))
    return Problem(message, file=filename, line=line, column=column, hint=hint, code="yaml-syntax")


def _without_colon(error: Any, text: str, reported: str) -> Problem | None:
    """The problem of a key without a colon, at its own line: the parser reports it at a later one."""
    lines = _BREAK.split(text)
    if "could not find expected ':'" in reported:
        number = error.context_mark.line
    elif "mapping values are not allowed" in reported:  # that line and those above it that have no colon are one text
        number = error.problem_mark.line
        while number and _continues(lines[number - 1], lines[number]):
            number -= 1
        if number == error.problem_mark.line:
            return None
    else:
        return None
    glued = re.match(r"[\s-]*[\w-]+:(?=\S)", lines[number])
    message = "a colon needs a space after it" if glued else "a key without a colon"
    column = (glued.end() if glued else _indent(lines[number])) + 1
    return Problem(message, line=number + 1, column=column, hint="write `key: value`", code="yaml-syntax")


_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # where YAML counts a line


def _continues(line: str, next_line: str) -> bool:
    """Does YAML take two lines of the same indent for one text? It does if the first has no key and no comment."""
    return bool(line.strip()) and _indent(line) == _indent(next_line) and not re.search(r":(\s|$)|#", line)


def _indent(line: str) -> int:
    """Where the text of a line begins: after the `-` of an item."""
    return len(line) - len(line.lstrip(" -"))


def _place(before: str) -> tuple[int, int]:
    """The line and column after a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _character(text: str, mark: Any) -> str:
    lines = text.split("\n", mark.line + 1)
    return lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""


def _refused(code: str, message: str, hint: str, filename: str, line: int = 0, column: int = 0) -> Invalid:
    return Invalid([Problem(message, file=filename, line=line, column=column, hint=hint, code=code)])


# --- values to a model -----------------------------------------------------------------------------------------------


def _model_for(document: Document, filename: str) -> type[Any]:
    """The model of a file, chosen by its `type` and, for a volume, `backend`. If those are wrong, only that is
    reported."""
    value = document.value
    if not isinstance(value, dict):
        what = "empty" if value is None else "a list" if isinstance(value, list) else "only text"
        message = f"a configuration is `key: value` lines; this file is {what}"
        raise _refused("wrong-type", message, "begin with `type: task`", filename, 1, 1)
    kind = _chosen(document, "type", list(TYPES), filename)
    if kind == "volume":
        return PROVIDERS.model("volume", _chosen(document, "backend", PROVIDERS.kinds("volume"), filename))
    return TYPES[kind]


def _chosen(document: Document, field: str, known: Sequence[str], filename: str) -> str:
    given = document.value.get(field)
    if isinstance(given, str) and given in known:
        return given
    listed = ", ".join(f"`{option}`" for option in known)
    line, column = document.mark((field,))
    if given is None:
        problem = Problem(f"`{field}` is needed", field, filename, line, column, f"one of {listed}", "missing")
    else:
        near = nearest(str(given), list(known))
        hint = f"did you mean `{near}`?" if near else f"one of {listed}"
        problem = Problem(
            f"`{str(given)[:40]}` isn't a known {field}", field, filename, line, column, hint, "unknown-value"
        )
    raise Invalid([*(_in_file(found, filename) for _, found in document.problems), problem])


def _validated(document: Document, model: type[M], filename: str) -> M:
    found = [problem for _, problem in document.problems]
    spoilt = {problem.path for problem in found if problem.path}
    try:
        spec = model.model_validate(document.value, context=FROM_FILE)
    except ValidationError as error:
        found += [p for p in problems_of(error, model=model, marks=document.mark) if not _under(p.path, spoilt)]
    else:
        if not found and not document.rounded:
            return spec
        found += _rounded(document, spec.model_dump(mode="json"))
        if not found:
            return spec
    raise Invalid([_in_file(p, filename) for p in sorted(found, key=lambda p: (p.line, p.column))[:MAX_PROBLEMS]])


def _rounded(document: Document, dumped: Any) -> list[Problem]:
    """Problems of numbers that would become a different text than was written: `VERSION: 1.10` would become `1.1`."""
    found = []
    for path, text in document.rounded:
        value = dumped
        for part in path:
            inside = isinstance(value, dict) and part in value
            inside = inside or (isinstance(value, list) and isinstance(part, int) and part < len(value))
            value = value[part] if inside else None
        if value == str(float(text)):
            line, column = document.mark(path)
            message, hint = (
                f"`{text}` would be misread: YAML takes it for the number {value}",
                f'in quotes it is text: "{text}"',
            )
            found.append(Problem(message, ".".join(map(str, path)), "", line, column, hint, "ambiguous-number"))
    return found


def _under(path: str, spoilt: set[str]) -> bool:
    """Was the value here or above already misread? Then consequences aren't reported."""
    return path in spoilt or any(path[:place] in spoilt for place, letter in enumerate(path) if letter == ".")


def _in_file(problem: Problem, filename: str) -> Problem:
    return Problem(problem.message, problem.path, filename, problem.line, problem.column, problem.hint, problem.code)
