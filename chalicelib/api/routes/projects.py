"""Projects and members over HTTP."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from chalicelib.api.listing import Page, page_of
from chalicelib.api.requests import Name, Request
from chalicelib.api.table import Access, Call, Route
from chalicelib.api.wire.projects import project_json
from chalicelib.domain.tenants import Project, ProjectRole
from chalicelib.errors import Invalid, NotSupported
from chalicelib.usecases import projects
from chalicelib.usecases.users import own_or_admin


class List(Page):
    include_not_joined: bool = True
    username: Name | None = None


class Create(Request):
    project_name: str
    is_public: bool = False
    templates_repo: str | None = None


class Delete(Request):
    projects_names: list[Name] = Field(max_length=100)


class Setting(Request):
    username: Name
    project_role: ProjectRole


class Members(Request):
    members: list[Setting] = Field(max_length=100)

    def roles(self) -> dict[str, ProjectRole]:
        found = {setting.username: setting.project_role for setting in self.members}
        if len(found) < len(self.members):
            raise Invalid("A user is named twice among the members.")
        return found


class Remove(Request):
    usernames: list[Name] = Field(max_length=100)


class Update(Request):
    is_public: bool | None = None
    templates_repo: str | None = None
    reset_templates_repo: bool = False


def _seen(call: Call, project: Project) -> dict[str, Any]:
    return project_json(projects.view(call.plane.store, project), call.plane.facts, call.plane.permissions)


def get(call: Call) -> Any:
    return _seen(call, call.tenant)


def list_projects(call: Call) -> Any:
    asked = call.parse(List)
    whose = call.actor if asked.username is None else own_or_admin(call.plane, call.actor, asked.username)
    rows = projects.visible(call.plane.store, whose, not_joined=asked.include_not_joined)
    key = lambda project: (project.created_at, project.id, project.name)  # noqa: E731
    return page_of(asked, rows, key, lambda project: _seen(call, project), "projects")


def list_only_no_fleets(call: Call) -> Any:
    return [_seen(call, project) for project in projects.without_fleets(call.plane.store, call.actor)]


def create(call: Call) -> Any:
    asked = call.parse(Create)
    _no_templates(asked.templates_repo)
    made = projects.create_project(call.plane, call.actor, asked.project_name, is_public=asked.is_public)
    return _seen(call, made)


def delete(call: Call) -> None:
    projects.delete_projects(call.plane, call.actor, call.parse(Delete).projects_names)


def set_members(call: Call) -> Any:
    projects.set_members(call.plane, call.actor, call.tenant, call.parse(Members).roles())
    return _seen(call, call.tenant)


def add_members(call: Call) -> Any:
    projects.add_members(call.plane, call.actor, call.tenant, call.role, call.parse(Members).roles())
    return _seen(call, call.tenant)


def remove_members(call: Call) -> Any:
    projects.remove_members(call.plane, call.actor, call.tenant, call.role, call.parse(Remove).usernames)
    return _seen(call, call.tenant)


def update(call: Call) -> Any:
    asked = call.parse(Update)
    _no_templates(asked.templates_repo)
    project = call.tenant
    if asked.is_public is not None:
        project = projects.set_public(call.plane, call.actor, project, is_public=asked.is_public)
    return _seen(call, project)


def _no_templates(repo: str | None) -> None:
    if repo:
        raise NotSupported("This control plane doesn't support `templates_repo`.", hint="Leave it out.")


_PROJECT = "/api/projects/{project_name}"

ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/projects/list", Access.user, list_projects),
    Route("POST", "/api/projects/list_only_no_fleets", Access.user, list_only_no_fleets),
    Route("POST", "/api/projects/create", Access.user, create),
    Route("POST", "/api/projects/delete", Access.user, delete),  # an admin of each, which the use case checks
    Route("POST", f"{_PROJECT}/get", Access.visitor, get),
    Route("POST", f"{_PROJECT}/set_members", Access.project_admin, set_members),
    Route("POST", f"{_PROJECT}/add_members", Access.visitor, add_members),  # anybody may join a public project
    Route("POST", f"{_PROJECT}/remove_members", Access.member, remove_members),  # anybody may leave
    Route("POST", f"{_PROJECT}/update", Access.project_admin, update),
)
