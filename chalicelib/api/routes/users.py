"""Users over HTTP. Responses contain a token only for the caller who just created it or authenticated with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.auth import bearer
from chalicelib.api.listing import PageBody, page_of
from chalicelib.api.requests import Name, Names, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.users import user_json, user_with_creds_json
from chalicelib.domain.tenants import GlobalRole, hash_token
from chalicelib.usecases.people import users

if TYPE_CHECKING:
    from chalicelib import contract


class GetUserBody(RequestBody):
    username: Name


class SaveUserBody(RequestBody):
    username: Name
    global_role: GlobalRole
    email: Annotated[str, Field(max_length=320)] | None = None
    active: bool = True


class DeleteUsersBody(RequestBody):
    users: Names


@takes(PageBody)
def list_users(call: Call, body: PageBody) -> list[contract.User] | contract.UserPage:
    own = None if call.token is None or not call.token.projects else [each.id for each in call.token.projects]
    rows = users.list_users(call.plane, call.actor, own)
    key = lambda user: (user.created_at, user.id, user.name)  # noqa: E731
    page, total = page_of(body, rows, key)
    listed = [user_json(user, call.plane.permissions) for user in page]
    return listed if total is None else {"total_count": total, "users": listed}


def get_my_user(call: Call) -> contract.UserWithCreds:
    """The caller, with the token of the call. An access token gets no private key, which opens more than the token."""
    user = call.actor
    key = users.private_key(call.plane, user) if call.token is None else None
    return user_with_creds_json(user, call.plane.permissions, bearer(call.headers), key)


@takes(GetUserBody)
def get_user(call: Call, body: GetUserBody) -> contract.UserWithCreds:
    user = users.own_or_admin(call.plane, call.actor, body.username)
    own = user.id == call.actor.id
    return get_my_user(call) if own else user_with_creds_json(user, call.plane.permissions, "", None)


@takes(SaveUserBody)
def create(call: Call, body: SaveUserBody) -> contract.UserWithCreds:
    user, token = users.create_user(
        call.plane, call.actor, body.username, body.global_role, email=body.email, active=body.active
    )
    return user_with_creds_json(user, call.plane.permissions, token, None)


@takes(SaveUserBody)
def update(call: Call, body: SaveUserBody) -> contract.User:
    user = users.update_user(
        call.plane, call.actor, body.username, body.global_role, email=body.email, active=body.active
    )
    return user_json(user, call.plane.permissions)


@takes(GetUserBody)
def refresh_token(call: Call, body: GetUserBody) -> contract.UserWithCreds:
    """A new token for a user; the old one ends at once."""
    used = hash_token(bearer(call.headers))
    user, token = users.refresh_token(call.plane, call.actor, body.username, used)
    key = users.private_key(call.plane, user) if user.id == call.actor.id else None
    return user_with_creds_json(user, call.plane.permissions, token, key)


@takes(GetUserBody)
def refresh_ssh_key(call: Call, body: GetUserBody) -> contract.UserWithCreds:
    user = users.refresh_ssh_key(call.plane, call.actor, body.username)
    own = user.id == call.actor.id
    key = users.private_key(call.plane, user) if own else None
    return user_with_creds_json(user, call.plane.permissions, bearer(call.headers) if own else "", key)


@takes(DeleteUsersBody)
def delete(call: Call, body: DeleteUsersBody) -> None:
    users.delete_users(call.plane, call.actor, body.users)
