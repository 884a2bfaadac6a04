"""Every workflow definition, by name."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.planning.hosts import ADD_HOST, REMOVE_HOST
from chalicelib.planning.starting import START_CLUSTER
from chalicelib.planning.workflows import Definition

WORKFLOWS: Mapping[str, Definition] = {
    definition.name: definition for definition in (ADD_HOST, REMOVE_HOST, START_CLUSTER)
}
