"""The table of workflows."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.planning.workflows import Definition

_DECLARED: tuple[Definition, ...] = ()

WORKFLOWS: Mapping[str, Definition] = {definition.name: definition for definition in _DECLARED}
