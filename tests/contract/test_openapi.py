"""The OpenAPI document says what the code says; its examples are what the API answers, and keep their schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from docs.openapi.document import DOCUMENT, text
from docs.openapi.examples import RECORDED
from tests.contract.scenario import recorded
from tests.harness import golden

MOST = 400_000  # bytes


@pytest.mark.slow
def test_the_examples_are_what_the_api_answers(tmp_path: Path) -> None:
    golden.check(RECORDED, orjson.dumps(recorded(tmp_path), option=orjson.OPT_INDENT_2).decode() + "\n")


@pytest.mark.slow
def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text(), "make docs"
    assert len(DOCUMENT.read_bytes()) <= MOST


def operations() -> dict[str, Any]:
    paths = orjson.loads(DOCUMENT.read_bytes())["paths"].values()
    found = [operation for path in paths for operation in path.values()]
    assert len({operation["operationId"] for operation in found}) == len(found), "generated clients are made of these"
    return {operation["operationId"]: operation for operation in found}


@pytest.mark.slow
def test_what_isnt_plain_json_is_described_as_it_is_answered() -> None:
    """Found by `python -m tests.fuzz.schema`."""
    found = operations()
    for name, media in (
        ("documents_schema", "application/schema+json"),
        ("documents_openapi", "application/vnd.oai.openapi+json;version=3.1"),
    ):
        assert found[name]["responses"]["200"]["content"][media]["schema"] == {"type": "object"}
    files = [operation for name, operation in found.items() if name.startswith("console_file")]
    assert files and all("404" in operation["responses"] for operation in files)


@pytest.mark.slow
def test_examples_keep_their_schemas() -> None:
    whole = orjson.loads(DOCUMENT.read_bytes())
    seen = 0
    for name, operation in operations().items():
        for content in (operation.get("requestBody"), operation["responses"].get("200")):
            media = (content or {}).get("content", {}).get("application/json", {})
            if "example" in media:
                schema = {**media["schema"], "components": whole["components"]}
                problems = [error.message for error in Draft202012Validator(schema).iter_errors(media["example"])]
                assert problems == [], name
                seen += 1
    assert seen > 100
