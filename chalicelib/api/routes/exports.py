"""Exports and imports over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.exports import export_json, import_json
from chalicelib.errors import Invalid, NotSupported
from chalicelib.usecases.machines import exports
from chalicelib.usecases.machines.exports import ExportChange

if TYPE_CHECKING:
    from chalicelib import contract

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


def list_exports(call: Call) -> list[contract.Export]:
    return [export_json(each) for each in exports.list_exports(call.plane, call.tenant)]


@takes(CreateExportBody)
def create(call: Call, body: CreateExportBody) -> contract.Export:
    """Shares fleets with other projects."""
    _no_gateways(body.exported_gateways)
    wanted = ExportChange(body.importer_projects, body.exported_fleets, is_global=body.is_global)
    return export_json(exports.create(call.plane, call.actor, call.tenant, body.name, wanted, call.token))


@takes(UpdateExportBody)
def update(call: Call, body: UpdateExportBody) -> contract.Export:
    _no_gateways(body.add_exported_gateways + body.remove_exported_gateways)
    if body.set_global and body.unset_global:
        raise Invalid("`set_global` and `unset_global` exclude each other.", hint="Leave one of them out.")
    wanted = ExportChange(
        body.add_importer_projects,
        body.add_exported_fleets,
        body.remove_importer_projects,
        body.remove_exported_fleets,
        is_global=True if body.set_global else False if body.unset_global else None,
    )
    return export_json(exports.update(call.plane, call.actor, call.tenant, body.name, wanted, call.token))


@takes(NameBody)
def delete(call: Call, body: NameBody) -> None:
    exports.delete(call.plane, call.actor, call.tenant, body.name)


def list_imports(call: Call) -> list[contract.Import]:
    return [import_json(each, call.tenant.id) for each in exports.list_imports(call.plane, call.tenant)]


@takes(ImportBody)
def delete_import(call: Call, body: ImportBody) -> None:
    exports.delete_import(call.plane, call.actor, call.tenant, body.export_project_name, body.export_name)


def _no_gateways(named: Sequence[str]) -> None:
    if named:
        raise NotSupported("Gateways can't be shared: each serves its own project.", hint="Name fleets only.")
