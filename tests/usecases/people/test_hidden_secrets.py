"""Hidden secrets in a configuration: an update takes them from the stored one, wherever they are."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.specs.secrecy import HIDDEN, filled
from chalicelib.errors import Invalid
from chalicelib.usecases.operator.backends import _refuse_hidden

STORED = {"keys": [{"name": "a", "secret": "1"}, {"name": "b", "secret": "2"}], "token": "t"}


def hidden(*names: str) -> dict[str, Any]:
    return {"keys": [{"name": name, "secret": HIDDEN} for name in names], "token": HIDDEN}


def test_what_is_hidden_in_a_list_is_kept() -> None:
    assert filled(hidden("a", "b"), STORED) == STORED
    assert filled(hidden("b"), STORED)["keys"] == [{"name": "b", "secret": "2"}]
    assert filled(hidden("b", "a"), STORED)["keys"] == STORED["keys"][::-1], "wherever it stands"


def test_which_of_a_list_is_meant_is_not_guessed() -> None:
    found = filled(hidden("a", "c"), STORED)
    assert found["token"] == "t" and found["keys"][0]["secret"] == "1"
    with pytest.raises(Invalid, match="stands for a secret") as raised:
        _refuse_hidden(found)
    assert raised.value.problems[0].path == "keys.1.secret"
    assert filled([HIDDEN], ["one", "two"]) == [HIDDEN]
