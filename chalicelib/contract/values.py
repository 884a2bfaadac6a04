"""Values of many types: ids, dates, documents whose keys are described elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

Schema = dict[str, Any]


@dataclass(frozen=True)
class Format:
    """What a text is, in the words of JSON Schema. For readers: nothing checks it."""

    name: str

    def __get_pydantic_json_schema__(self, core: Any, describe: Callable[[Any], Schema]) -> Schema:
        return {**describe(core), "format": self.name}


Id = Annotated[str, Format("uuid")]
Date = Annotated[str, Format("date-time")]
"""ISO 8601 with its zone: `2026-11-21T05:11:20.465869+00:00`."""

Configuration = dict[str, Any]
"""What a user writes into a `*.dstack.yml`; the reference of configurations describes it."""

GlobalRole = Literal["admin", "user"]
ProjectRole = Literal["admin", "manager", "user"]
PlanAction = Literal["create", "update"]
