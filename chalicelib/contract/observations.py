"""What a job wrote, and what it used."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Date, Format


class LogRecord(TypedDict):
    timestamp: Date
    log_source: Literal["stdout"]
    message: Annotated[str, Format("byte")]
    """Base64, because a log is whatever a program wrote."""


class LogPage(TypedDict):
    logs: list[LogRecord]
    external_url: None
    next_token: str | None
    """Of the next page; null at the end."""


class Series(TypedDict):
    """The values that were reported of one name, newest first."""

    name: str
    timestamps: list[Date]
    values: list[float]


class JobMetrics(TypedDict):
    metrics: list[Series]


class OpenedStream(TypedDict):
    """The caller's connection becomes one end of a stream: the status is 101."""

    stream: str
