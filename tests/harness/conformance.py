"""What every implementation of a port must do, and the only way to be excused.

A suite derives from `Conformance`; an implementation joins with a subclass that says how to reach it. Nobody opts out
of a case: one that not everybody can pass is marked `needs("multinode")`, after a capability of the facts, and skipped
for an implementation whose facts deny that. Any other skip in a suite is a failure (`test_conformance.py`).
"""

from __future__ import annotations

from typing import Any

import pytest


class Denied(pytest.skip.Exception):  # type: ignore[name-defined,misc]  # pytest declares it without a type
    """Skipped because the facts deny it. The only skip that REQUIRE_REAL allows."""


def needs(*capabilities: str) -> pytest.MarkDecorator:
    """For a case of a suite: it runs if the facts grant all of these."""
    return pytest.mark.needs(*capabilities)


class Conformance:
    @pytest.fixture
    def facts(self) -> Any:
        """What the implementation can do. A suite without facts has no case that could be skipped."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _skip_what_it_lacks(self, request: pytest.FixtureRequest) -> None:
        for mark in request.node.iter_markers("needs"):
            facts = request.getfixturevalue("facts")
            for capability in mark.args:
                if not getattr(facts, capability):
                    raise Denied(f"the facts of {facts.name} deny `{capability}`")
