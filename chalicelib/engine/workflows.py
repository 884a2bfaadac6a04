"""Every workflow definition, by name."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.planning.kernel.workflows import Definition
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST
from chalicelib.planning.placing.gang_workflow import START_CLUSTER

WORKFLOWS: Mapping[str, Definition] = {
    definition.name: definition for definition in (ADD_HOST, REMOVE_HOST, START_CLUSTER)
}
