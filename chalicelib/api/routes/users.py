"""Users over HTTP. A token travels up in the header and down only to who just made it or brought it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.auth import bearer
from chalicelib.api.listing import Page, page_of
from chalicelib.api.requests import Name, Request
from chalicelib.api.table import Access, Call, Route
from chalicelib.api.wire.users import user_json, user_with_creds_json
from chalicelib.domain.tenants import GlobalRole
from chalicelib.usecases import users


class Get(Request):
    username: Name


class Save(Request):
    username: Name
    global_role: GlobalRole
    email: Annotated[str, Field(max_length=320)] | None = None
    active: bool = True


class Delete(Request):
    users: list[Name] = Field(max_length=100)


def list_users(call: Call) -> Any:
    rows = users.list_users(call.plane, call.actor)
    key = lambda user: (user.created_at, user.id, user.name)  # noqa: E731
    return page_of(call.parse(Page), rows, key, lambda user: user_json(user, call.plane.permissions), "users")


def get_my_user(call: Call) -> Any:
    user = call.actor
    return user_with_creds_json(user, call.plane.permissions, bearer(call.headers), users.private_key(call.plane, user))


def get_user(call: Call) -> Any:
    user = users.own_or_admin(call.plane, call.actor, call.parse(Get).username)
    own = user.id == call.actor.id
    return get_my_user(call) if own else user_with_creds_json(user, call.plane.permissions, "", None)


def create(call: Call) -> Any:
    asked = call.parse(Save)
    user, token = users.create_user(
        call.plane, call.actor, asked.username, asked.global_role, email=asked.email, active=asked.active
    )
    return user_with_creds_json(user, call.plane.permissions, token, None)


def update(call: Call) -> Any:
    asked = call.parse(Save)
    user = users.update_user(
        call.plane, call.actor, asked.username, asked.global_role, email=asked.email, active=asked.active
    )
    return user_json(user, call.plane.permissions)


def refresh_token(call: Call) -> Any:
    user, token = users.refresh_token(call.plane, call.actor, call.parse(Get).username)
    key = users.private_key(call.plane, user) if user.id == call.actor.id else None
    return user_with_creds_json(user, call.plane.permissions, token, key)


def refresh_ssh_key(call: Call) -> Any:
    user = users.refresh_ssh_key(call.plane, call.actor, call.parse(Get).username)
    own = user.id == call.actor.id
    key = users.private_key(call.plane, user) if own else None
    return user_with_creds_json(user, call.plane.permissions, bearer(call.headers) if own else "", key)


def delete(call: Call) -> None:
    users.delete_users(call.plane, call.actor, call.parse(Delete).users)


ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/users/list", Access.user, list_users),
    Route("POST", "/api/users/get_my_user", Access.user, get_my_user),
    Route("POST", "/api/users/get_user", Access.user, get_user),
    Route("POST", "/api/users/create", Access.admin, create),
    Route("POST", "/api/users/update", Access.admin, update),
    Route("POST", "/api/users/refresh_token", Access.user, refresh_token),
    Route("POST", "/api/users/refresh_ssh_key", Access.user, refresh_ssh_key),
    Route("POST", "/api/users/delete", Access.admin, delete),
)
