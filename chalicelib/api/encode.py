"""Values to JSON, within the size that a Lambda may return.

Stored JSON is spliced in as text (`orjson.Fragment`), never parsed. Only a response that would be too large is parsed
again: first the listed runs lose their env, their archives and all but the beginning of their commands (clients can't
read a task without any), then long values are truncated and old submissions left out. Rows are never dropped, because a
client that pages by rows would not notice: a response that is still too large is refused, with a hint on how to request
less.
"""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.errors import Refused

_OPTIONS = orjson.OPT_NON_STR_KEYS
_KEPT_TEXT, _KEPT_ITEMS, _KEPT_SUBMISSIONS = 200, 20, 10


def encode(value: Any, limit: int) -> bytes:
    text = orjson.dumps(value, option=_OPTIONS)
    if len(text) <= limit:
        return text
    plain = orjson.loads(text)
    for shorten in (_drop_bulk, _cut):
        for row in plain if isinstance(plain, list) else [plain]:
            shorten(row)
        text = orjson.dumps(plain)
        if len(text) <= limit:
            return text
    raise Refused(
        f"The response would have {len(text) / 2**20:.1f} MB; the limit is {limit / 2**20:.1f} MB.",
        hint="Request less at a time: most lists take `limit`, plans take `max_offers`.",
    )


def _specs(row: Any) -> list[dict[str, Any]]:
    """The specs within a run: its own, and one per job."""
    if not isinstance(row, dict):
        return []
    found = [row.get("run_spec"), row.get("effective_run_spec")]
    found += [
        part.get("job_spec") for part in (*row.get("jobs", ()), *row.get("job_plans", ())) if isinstance(part, dict)
    ]
    return [spec for spec in found if isinstance(spec, dict)]


def _drop_bulk(row: Any) -> None:
    for spec in _specs(row):
        for part in (spec, spec.get("configuration")):
            if isinstance(part, dict):
                part.update({name: type(part[name])() for name in ("env", "file_archives") if part.get(name)})
                if part.get("commands"):
                    part["commands"] = [_begun(part["commands"])]


def _begun(commands: list[str]) -> str:
    first = commands[0]
    whole = len(commands) == 1 and len(first) <= _KEPT_TEXT
    return first if whole else f"{first[: _KEPT_TEXT - 1]}…"


def _cut(row: Any) -> None:
    for spec in _specs(row):
        for name, value in spec.items():
            spec[name] = _shorter(value)
    for job in row.get("jobs", ()) if isinstance(row, dict) else ():
        job["job_submissions"] = job.get("job_submissions", [])[-_KEPT_SUBMISSIONS:]


def _shorter(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_KEPT_TEXT]
    if isinstance(value, list):
        return [_shorter(item) for item in value[:_KEPT_ITEMS]]
    if isinstance(value, dict):
        return {name: _shorter(item) for name, item in list(value.items())[: 5 * _KEPT_ITEMS]}
    return value
