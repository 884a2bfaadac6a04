"""Users over HTTP. Responses contain a token only for the caller who just created it or authenticated with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.auth import bearer
from chalicelib.api.listing import PageBody, page_of
from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call
from chalicelib.api.wire.users import user_json, user_with_creds_json
from chalicelib.domain.tenants import GlobalRole, hash_token
from chalicelib.usecases.people import users


class GetUserBody(RequestBody):
    username: Name


class SaveUserBody(RequestBody):
    username: Name
    global_role: GlobalRole
    email: Annotated[str, Field(max_length=320)] | None = None
    active: bool = True


class DeleteUsersBody(RequestBody):
    users: list[Name] = Field(max_length=100)


def list_users(call: Call) -> Any:
    rows = users.list_users(call.plane, call.actor)
    key = lambda user: (user.created_at, user.id, user.name)  # noqa: E731
    write = lambda page: [user_json(user, call.plane.permissions) for user in page]  # noqa: E731
    return page_of(call.parse(PageBody), rows, key, write, "users")


def get_my_user(call: Call) -> Any:
    user = call.actor
    return user_with_creds_json(user, call.plane.permissions, bearer(call.headers), users.private_key(call.plane, user))


def get_user(call: Call) -> Any:
    user = users.own_or_admin(call.plane, call.actor, call.parse(GetUserBody).username)
    own = user.id == call.actor.id
    return get_my_user(call) if own else user_with_creds_json(user, call.plane.permissions, "", None)


def create(call: Call) -> Any:
    body = call.parse(SaveUserBody)
    user, token = users.create_user(
        call.plane, call.actor, body.username, body.global_role, email=body.email, active=body.active
    )
    return user_with_creds_json(user, call.plane.permissions, token, None)


def update(call: Call) -> Any:
    body = call.parse(SaveUserBody)
    user = users.update_user(
        call.plane, call.actor, body.username, body.global_role, email=body.email, active=body.active
    )
    return user_json(user, call.plane.permissions)


def refresh_token(call: Call) -> Any:
    used = hash_token(bearer(call.headers))
    user, token = users.refresh_token(call.plane, call.actor, call.parse(GetUserBody).username, used)
    key = users.private_key(call.plane, user) if user.id == call.actor.id else None
    return user_with_creds_json(user, call.plane.permissions, token, key)


def refresh_ssh_key(call: Call) -> Any:
    user = users.refresh_ssh_key(call.plane, call.actor, call.parse(GetUserBody).username)
    own = user.id == call.actor.id
    key = users.private_key(call.plane, user) if own else None
    return user_with_creds_json(user, call.plane.permissions, bearer(call.headers) if own else "", key)


def delete(call: Call) -> None:
    users.delete_users(call.plane, call.actor, call.parse(DeleteUsersBody).users)
