"""Routes. Every route of the API is one row: method, path, who may call it, and the handler.

The rows are data, so one generated test tries every role and tenant against every route, and one loop mounts them.
A handler says what it takes with a decorator, and what it answers in its return type: the OpenAPI document is made from
these, and the tests hold every answer to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from chalicelib.domain.access_tokens import AccessToken, Verb
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.errors import Invalid, WrongQuery
from chalicelib.usecases.context import Plane

if TYPE_CHECKING:
    from chalicelib.api.multipart import UploadedFile

B = TypeVar("B", bound=BaseModel)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class Access(StrEnum):
    """Who may call a route; each includes the stronger ones (a global admin may call all but the last two)."""

    public = "public"  # no token
    user = "user"  # any active user
    admin = "admin"  # global admin
    visitor = "visitor"  # any role in {project_name}; any active user if it is public
    member = "member"  # any role in {project_name}
    manager = "manager"  # manager or admin of {project_name}
    project_admin = "project_admin"
    keeper = "keeper"  # project_admin; also manager if the installation lets managers manage secrets
    directory = "directory"  # a directory with its SCIM token, and nobody else
    agent = "agent"  # an instance's credential; the handler checks it


@dataclass(frozen=True)
class Call:
    """One authorised request."""

    plane: Plane
    params: Mapping[str, str] = field(default_factory=dict)  # of the path
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    user: User | None = None  # None for public and agent routes
    project: Project | None = None  # set if the path has {project_name}
    role: ProjectRole | None = None  # the user's role there; None for a global admin who isn't a member
    token: AccessToken | None = None  # with which the user calls, unless it is their own token or a sign-on's
    method: str = ""
    path: str = ""

    @property
    def actor(self) -> User:
        assert self.user is not None, "a route without a user asked for one"
        return self.user

    @property
    def tenant(self) -> Project:
        assert self.project is not None, "a route without a project asked for one"
        return self.project

    def may(self, verb: Verb) -> bool:
        """Does the caller's access token, if it is one, have this verb?"""
        return self.token is None or verb in self.token.verbs

    def narrowed(self, projects: Iterable[Project]) -> list[Project]:
        """Those of them that the caller's access token, if it is one, is for."""
        return [project for project in projects if self.token is None or self.token.includes(project.id)]

    def parse(self, model: type[M]) -> M:
        """The JSON body as `model`; an absent body is `{}`. Raises Invalid with every problem, by field."""
        from chalicelib.api.bodies import parse_body

        return parse_body(self.body, model)

    def asked(self, model: type[M]) -> M:
        """The parameters of the query as `model`. Raises WrongQuery with every problem, by parameter."""
        from chalicelib.configuration.reading import read

        try:
            return read(model, dict(self.query))
        except Invalid as wrong:
            raise WrongQuery(wrong.problems) from None


@dataclass(frozen=True)
class Settling:
    """A resource that changes by itself until it is settled: `Prefer: wait` waits for that."""

    noun: str  # as its changes are announced: `run/<id>`
    path: str  # the resource's


@dataclass(frozen=True)
class Answer:
    """A reply that isn't just JSON with status 200. `body` is bytes already encoded."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    settling: Settling | None = None  # None: it is settled, or never changes by itself
    heard: tuple[str, ...] = ()  # what an open stream of such answers waits for, as it is announced


@dataclass(frozen=True)
class DryRun:
    """In the annotation of a handler's answer: the type of what it answers to `?dry_run=true`."""

    answer: Any


Handler = Callable[[Call], Any]  # a JSON-able value (orjson, with Fragments), or an Answer


@dataclass(frozen=True)
class TakesBody(Generic[M, T]):
    handler: Callable[[Call, M], T]
    body: type[M]

    def __call__(self, call: Call) -> T:
        return self.handler(call, call.parse(self.body))


@dataclass(frozen=True)
class TakesQuery(Generic[M, T]):
    handler: Callable[[Call, M], T]
    query: type[M]

    def __call__(self, call: Call) -> T:
        return self.handler(call, call.asked(self.query))


@dataclass(frozen=True)
class TakesBoth(Generic[B, M, T]):
    handler: Callable[[Call, B, M], T]
    body: type[B]
    query: type[M]

    def __call__(self, call: Call) -> T:
        return self.handler(call, call.parse(self.body), call.asked(self.query))


@dataclass(frozen=True)
class TakesFile(Generic[M, T]):
    handler: Callable[[Call, M, UploadedFile], T]
    query: type[M]

    def __call__(self, call: Call) -> T:
        from chalicelib.api.multipart import uploaded_file

        query = call.asked(self.query)
        return self.handler(call, query, uploaded_file(call.headers.get("content-type", ""), call.body))


def takes(body: type[M]) -> Callable[[Callable[[Call, M], T]], TakesBody[M, T]]:
    """The handler gets the request's JSON body, read as `body`."""
    return lambda handler: TakesBody(handler, body)


def asks(query: type[M]) -> Callable[[Callable[[Call, M], T]], TakesQuery[M, T]]:
    """The handler gets the parameters of the query, read as `query`."""
    return lambda handler: TakesQuery(handler, query)


def takes_both(body: type[B], query: type[M]) -> Callable[[Callable[[Call, B, M], T]], TakesBoth[B, M, T]]:
    """The handler gets both: the body, and then the query."""
    return lambda handler: TakesBoth(handler, body, query)


def takes_file(query: type[M]) -> Callable[[Callable[[Call, M, UploadedFile], T]], TakesFile[M, T]]:
    """Likewise, and then the file that was uploaded as multipart/form-data."""
    return lambda handler: TakesFile(handler, query)


@dataclass(frozen=True)
class Route:
    method: str
    path: str  # Chalice syntax: /api/project/{project_name}/runs/get
    access: Access
    handler: Handler
    verb: Verb | None = None  # what an access token needs; None: none is enough
    narrowed: bool = False  # without a project in its path, and yet for tokens for some projects, whose only it shows
    ends_project: bool = False  # a repetition finds no project at its path any more


def of_directories(route: Route) -> bool:
    """Is the route one of SCIM, whose protocol a company's directory knows?"""
    return route.path.startswith("/scim/")


def of_agents(route: Route) -> bool:
    """Do agents call the route, with their credential or to download their program?"""
    return route.path.startswith("/agent/")


def of_hosts(route: Route) -> bool:
    """Does a machine call the route, as an agent or before it has one?"""
    return of_agents(route) or route.path == "/healthcheck"
