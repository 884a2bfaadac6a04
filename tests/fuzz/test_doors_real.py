"""A slice of what `make fuzz` sends through both doors."""

from __future__ import annotations

import pytest

from tests.fuzz.doors import DOORS, play


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_each_request_stays_one_request_and_each_answer_its_askers(name: str) -> None:
    played = play(name, 1, range(250))
    assert [str(find) for find in played.finds] == []
    assert played.requests > 350 and played.reached > 250 and played.answered > 200, str(played)
