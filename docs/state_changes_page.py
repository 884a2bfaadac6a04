"""The page on state changes: their keys and their JSON Schema, from the contract."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from chalicelib import contract
from chalicelib.configuration.reference import renewed
from chalicelib.domain.events import EventType
from docs.json_page import Section
from docs.openapi.declared import Schemas, close_types
from docs.openapi.document import as_published

PAGE = Path(__file__).parent / "reference" / "state-changes.md"


def page() -> str:
    """What is between the marks is made anew; the rest of the page stays."""
    close_types(described=True)
    schema = as_published(TypeAdapter(contract.StateChange).json_schema(schema_generator=Schemas))
    types = ", ".join(f"`{each}`" for each in EventType)
    parts = [
        "\n".join(Section(contract.StateChange, {}).lines("StateChange")).rstrip(),
        f"`type` is one of {types}.",
        f"```json\n{json.dumps(schema, indent=2, ensure_ascii=False)}\n```",
    ]
    return renewed(PAGE.read_text(encoding="utf-8"), "\n\n".join(parts))


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")
