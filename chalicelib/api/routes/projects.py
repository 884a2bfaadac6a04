"""Projects and members over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from chalicelib.api.listing import PageBody, page_of
from chalicelib.api.requests import Name, Names, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.projects import project_json
from chalicelib.domain.tenants import GlobalRole, Project, ProjectRole
from chalicelib.errors import Invalid, NotSupported
from chalicelib.usecases.people import projects
from chalicelib.usecases.people.users import own_or_admin

if TYPE_CHECKING:
    from chalicelib import contract


class ListProjectsBody(PageBody):
    include_not_joined: bool = True
    username: Name | None = None


class CreateProjectBody(RequestBody):
    project_name: str
    is_public: bool = False
    templates_repo: str | None = None


class DeleteProjectsBody(RequestBody):
    projects_names: Names


class Setting(RequestBody):
    username: Name
    project_role: ProjectRole


class Members(RequestBody):
    members: list[Setting] = Field(max_length=100)

    def roles(self) -> dict[str, ProjectRole]:
        found = {setting.username: setting.project_role for setting in self.members}
        if len(found) < len(self.members):
            raise Invalid("A user appears twice among the members.")
        return found


class RemoveBody(RequestBody):
    usernames: Names


class UpdateProjectBody(RequestBody):
    is_public: bool | None = None
    templates_repo: str | None = None
    reset_templates_repo: bool = False


def _seen(call: Call, project: Project) -> contract.Project:
    backends = {account.facts.name: account.regions for account in call.plane.backends.accounts(project.id)}
    return project_json(projects.view(call.plane.store, project), backends, call.plane.permissions)


def get(call: Call) -> contract.Project:
    """A project, with its quota if the caller is in it: visitors of a public project needn't know how busy it is."""
    from chalicelib.api.wire.quotas import quota_json  # it loads jobs, machines and plans, which a list doesn't need
    from chalicelib.usecases.people import quotas

    shown = _seen(call, call.tenant)
    inside = call.role is not None or call.actor.role is GlobalRole.admin
    return {**shown, "quota": quota_json(quotas.view(call.plane, call.tenant))} if inside else shown


@takes(ListProjectsBody)
def list_projects(call: Call, body: ListProjectsBody) -> list[contract.Project] | contract.ProjectPage:
    whose = call.actor if body.username is None else own_or_admin(call.plane, call.actor, body.username)
    rows = call.narrowed(projects.visible(call.plane.store, whose, not_joined=body.include_not_joined))
    key = lambda project: (project.created_at, project.id, project.name)  # noqa: E731
    page, total = page_of(body, rows, key)
    listed = _listed(call, page)
    return listed if total is None else {"total_count": total, "projects": listed}


def list_only_no_fleets(call: Call) -> list[contract.Project]:
    return _listed(call, call.narrowed(projects.without_fleets(call.plane, call.actor)))


def _listed(call: Call, found: Sequence[Project]) -> list[contract.Project]:
    """Projects without members and backends, which clients of this line request for each project: the size of a list
    doesn't depend on the number of members."""
    rows = projects.listed(call.plane.store, found, call.actor)
    return [project_json(each, {}, call.plane.permissions) for each in rows]


@takes(CreateProjectBody)
def create(call: Call, body: CreateProjectBody) -> contract.Project:
    _no_templates(body.templates_repo)
    project = projects.create_project(call.plane, call.actor, body.project_name, is_public=body.is_public)
    return _seen(call, project)


@takes(DeleteProjectsBody)
def delete(call: Call, body: DeleteProjectsBody) -> None:
    projects.delete_projects(call.plane, call.actor, body.projects_names)


@takes(Members)
def set_members(call: Call, body: Members) -> contract.Project:
    projects.set_members(call.plane, call.actor, call.tenant, body.roles())
    return _seen(call, call.tenant)


@takes(Members)
def add_members(call: Call, body: Members) -> contract.Project:
    """Adds members. Anybody may join a public project."""
    projects.add_members(call.plane, call.actor, call.tenant, call.role, body.roles())
    return _seen(call, call.tenant)


@takes(RemoveBody)
def remove_members(call: Call, body: RemoveBody) -> contract.Project:
    """Removes members. Anybody may leave."""
    projects.remove_members(call.plane, call.actor, call.tenant, call.role, body.usernames)
    return _seen(call, call.tenant)


@takes(UpdateProjectBody)
def update(call: Call, body: UpdateProjectBody) -> contract.Project:
    _no_templates(body.templates_repo)
    project = call.tenant
    if body.is_public is not None:
        project = projects.set_public(call.plane, call.actor, project, is_public=body.is_public)
    return _seen(call, project)


def _no_templates(repo: str | None) -> None:
    if repo:
        raise NotSupported("This control plane doesn't support `templates_repo`.", hint="Leave it out.")
