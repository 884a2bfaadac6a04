"""Values to JSON, within the size that a Lambda may return.

Stored JSON is spliced in as text (`orjson.Fragment`), never parsed. Only a response that would be too large is opened,
one spec at a time: first the listed runs lose their env, their archives and all but the beginning of their commands
(clients can't parse a task without commands), then long values are truncated and old submissions left out. Rows are
never dropped, as a client that pages by rows would not notice: a response that is still too large is refused, with a
hint on how to request less. What is too large never exists as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from chalicelib.errors import Refused

_OPTIONS = orjson.OPT_NON_STR_KEYS
_SHORT_TEXT, _SHORT_LIST, _FEW_SUBMISSIONS = 200, 20, 10
_SPECS, _PARTS = ("run_spec", "effective_run_spec"), ("jobs", "job_plans")
_AT_ONCE = 8  # parts of a row that are encoded together

Spec = dict[str, Any]


def encode(value: Any, limit: int) -> bytes:
    text = _within(value, limit)
    for shorten, submissions in ((_drop_bulk, None), (_cut, _FEW_SUBMISSIONS)):
        if text is not None:
            break
        value = _shortened(value, shorten, submissions)
        text = _within(value, limit)
    if text is None:
        raise Refused(
            f"The response would have more than {limit / 2**20:.1f} MB, the limit.",
            hint="Request less at a time: most lists take `limit`, plans take `max_offers`.",
        )
    return text


def _within(value: Any, room: int) -> bytes | None:
    """The JSON, or None if it has more than `room` bytes. Rows are encoded one by one, until there is no room."""
    if isinstance(value, list):
        return _joined(b"[]", ((b"", row) for row in value), room)
    if isinstance(value, dict) and any(len(value.get(name) or ()) > _AT_ONCE for name in _PARTS):
        return _joined(b"{}", ((orjson.dumps(str(name)) + b":", part) for name, part in value.items()), room)
    text = orjson.dumps(value, option=_OPTIONS)
    return text if len(text) <= room else None


def _joined(brackets: bytes, parts: Iterable[tuple[bytes, Any]], room: int) -> bytes | None:
    texts: list[bytes] = []
    room -= 2
    for name, part in parts:
        text = _within(part, room - len(name))
        if text is None:
            return None
        texts.append(name + text)
        room -= len(texts[-1]) + 1
    return brackets[:1] + b",".join(texts) + brackets[1:] if room >= -1 else None


def _shortened(value: Any, shorten: Callable[[Spec], Spec], submissions: int | None) -> Any:
    """A copy with shorter specs: those of runs, alone or in a list, and those of their jobs."""
    if isinstance(value, list):
        return [_shortened(row, shorten, submissions) for row in value]
    if not isinstance(value, dict):
        return value
    copy = dict(value)
    for name in _SPECS:
        if name in copy:
            copy[name] = _opened(copy[name], shorten)
    for name in _PARTS:
        if name in copy:
            copy[name] = [_shortened(part, shorten, submissions) for part in copy[name]]
    if "job_spec" in copy:
        copy["job_spec"] = _opened(copy["job_spec"], shorten)
    if "job_submissions" in copy and submissions is not None:
        copy["job_submissions"] = copy["job_submissions"][-submissions:]
    if "current_resource" in copy:
        copy["current_resource"] = _shortened(copy["current_resource"], shorten, submissions)
    return copy


def _opened(spec: Any, shorten: Callable[[Spec], Spec]) -> Any:
    plain = orjson.loads(orjson.dumps(spec, option=_OPTIONS))
    return shorten(plain) if isinstance(plain, dict) else plain


def _drop_bulk(spec: Spec) -> Spec:
    for part in (spec, spec.get("configuration")):
        if isinstance(part, dict):
            part.update({name: type(part[name])() for name in ("env", "file_archives") if part.get(name)})
            if part.get("commands"):
                part["commands"] = [_begun(part["commands"])]
    return spec


def _begun(commands: list[str]) -> str:
    first = commands[0]
    is_short = len(commands) == 1 and len(first) <= _SHORT_TEXT
    return first if is_short else f"{first[: _SHORT_TEXT - 1]}…"


def _cut(spec: Spec) -> Spec:
    return {name: _shorter(value) for name, value in spec.items()}


def _shorter(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_SHORT_TEXT]
    if isinstance(value, list):
        return [_shorter(item) for item in value[:_SHORT_LIST]]
    if isinstance(value, dict):
        return {name: _shorter(item) for name, item in list(value.items())[: 5 * _SHORT_LIST]}
    return value
