"""Users."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Answer, Call, DryRun, asks, takes_both
from chalicelib.api.v1 import answers
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.writes import Nothing, WriteQuery, as_sent, changed, created, gone, still, write
from chalicelib.api.wire.v1.people import caller_json, user_json, user_path
from chalicelib.domain import keys
from chalicelib.domain.tenants import GlobalRole, User
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.people import users

if TYPE_CHECKING:
    from chalicelib import contract


Email = Annotated[str, Field(max_length=320)]


class NewUser(RequestBody):
    model_config = ConfigDict(extra="forbid")

    name: Name
    role: GlobalRole = GlobalRole.user
    email: Email | None = None
    active: bool = True


class UserChange(RequestBody):
    """What is left out stays as it is; an `email` of null removes it."""

    model_config = ConfigDict(extra="forbid")

    role: GlobalRole | None = None
    email: Email | None = None
    active: bool | None = None


@asks(PageQuery)
def list_all(call: Call, query: PageQuery) -> Annotated[Answer, contract.V1UserPage]:
    """All users, for a global admin; for others, themselves and the members of their projects. Newest first."""
    within = None if call.token is None or not call.token.projects else [each.id for each in call.token.projects]
    rows = users.list_users(call.plane, call.actor, within)
    return answers.cut(call, query, rows, lambda user: (user.created_at, user.id), user_json)


def me(call: Call) -> Annotated[Answer, contract.V1Caller]:
    """The caller, and what the access token may do with which they call."""
    return answers.resource(call, caller_json(call.actor, call.token))


def get(call: Call) -> Annotated[Answer, contract.V1User]:
    """The user of this name, for themselves and for global admins."""
    return answers.resource(call, user_json(users.own_or_admin(call.plane, call.actor, call.params["user_name"])))


@takes_both(NewUser, WriteQuery)
def create(
    call: Call, body: NewUser, query: WriteQuery
) -> Annotated[Answer, contract.V1NewUser, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Creates a user with a token."""

    def act(plane: Plane, user_id: str) -> tuple[User, str]:
        with as_sent(username="name"):
            return users.create_user(
                plane, call.actor, body.name, body.role, email=body.email, active=body.active, new=user_id
            )

    def answer(user: User, token: str | None) -> Answer:
        return created(call, {**user_json(user), "token": token}, user_path(user.name))

    def made(user_id: str) -> User:
        return still(nouns.find(call.plane.store, User, keys.user(user_id)), "user")

    return write(
        call,
        query,
        "create",
        act,
        lambda done: answer(*(done.result or (made(done.subject_id), None))),
        by_store=True,
    )


@takes_both(UserChange, WriteQuery)
def change(
    call: Call, body: UserChange, query: WriteQuery
) -> Annotated[Answer, contract.V1User, DryRun(contract.V1Change)]:
    """Changes a user."""
    name = call.params["user_name"]

    def act(plane: Plane, _: str) -> User:
        user = users.named_user(plane.store, name)
        email = body.email if "email" in body.model_fields_set else user.email
        role, active = body.role or user.role, user.active if body.active is None else body.active
        return users.update_user(plane, call.actor, name, role, email=email, active=active)

    def answer(user: User) -> Answer:
        return changed(call, user_json(user))

    return write(
        call,
        query,
        "change",
        act,
        lambda done: answer(done.result or users.named_user(call.plane.store, name)),
        by_store=True,
    )


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.NO_CONTENT, DryRun(contract.V1Change)]:
    """Deletes a user with the tokens and memberships."""
    name = call.params["user_name"]

    def act(plane: Plane, _: str) -> None:
        users.delete_users(plane, call.actor, [name])

    return write(call, query, "delete", act, gone, by_store=True)
