"""Exports and imports on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.usecases.machines.exports import ExportView

if TYPE_CHECKING:
    from chalicelib import contract


def export_json(seen: ExportView) -> contract.Export:
    return {
        "id": seen.export.id,
        "name": seen.export.name,
        "is_global": seen.export.is_global,
        "imports": [{"project_name": project.name} for project in seen.importers],
        "exported_fleets": _fleets(seen),
        "exported_gateways": [],
    }


def import_json(seen: ExportView, project_id: str) -> contract.Import:
    return {
        "id": seen.export.import_id(project_id),
        "export": {
            "id": seen.export.id,
            "name": seen.export.name,
            "project_name": seen.export.project_name,
            "exported_fleets": _fleets(seen),
            "exported_gateways": [],
        },
    }


def _fleets(seen: ExportView) -> list[contract.FleetReference]:
    return [{"id": fleet.id, "name": fleet.name} for fleet in seen.fleets]
