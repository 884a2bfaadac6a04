"""Projects and their members."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, DryRun, asks, takes_both
from chalicelib.api.v1 import answers
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.writes import Nothing, WriteQuery, as_sent, changed, created, creates, gone, set_, still, write
from chalicelib.api.wire.v1.people import member_json, project_json, project_path
from chalicelib.domain import keys
from chalicelib.domain.tenants import Member, Project, ProjectRole, User
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.people import projects

if TYPE_CHECKING:
    from chalicelib import contract


class NewProject(RequestBody):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=200)]
    public: bool = False


class ProjectChange(RequestBody):
    model_config = ConfigDict(extra="forbid")

    public: bool | None = None


class Role(RequestBody):
    model_config = ConfigDict(extra="forbid")

    role: ProjectRole


@asks(PageQuery)
def list_all(call: Call, query: PageQuery) -> Annotated[Answer, contract.V1ProjectPage]:
    """Projects that the caller is in, and public ones; for a global admin, all. Newest first."""
    rows = call.narrowed(projects.visible(call.plane.store, call.actor, not_joined=True))
    owners = {view.project.id: view.owner for view in projects.listed(call.plane.store, rows, call.actor)}
    return answers.cut(
        call,
        query,
        rows,
        lambda project: (project.created_at, project.id),
        lambda project: project_json(project, owners[project.id]),
    )


def get(call: Call) -> Annotated[Answer, contract.V1Project]:
    """The project of this name."""
    return answers.resource(call, _shown(call, call.tenant))


@takes_both(NewProject, WriteQuery)
def create(
    call: Call, body: NewProject, query: WriteQuery
) -> Annotated[Answer, contract.V1Project, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Creates a project, whose admin the caller is."""

    def act(plane: Plane, project_id: str) -> Project:
        with as_sent(project_name="name"):
            return projects.create_project(plane, call.actor, body.name, is_public=body.public, new=project_id)

    def made(project_id: str) -> Project:
        found = nouns.find(call.plane.store, Project, keys.project(project_id))
        return still(None if found is None or found.deleted else found, "project")

    def answer(project: Project) -> Answer:
        return created(call, _shown(call, project), project_path(project.name))

    return write(call, query, "create", act, lambda done: answer(done.result or made(done.subject_id)), by_store=True)


@takes_both(ProjectChange, WriteQuery)
def change(
    call: Call, body: ProjectChange, query: WriteQuery
) -> Annotated[Answer, contract.V1Project, DryRun(contract.V1Change)]:
    """Makes a project public or private. What is left out stays as it is."""

    def act(plane: Plane, _: str) -> Project:
        public = call.tenant.is_public if body.public is None else body.public
        return projects.set_public(plane, call.actor, call.tenant, is_public=public)

    return write(
        call,
        query,
        "change",
        act,
        lambda done: changed(call, _shown(call, done.result or call.tenant)),
        by_store=True,
    )


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.NO_CONTENT, DryRun(contract.V1Change)]:
    """Deletes a project in which nothing is any more."""

    def act(plane: Plane, _: str) -> None:
        projects.delete_project(plane, call.actor, call.tenant)

    return write(call, query, "delete", act, gone, by_store=True)


def _shown(call: Call, project: Project) -> contract.V1Project:
    (view,) = projects.listed(call.plane.store, [project], call.actor)
    return project_json(project, view.owner)


# --- members --------------------------------------------------------------------------------------------------------


@asks(PageQuery)
def list_members(call: Call, query: PageQuery) -> Annotated[Answer, contract.V1MemberPage]:
    """Members of the project, the latest first."""
    rows = [*reversed(projects.view(call.plane.store, call.tenant).members)]

    def item(row: tuple[Member, User]) -> contract.V1Member:
        return member_json(row[1].name, row[0].role, call.tenant.name)

    return answers.cut(call, query, rows, lambda row: (row[0].num, row[0].user_id), item)


@takes_both(Role, WriteQuery)
def set_member(
    call: Call, body: Role, query: WriteQuery
) -> Annotated[Answer, contract.V1Member, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Adds a member, or changes the role of one. Anybody may join a public project as a `user`."""
    name = call.params["user_name"]

    def act(plane: Plane, _: str) -> None:
        projects.add_members(plane, call.actor, call.tenant, call.role, {name: body.role})

    shown = member_json(name, body.role, call.tenant.name)
    verb = creates(lambda: projects.member(call.plane.store, call.tenant, name))
    return write(call, query, verb, act, lambda done: set_(call, done, shown), by_store=True)


@takes_both(Nothing, WriteQuery)
def remove_member(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.NO_CONTENT, DryRun(contract.V1Change)]:
    """Removes a member. Anybody may leave."""
    name = call.params["user_name"]

    def act(plane: Plane, _: str) -> None:
        projects.remove_members(plane, call.actor, call.tenant, call.role, [name])

    return write(call, query, "delete", act, gone, by_store=True)
