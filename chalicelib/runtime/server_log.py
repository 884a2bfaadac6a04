"""The log of `dstack server`: lines for people, or JSON for programs that collect logs."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

import orjson

from chalicelib.domain.access_tokens import FORM
from chalicelib.engine import log_context

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
HIDDEN = "[hidden]"
_TOKENS = re.compile(rf"(?i:(?<=bearer ))[^\s\"'\\]+|{FORM.pattern}")


def set_up_log(level: str, style: str) -> None:
    """Write the log to standard error, from this level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if style == JSON else logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(style == JSON)
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # a traceback for each bad host; we log the outcome


class JsonLines(logging.Formatter):
    """Each record as one line of JSON, with the ids of the request and the units that it is about. What looks like a
    token, in a traceback for instance, is hidden."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shown(record.getMessage()),
            **log_context.ids(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = _shown(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


def _shown(text: str) -> str:
    return _TOKENS.sub(HIDDEN, text.encode(errors="replace").decode())
