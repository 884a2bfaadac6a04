"""What goes on costing money on Azure, or is lost: each line that prevents it, and the check that needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.azure.account import Account
from tests.backends.azure.traps import CHECKS
from tests.backends.mistakes import Mistake, made, mistakes

MISTAKES = mistakes("chalicelib.backends.azure", Path(__file__).with_name("mistakes.toml"))


def test_there_is_a_mistake_for_most_checks() -> None:
    assert len(MISTAKES) >= 40 and len({each.check for each in MISTAKES}) >= 30


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_noticed(mistake: Mistake) -> None:
    with made(mistake) as module:
        account = Account(module("backend").AzureBackend, module("client").AzureClient)
        try:
            CHECKS[mistake.check](account)
        except (NameError, ImportError, SyntaxError):
            raise
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail("nobody noticed")
