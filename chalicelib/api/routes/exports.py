"""Exports and imports over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call
from chalicelib.api.wire.exports import export_json, import_json
from chalicelib.errors import Invalid, NotSupported
from chalicelib.usecases.machines import exports
from chalicelib.usecases.machines.exports import ExportChange

Names = Annotated[tuple[Name, ...], Field(max_length=100)]


class CreateExportBody(RequestBody):
    name: Name
    is_global: bool = False
    importer_projects: Names = ()
    exported_fleets: Names = ()
    exported_gateways: Names = ()


class UpdateExportBody(RequestBody):
    name: Name
    set_global: bool = False
    unset_global: bool = False
    add_importer_projects: Names = ()
    remove_importer_projects: Names = ()
    add_exported_fleets: Names = ()
    remove_exported_fleets: Names = ()
    add_exported_gateways: Names = ()
    remove_exported_gateways: Names = ()


class NameBody(RequestBody):
    name: Name


class ImportBody(RequestBody):
    export_name: Name
    export_project_name: Name


def list_exports(call: Call) -> Any:
    return [export_json(each) for each in exports.list_exports(call.plane, call.tenant)]


def create(call: Call) -> Any:
    asked = call.parse(CreateExportBody)
    _no_gateways(asked.exported_gateways)
    wanted = ExportChange(asked.importer_projects, asked.exported_fleets, is_global=asked.is_global)
    return export_json(exports.create(call.plane, call.actor, call.tenant, asked.name, wanted))


def update(call: Call) -> Any:
    asked = call.parse(UpdateExportBody)
    _no_gateways(asked.add_exported_gateways + asked.remove_exported_gateways)
    if asked.set_global and asked.unset_global:
        raise Invalid("`set_global` and `unset_global` exclude each other.", hint="Leave one of them out.")
    wanted = ExportChange(
        asked.add_importer_projects,
        asked.add_exported_fleets,
        asked.remove_importer_projects,
        asked.remove_exported_fleets,
        is_global=True if asked.set_global else False if asked.unset_global else None,
    )
    return export_json(exports.update(call.plane, call.actor, call.tenant, asked.name, wanted))


def delete(call: Call) -> None:
    exports.delete(call.plane, call.actor, call.tenant, call.parse(NameBody).name)


def list_imports(call: Call) -> Any:
    return [import_json(each, call.tenant.id) for each in exports.list_imports(call.plane, call.tenant)]


def delete_import(call: Call) -> None:
    asked = call.parse(ImportBody)
    exports.delete_import(call.plane, call.actor, call.tenant, asked.export_project_name, asked.export_name)


def _no_gateways(named: Sequence[str]) -> None:
    if named:
        raise NotSupported("Gateways can't be shared: each serves its own project.", hint="Name fleets only.")
