"""Projects with their members, users, secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dstack_serverless.api import projects as projects_api
from dstack_serverless.api import secrets as secrets_api
from dstack_serverless.api import users as users_api
from dstack_serverless.sdk.flow import UNSET, Flow, Item, Items
from dstack_serverless.sdk.paging import PAGE, Order, pages
from dstack_serverless.sdk.resource import Mode, Resource, iterated, method

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

PROJECTS = Order(id="project_id")


class Projects(Resource[Mode]):
    """Projects, and who is in them. Methods without a name are about the client's own."""

    @iterated
    def list(self, *, include_not_joined: bool = False, limit: int | None = None) -> Items[contract.Project]:
        """Projects that the caller is in, newest first."""
        named = {"include_not_joined": include_not_joined}
        return Items(pages(self.core, projects_api.list_projects, limit, PROJECTS, **named))

    @method
    def get(self, name: str | None = None) -> Flow[contract.Project]:
        """A project, with its members and backends."""
        return (yield from self.core.ask(projects_api.get(name or self.core.in_project())))

    @method
    def create(self, name: str, *, is_public: bool = False) -> Flow[contract.Project]:
        """Creates a project, whose admin the caller becomes."""
        return (yield from self.core.ask(projects_api.create(project_name=name, is_public=is_public)))

    @method
    def delete(self, *names: str) -> Flow[None]:
        """Deletes projects and all that is in them."""
        yield from self.core.ask(projects_api.delete(projects_names=[*names]))

    @method
    def add_members(
        self, members: Mapping[str, contract.ProjectRole], *, name: str | None = None
    ) -> Flow[contract.Project]:
        """Adds users, or changes the role of members. `members`: roles by user name."""
        wanted: Sequence[bodies.Setting] = [{"username": user, "project_role": role} for user, role in members.items()]
        call = projects_api.add_members(name or self.core.in_project(), members=[*wanted])
        return (yield from self.core.ask(call))

    @method
    def remove_members(self, *users: str, name: str | None = None) -> Flow[contract.Project]:
        """Removes members, by user name."""
        call = projects_api.remove_members(name or self.core.in_project(), usernames=[*users])
        return (yield from self.core.ask(call))


class Users(Resource[Mode]):
    """Users of the server."""

    @method
    def me(self) -> Flow[contract.UserWithCreds]:
        """The user whose token the client has."""
        return (yield from self.core.ask(users_api.get_my_user()))

    @iterated
    def list(self, *, limit: int | None = None) -> Items[contract.User]:
        """Users, newest first; all of them only for global admins."""
        return Items(pages(self.core, users_api.list_users, limit))

    @method
    def get(self, name: str) -> Flow[contract.UserWithCreds]:
        """The user of this name."""
        return (yield from self.core.ask(users_api.get_user(username=name)))

    @method
    def create(
        self, name: str, *, role: contract.GlobalRole = "user", email: str | None = None
    ) -> Flow[contract.UserWithCreds]:
        """Creates a user. The answer has their token, this once."""
        call = users_api.create(username=name, global_role=role, email=email if email is not None else UNSET)
        return (yield from self.core.ask(call))

    @method
    def delete(self, *names: str) -> Flow[None]:
        """Deletes users."""
        yield from self.core.ask(users_api.delete(users=[*names]))


class Secrets(Resource[Mode]):
    """Secrets of the client's project."""

    @method
    def set(self, name: str, value: str) -> Flow[contract.Secret]:
        """Stores a secret, or gives it another value."""
        call = secrets_api.create_or_update(self.core.in_project(), name=name, value=value)
        return (yield from self.core.ask(call))

    @method
    def get(self, name: str) -> Flow[contract.Secret]:
        """The secret, with its value."""
        return (yield from self.core.ask(secrets_api.get(self.core.in_project(), name=name)))

    @iterated
    def list(self) -> Items[contract.Secret]:
        """Secrets by name, without their values."""
        return Items(self._list())

    @method
    def delete(self, *names: str) -> Flow[None]:
        """Deletes secrets."""
        yield from self.core.ask(secrets_api.delete(self.core.in_project(), secrets_names=[*names]))

    def _list(self) -> Flow[None]:
        after = ""
        while True:
            call = secrets_api.list_secrets(self.core.in_project(), after=after, limit=PAGE)
            page = yield from self.core.ask(call)
            for secret in page:
                yield Item(secret)
            if len(page) < PAGE:
                return
            after = page[-1]["name"]
