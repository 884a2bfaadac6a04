"""Pydantic's errors as problems for people who write configurations.

There is one problem per field. Our own validators provide a code, a sentence and a hint; pydantic's own checks (a
missing key, a wrong type, a bound) get theirs from the table `MESSAGES`. For an unknown key the nearest field of the
model that refused it is suggested; that model is found by following the error's path through the types. The value of a
secret is never repeated.
"""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from pydantic import BaseModel, ValidationError

from chalicelib.configuration.examples import NEEDED, example_of
from chalicelib.domain.noun import Value
from chalicelib.domain.specs.reading import TAG
from chalicelib.domain.specs.secrecy import Confidential, Leaf, secrets_of
from chalicelib.errors import Problem

MAX_PROBLEMS = 200  # a file can have ten thousand, and nobody fixes that many at once
MAX_SENTENCE = 600  # characters, because a quotation from a file could be a megabyte
Path = tuple[str | int, ...]
_ABSENT = object()  # in place of a secret
_UNKNOWN = "unknown-"  # starts the error type of a discriminator with an unknown value; its field follows
Marks = Callable[[Path], tuple[int, int]]  # line and column of the key at a path

# Keys that people write in the wrong place; the hint is given only if the model there has no such field.
ELSEWHERE = {
    "command": "the key is `commands`, a list",
    "commands": "tasks and services have `commands`; a dev environment has `init`",
    "cpu": "it belongs under `resources`",
    "cpus": "write `resources: {cpu: 4..}`",
    "disk": "it belongs under `resources`",
    "gpu": "it belongs under `resources`",
    "gpus": "write `resources: {gpu: 1}`",
    "memory": "it belongs under `resources`",
    "ram": "write `resources: {memory: 16GB..}`",
    "shm_size": "it belongs under `resources`",
    "hosts": "it belongs under `ssh_config`",
    "port": "only a service has one `port`; here it is `ports`, a list",
    "ports": "a service has one `port`",
    "nodes": "only tasks and fleets have `nodes`; a service has `replicas`",
    "replicas": "only services and gateways have `replicas`; a task has `nodes`",
    "docker_image": "the key is `image`",
    "timeout": "the longest a run may take is `max_duration`",
    "environment": "the key is `env`",
    "script": "the key is `commands`, a list",
    "target": "it belongs under `nodes` or `scaling`",
}


def problems_of(
    error: ValidationError, *, model: type[BaseModel] | None = None, marks: Marks | None = None
) -> tuple[Problem, ...]:
    """Every problem of a failed validation, in the file's order if there are `marks`.

    `model` is the model that was validated; by default it is looked up by the error's title.
    """
    root = model or _model_called(error.title)
    found: dict[tuple[str, str], Problem] = {}
    every = (p for entry in error.errors(include_url=False) for p in _entry_problems(dict(entry), root, marks))
    for problem in islice(every, MAX_PROBLEMS):
        field = problem.path.removesuffix(".min").removesuffix(".max")  # `2.5` is both bounds of a range
        found.setdefault((field, problem.message), problem)
    return tuple(sorted(found.values(), key=lambda problem: (problem.line, problem.column)))


def _entry_problems(entry: dict[str, Any], root: type[BaseModel] | None, marks: Marks | None) -> Iterator[Problem]:
    path = tuple(part for part in entry["loc"] if not _is_tag(part))
    kind, context = entry["type"], entry.get("ctx") or {}
    if not isinstance(entry["input"], dict | list) and _is_secret(entry["loc"], root):
        entry["input"] = _ABSENT
    if kind == "too_short" and entry["input"]:
        return  # pydantic counts only a list's valid entries; the invalid ones have their own problems
    if "faults" in context:
        for code, message, hint, at in context["faults"]:
            below = tuple(int(part) if part.isdigit() else part for part in at.split(".")) if at else ()
            yield _problem(message, path + below, hint, code, marks)
        return
    if kind == "extra_forbidden":
        message, hint, code = _stranger(entry["loc"], root)
    elif kind == "model_type" and (short := _short_forms(entry["loc"], root)):
        message, code = _expected(f"something like `{short[0]}`", entry["input"]), "wrong-type"
        hint = f"or like {_listed(short[1:])}" if short[1:] else "or a mapping"
    elif kind == "missing":
        message, hint, code = f"`{path[-1]}` is needed", _example(entry["loc"], root), "missing"
    else:
        message, hint, code = _message(kind, entry, context, path)
        if kind.startswith(_UNKNOWN) and isinstance(entry["input"], dict):
            path = (*path, kind.removeprefix(_UNKNOWN))  # the key that names the type
    yield _problem(message, path, hint, code, marks)


def _problem(message: str, path: Path, hint: str, code: str, marks: Marks | None) -> Problem:
    line, column = marks(path) if marks else (0, 0)
    message, hint = (text if len(text) <= MAX_SENTENCE else f"{text[:MAX_SENTENCE]}…" for text in (message, hint))
    return Problem(message, path=".".join(map(str, path)), line=line, column=column, hint=hint, code=code)


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith(TAG)


# --- pydantic's own findings, in our words ---------------------------------------------------------------------------


def _shown(value: Any) -> str:
    """A value as it would be written in a file, shortened."""
    if value is _ABSENT:
        return "this"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    is_integer = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    text = str(int(value) if is_integer else value)  # some clients' JSON has `0.0` for a written `0`
    return f"`{text}`" if len(text) <= 40 else f"`{text[:37]}...`"


def _expected(what: str, value: Any) -> str:
    return f"expected {what}" if value is _ABSENT else f"expected {what}, got {_shown(value)}"


def _wrong_type(expected: str, hint: str = "") -> Callable[[Any, dict[str, Any]], tuple[str, str, str]]:
    return lambda value, _: (_expected(expected, value), hint, "wrong-type")


def _pair(value: dict[Any, Any]) -> str:
    """A hint for a list entry that YAML reads as a mapping although text was meant: `- echo a: b`."""
    key = str(next(iter(value), ""))
    return f'put text that holds ": " in quotes: `- "{key[:60]}: …"`' if len(value) == 1 else ""


def _text(value: Any, _: dict[str, Any]) -> tuple[str, str, str]:
    quoted = isinstance(value, bool)
    hint = (
        'YAML reads yes, no, on and off as switches: put the text in quotes, "yes"' if quoted else "write it in quotes"
    )
    return _expected("text", value), "" if isinstance(value, dict | list | None) else hint, "wrong-type"


def _choice(value: Any, context: dict[str, Any]) -> tuple[str, str, str]:
    allowed = [part.strip(" '") for part in str(context["expected"]).replace(" or ", ", ").split(",")]
    near = nearest(str(value), allowed)
    one_of = f"one of {_listed(allowed)}" if len(allowed) > 1 else f"it must be `{allowed[0]}`"
    hint = f"did you mean `{near}`?" if near else one_of
    return (
        f"{_shown(value)} isn't possible here" + (f"; {one_of}" if near and len(allowed) <= 8 else ""),
        hint,
        "unknown-value",
    )


def _bound(option: str, key: str) -> Callable[[Any, dict[str, Any]], tuple[str, str, str]]:
    def message_for(value: Any, context: dict[str, Any]) -> tuple[str, str, str]:
        small = key in ("ge", "gt", "min_length")
        limit = context[key]
        shown = f"{limit:g}" if isinstance(limit, float) and abs(limit) < 1e6 else str(limit)
        return (
            f"{_shown(value)} is too {'small' if small else 'large'}",
            f"{option} {shown}",
            "too-small" if small else "too-large",
        )

    return message_for


def _length(value: Any, context: dict[str, Any]) -> tuple[str, str, str]:
    low, high = context.get("min_length"), context.get("max_length")
    what = "characters" if isinstance(value, str) else "entries"
    if low is not None:
        return (
            ("it can't be empty", "remove the key, or fill it", "too-small")
            if low == 1
            else (f"at least {low} {what}", "", "too-small")
        )
    return f"too long: {len(value) if hasattr(value, '__len__') else 'more'} {what}", f"at most {high}", "too-large"


def _pattern(value: Any, context: dict[str, Any]) -> tuple[str, str, str]:
    return (
        f"{_shown(value)} has characters that aren't allowed here",
        f"it must look like `{context['pattern']}`",
        "invalid-value",
    )


_NUMBER = _wrong_type("a whole number")
_LIST = _wrong_type("a list", "write it as a list: `[a, b]`, or one `- entry` a line")
_MAPPING = _wrong_type("a mapping", "write `key: value` pairs")

MESSAGES: dict[str, Callable[[Any, dict[str, Any]], tuple[str, str, str]]] = {
    "string_type": _text,
    "string_sub_type": _text,
    "string_unicode": _wrong_type("text in UTF-8"),
    "string_too_long": _length,
    "string_too_short": _length,
    "string_pattern_mismatch": _pattern,
    "too_long": _length,
    "too_short": _length,
    "int_type": _NUMBER,
    "int_parsing": _NUMBER,
    "int_parsing_size": _NUMBER,
    "int_from_float": _NUMBER,
    "float_type": _wrong_type("a number"),
    "float_parsing": _wrong_type("a number"),
    "finite_number": _wrong_type("a finite number"),
    "bool_type": _wrong_type("true or false"),
    "bool_parsing": _wrong_type("true or false"),
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dataclass_type": _MAPPING,
    "literal_error": _choice,
    "enum": _choice,
    "greater_than": _bound("more than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("less than", "lt"),
    "less_than_equal": _bound("at most", "le"),
}


def _message(kind: str, entry: dict[str, Any], context: dict[str, Any], path: Path) -> tuple[str, str, str]:
    value = entry["input"]
    if kind.startswith(_UNKNOWN):
        return _no_such_type(kind.removeprefix(_UNKNOWN), value, entry["msg"])
    if kind == "value_error":
        return str(context.get("error", entry["msg"])), "", "invalid-value"
    if kind == "string_type" and isinstance(value, dict) and path and isinstance(path[-1], int):
        return _expected("text", value), _pair(value), "wrong-type"
    if message_for := MESSAGES.get(kind):
        return message_for(value, context)
    return f"{_shown(value)} can't be used here", "", "invalid-value"


def _no_such_type(field: str, value: Any, allowed: str) -> tuple[str, str, str]:
    if not isinstance(value, dict):
        return _expected("a mapping", value), f"with `{field}`, {allowed}", "wrong-type"
    given = value.get(field)
    if given is None:
        return f"`{field}` is needed", allowed, "missing"
    near = nearest(
        str(given),
        [
            option
            for option in allowed.replace("`", " ").replace(",", " ").split()
            if option not in ("one", "of", "and", "or")
        ],
    )
    return f"{_shown(given)} isn't a known {field}", f"did you mean `{near}`?" if near else allowed, "unknown-value"


# --- keys that aren't known ------------------------------------------------------------------------------------------


def _stranger(loc: Path, root: type[BaseModel] | None) -> tuple[str, str, str]:
    name = str(loc[-1])
    fields = sorted({field for model in _models_at(loc[:-1], root) for field in model.model_fields})
    near = nearest(name, fields)
    if near is None and name in ELSEWHERE:
        hint = ELSEWHERE[name]
    elif near:
        hint = f"did you mean `{near}`?"
    else:
        hint = f"known here: {_listed(fields)}" if 0 < len(fields) <= 12 else ""
    return f"`{name[:60]}` isn't a known key", hint, "unknown-key"


def nearest(name: str, known: list[str]) -> str | None:
    """The known name that a misspelt one most likely stands for."""
    lowered = {option.lower(): option for option in known}
    tried = name.lower().replace("-", "_")[:80]
    for form in (name.lower(), tried, tried + "s", tried.removesuffix("s")):
        if form in lowered and lowered[form] != name:
            return lowered[form]
    close = difflib.get_close_matches(tried, lowered, n=1, cutoff=0.75 if len(tried) > 3 else 0.6)
    return lowered[close[0]] if close else None


def _models_at(loc: Path, root: type[BaseModel] | None) -> list[type[BaseModel]]:
    """The models whose fields can be at a path. For a union, its arm's tag in the path selects one."""
    models = [root] if root else []
    for part in loc:
        if isinstance(part, int):
            continue
        if part.startswith(TAG):
            models = _arms(part[len(TAG) :], models) or models
        else:
            models = [
                inner
                for model in models
                if part in model.model_fields
                for inner in _models_in(model.model_fields[part].annotation)
            ]
    return models


def _arms(name: str, models: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """The model of that name: a member of a union, or a provider's model, which no annotation names."""
    if found := [model for model in models if model.__name__ == name]:
        return found
    of_provider = _model_called(name)
    return [] if of_provider is None else [of_provider]


def _is_secret(loc: Path, root: type[BaseModel] | None) -> bool:
    """Can there be a secret at a path or below it?"""
    if any(issubclass(model, Confidential) or secrets_of(model) for model in _models_at(loc, root)):
        return True
    return any(isinstance(secrets_of(model).get(str(loc[-1])), Leaf) for model in _models_at(loc[:-1], root) if loc)


def _short_forms(loc: Path, root: type[BaseModel] | None) -> list[str]:
    """Examples of the short forms allowed at a path."""
    forms = [form for model in _models_at(loc, root) for form in getattr(model, "SHORT_FORMS", ())]
    return [str(example) for form in forms for example in form.get("examples", ())]


def _example(loc: Path, root: type[BaseModel] | None) -> str:
    """An example value for a required key."""
    field = str(loc[-1])
    for model in _models_at(loc[:-1], root):
        if (info := model.model_fields.get(field)) is None:
            continue
        if typing.get_origin(info.annotation) is typing.Literal:
            options = [str(option) for option in typing.get_args(info.annotation)]
            return f"one of {_listed(options)}" if len(options) > 1 else f"`{field}: {options[0]}`"
        short = _short_forms(loc, root)
        example = short[0] if short else NEEDED.get(f"{model.__name__}.{field}", example_of(model.__name__, field))
        if example is not None:
            shown = example if isinstance(example, str) else json.dumps(example)
            return f"for example `{field}: {shown}`"
    return ""


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)


def _model_called(title: str) -> type[BaseModel] | None:
    waiting: list[type[BaseModel]] = [Value, *BaseModel.__subclasses__()]
    while waiting:
        model = waiting.pop()
        if model.__name__ == title:
            return model
        waiting.extend(model.__subclasses__())
    return None


def _listed(options: list[str]) -> str:
    return ", ".join(f"`{option}`" for option in options)
