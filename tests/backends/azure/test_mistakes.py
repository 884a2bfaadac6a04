"""What goes on costing money on Azure, or is lost: each line that prevents it, and the check that needs it."""

from __future__ import annotations

import pytest

from tests.backends.azure.account import Account
from tests.backends.azure.mistakes import Mistake, made, mistakes
from tests.backends.azure.traps import CHECKS

MISTAKES = mistakes()


def test_there_is_a_mistake_for_most_checks() -> None:
    assert len(MISTAKES) >= 40 and len({each.check for each in MISTAKES}) >= 30


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_noticed(mistake: Mistake) -> None:
    with made(mistake) as (backend, client):
        account = Account(backend, client)
        try:
            CHECKS[mistake.check](account)
        except (NameError, ImportError, SyntaxError):
            raise
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail("nobody noticed")
