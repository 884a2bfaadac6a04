"""The document of a state change is written from a model; its type in the contract has the same keys, and its page is
made from that."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel, TypeAdapter

from chalicelib import contract
from chalicelib.domain import state_changes
from docs import state_changes_page

KINDS: list[tuple[type[BaseModel], Any]] = [
    (state_changes.StateChange, contract.StateChange),
    (state_changes.Subject, contract.Subject),
    (state_changes.Named, contract.Named),
]


@pytest.mark.parametrize(("model", "kind"), KINDS, ids=lambda each: each.__name__)
def test_the_model_and_the_type_have_the_same_keys(model: type[BaseModel], kind: Any) -> None:
    assert list(model.model_fields) == list(get_type_hints(kind))


@pytest.mark.parametrize("filled", [False, True])
def test_a_document_is_one_of_the_contract(filled: bool) -> None:
    some = state_changes.Named(id="5", name="main")
    all_of_it: dict[str, Any] = {"project": some, "actor": some, "before": "a", "after": "b", "reason": "c"}
    more = all_of_it if filled else {}
    change = state_changes.StateChange(
        id="7d0e7a3e-8c0c-4f0e-9a53-0d0a6f3b1c11",
        time="2026-11-21T05:11:20.465869+00:00",
        type="status",
        target=state_changes.Subject(type="run", id="6", name="hello"),
        message="Run hello is running",
        **more,
    )
    document = TypeAdapter(contract.StateChange).validate_json(change.model_dump_json(), strict=True)
    assert document["target"]["name"] == "hello" and (document["project"] is not None) == filled


def test_the_page_is_up_to_date() -> None:
    assert state_changes_page.PAGE.read_text(encoding="utf-8") == state_changes_page.page(), "make docs"
