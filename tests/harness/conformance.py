"""What every implementation of a port must do, and the one way not to be asked for it.

A suite derives from `Conformance`; an implementation joins with a subclass that says how to reach it. Nobody opts out
of a case: one that not everybody can pass is marked `needs("multinode")`, after a capability of the facts, and isn't
asked of an implementation whose facts deny that. Any other skip in a suite is a failure (`test_conformance.py`).
"""

from __future__ import annotations

from typing import Any

import pytest


class Denied(pytest.skip.Exception):
    """Not asked: the facts say that it can't. The one skip that REQUIRE_REAL lets pass."""


def needs(*capabilities: str) -> pytest.MarkDecorator:
    """For a case of a suite: it is asked where the facts grant all of these."""
    return pytest.mark.needs(*capabilities)


class Conformance:
    @pytest.fixture
    def facts(self) -> Any:
        """What the implementation says of itself. A suite without facts has no case that could be skipped."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _asked_for_what_it_can(self, request: pytest.FixtureRequest) -> None:
        for mark in request.node.iter_markers("needs"):
            facts = request.getfixturevalue("facts")
            for capability in mark.args:
                if not getattr(facts, capability):
                    raise Denied(f"the facts of {facts.name} deny `{capability}`")
