"""Records as lines of text, for whatever carries them out of one store and into another.

A line is a JSON array with a fixed order, and knows nothing of the store that it came from. Bodies are JSON already, so
a line can be read by anybody who has it.
"""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Refused
from chalicelib.store.port import Record


def line_of(record: Record) -> bytes:
    """The record as one line, with its end."""
    due = None if record.due is None else list(record.due)
    entries = [None if entry is None else list(entry) for entry in (record.gsi1, record.gsi2)]
    fields = [*record.key, record.version, record.body.decode(), *entries, due, record.expires_at]
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def record_of(line: bytes) -> Record:
    """The record that `line_of` wrote. Raises Refused for anything else."""
    try:
        pk, sk, version, body, gsi1, gsi2, due, expires_at = orjson.loads(line)
        when = None if due is None else Due(*due)
        return Record(Key(pk, sk), version, body.encode(), _entry(gsi1), _entry(gsi2), when, expires_at)
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(
            f"This isn't the line of a record: {line[:60]!r}.", hint="It may be of a newer version of this program."
        ) from error


def _entry(found: Any) -> tuple[str, str] | None:
    return None if found is None else (found[0], found[1])
