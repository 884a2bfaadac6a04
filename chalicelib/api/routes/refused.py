"""Calls of this line's clients that the control plane doesn't support (yet), refused by name.

A row is a feature and its paths. A path that another module declares is dropped from the table automatically.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from chalicelib.api.route import Access, Call, Route
from chalicelib.errors import NotSupported

_PROJECT = "/api/project/{project_name}"
_SERVICES = "services: the proxy to a service or a model"
_DOORS = "`dstack server` passes requests on to services; a Lambda can't."
_ANY = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

# feature, what to do instead, access, paths
_FEATURES: tuple[tuple[str, str, Access, tuple[str, ...]], ...] = (
    (
        "managing users",
        "The admin token is created when the server first starts.",
        Access.user,
        (
            "/api/users/get_user",
            "/api/users/create",
            "/api/users/update",
            "/api/users/refresh_ssh_key",
            "/api/users/refresh_token",
            "/api/users/delete",
        ),
    ),
    (
        "managing projects",
        "The project `main` is created when the server first starts.",
        Access.user,
        ("/api/projects/list_only_no_fleets", "/api/projects/create", "/api/projects/delete"),
    ),
    (
        "managing the members of a project",
        "",
        Access.member,
        tuple(
            f"/api/projects/{{project_name}}/{verb}"
            for verb in ("set_members", "add_members", "remove_members", "update")
        ),
    ),
    ("listing and deleting repos", "", Access.member, (f"{_PROJECT}/repos/list", f"{_PROJECT}/repos/delete")),
    ("the SSH proxy", "", Access.admin, ("/api/sshproxy/get_upstream",)),
    (_SERVICES, "", Access.member, ("/proxy/models/{project_name}/chat/completions",)),
)

_OTHER_METHODS: tuple[tuple[str, str, Access, tuple[str, ...], str], ...] = (
    (_SERVICES, "", Access.member, ("GET",), "/proxy/models/{project_name}/models"),
    (_SERVICES, _DOORS, Access.member, _ANY, "/proxy/services/{project_name}/{run_name}"),
    (_SERVICES, _DOORS, Access.member, (*_ANY, "OPTIONS"), "/proxy/services/{project_name}/{run_name}/{path}"),
)


def beside(built: Iterable[Route]) -> tuple[Route, ...]:
    """The refusals for every known path that `built` doesn't answer."""
    answered = {(route.method, route.path) for route in built}
    return tuple(route for route in _rows() if (route.method, route.path) not in answered)


def _rows() -> Iterator[Route]:
    for feature, instead, access, paths in _FEATURES:
        for path in paths:
            yield Route("POST", path, access, _refusal(feature, instead))
    for feature, instead, access, methods, path in _OTHER_METHODS:
        for method in methods:
            yield Route(method, path, access, _refusal(feature, instead))


def _refusal(feature: str, instead: str) -> Callable[[Call], None]:
    def refuse(call: Call) -> None:
        raise NotSupported(f"This control plane doesn't support {feature}.", hint=instead)

    return refuse
