"""The route table: the whole HTTP API on one page. Calls that aren't supported are refused by name (`refused.py`).

A row names its handler, `module.function` of this package, and the module is imported on its first call: a cold start
pays only for the nouns it needs, not for all fifteen modules and everything they import.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from chalicelib.api.route import Access, Call, Handler, Route
from chalicelib.api.routes import refused, v1


@cache
def handler(name: str) -> Handler:
    """`module.function` of this package, imported now."""
    module, _, function = name.rpartition(".")
    found: Handler = getattr(import_module(f"{__name__}.{module}"), function)
    return found


def load_handlers() -> None:
    """Import all handlers: a long-running server pays for that at its start, and not with the first call."""
    for *_, name in _ROWS:
        handler(name)


@dataclass(frozen=True)
class ByName:
    """The handler `module.function`, imported on its first call."""

    name: str

    def __call__(self, call: Call) -> Any:
        return handler(self.name)(call)


_IN = "/api/project/{project_name}"
_OF = "/api/projects/{project_name}"

_ROWS = (
    ("POST", "/api/runs/list", Access.user, "runs.list_runs"),
    ("POST", f"{_IN}/runs/get_plan", Access.member, "runs.get_plan"),
    ("POST", f"{_IN}/runs/apply", Access.member, "runs.apply"),
    ("POST", f"{_IN}/runs/get", Access.member, "runs.get"),
    ("POST", f"{_IN}/runs/stop", Access.member, "runs.stop"),
    ("POST", f"{_IN}/runs/delete", Access.member, "runs.delete"),
    ("POST", "/api/fleets/list", Access.user, "fleets.list_fleets"),
    ("POST", f"{_IN}/fleets/list", Access.member, "fleets.list_project"),
    ("POST", f"{_IN}/fleets/get", Access.member, "fleets.get"),
    ("POST", f"{_IN}/fleets/get_plan", Access.member, "fleets.get_plan"),
    ("POST", f"{_IN}/fleets/apply", Access.member, "fleets.apply"),
    ("POST", f"{_IN}/fleets/delete", Access.member, "fleets.delete"),
    ("POST", f"{_IN}/fleets/delete_instances", Access.member, "fleets.delete_instances"),
    ("POST", f"{_IN}/fleets/create_join", Access.member, "joins.create"),
    ("POST", f"{_IN}/fleets/list_joins", Access.member, "joins.list_joins"),
    ("POST", f"{_IN}/fleets/revoke_join", Access.member, "joins.revoke"),
    ("POST", "/api/volumes/list", Access.user, "volumes.list_volumes"),
    ("POST", f"{_IN}/volumes/list", Access.member, "volumes.list_project"),
    ("POST", f"{_IN}/volumes/get", Access.member, "volumes.get"),
    ("POST", f"{_IN}/volumes/create", Access.member, "volumes.create"),
    ("POST", f"{_IN}/volumes/delete", Access.member, "volumes.delete"),
    ("POST", "/api/instances/list", Access.user, "instances.list_instances"),
    ("POST", f"{_IN}/instances/get", Access.member, "instances.get"),
    ("POST", f"{_IN}/instances/get_instance_health_checks", Access.member, "instances.get_health_checks"),
    ("POST", f"{_IN}/gpus/list", Access.member, "gpus.list_gpus"),
    ("POST", "/api/projects/list", Access.user, "projects.list_projects"),
    ("POST", "/api/projects/list_only_no_fleets", Access.user, "projects.list_only_no_fleets"),
    ("POST", "/api/projects/create", Access.user, "projects.create"),
    (
        "POST",
        "/api/projects/delete",
        Access.user,
        "projects.delete",
    ),  # needs an admin of each project, which the use case checks
    ("POST", f"{_OF}/get", Access.visitor, "projects.get"),
    ("POST", f"{_OF}/set_members", Access.project_admin, "projects.set_members"),
    ("POST", f"{_OF}/add_members", Access.visitor, "projects.add_members"),  # anybody may join a public project
    ("POST", f"{_OF}/remove_members", Access.member, "projects.remove_members"),  # anybody may leave
    ("POST", f"{_OF}/update", Access.project_admin, "projects.update"),
    ("POST", f"{_OF}/get_quota", Access.member, "quotas.get"),
    (
        "POST",
        f"{_OF}/set_quota",
        Access.project_admin,
        "quotas.set_quota",
    ),  # the project's own quota needs a global admin
    ("POST", "/api/users/list", Access.user, "users.list_users"),
    ("POST", "/api/users/get_my_user", Access.user, "users.get_my_user"),
    ("POST", "/api/users/get_user", Access.user, "users.get_user"),
    ("POST", "/api/users/create", Access.admin, "users.create"),
    ("POST", "/api/users/update", Access.admin, "users.update"),
    ("POST", "/api/users/refresh_token", Access.user, "users.refresh_token"),
    ("POST", "/api/users/refresh_ssh_key", Access.user, "users.refresh_ssh_key"),
    ("POST", "/api/users/delete", Access.admin, "users.delete"),
    ("POST", "/api/users/public_keys/list", Access.user, "public_keys.list_keys"),
    ("POST", "/api/users/public_keys/add", Access.user, "public_keys.add"),
    ("POST", "/api/users/public_keys/delete", Access.user, "public_keys.delete"),
    ("POST", f"{_IN}/repos/init", Access.member, "repos.init"),
    ("POST", f"{_IN}/repos/get", Access.member, "repos.get"),
    ("POST", f"{_IN}/repos/list", Access.member, "repos.list_repos"),
    ("POST", f"{_IN}/repos/delete", Access.member, "repos.delete"),
    ("POST", f"{_IN}/repos/upload_code", Access.member, "repos.upload_code"),
    ("POST", "/api/files/get_archive_by_hash", Access.user, "files.get_archive_by_hash"),
    ("POST", "/api/files/upload_archive", Access.user, "files.upload_archive"),
    ("POST", f"{_IN}/exports/list", Access.project_admin, "exports.list_exports"),
    ("POST", f"{_IN}/exports/create", Access.project_admin, "exports.create"),
    ("POST", f"{_IN}/exports/update", Access.project_admin, "exports.update"),
    ("POST", f"{_IN}/exports/delete", Access.project_admin, "exports.delete"),
    ("POST", f"{_IN}/imports/list", Access.member, "exports.list_imports"),
    ("POST", f"{_IN}/imports/delete", Access.project_admin, "exports.delete_import"),
    ("POST", f"{_IN}/secrets/list", Access.keeper, "secrets.list_secrets"),
    ("POST", f"{_IN}/secrets/get", Access.keeper, "secrets.get"),
    ("POST", f"{_IN}/secrets/create_or_update", Access.keeper, "secrets.create_or_update"),
    ("POST", f"{_IN}/secrets/delete", Access.keeper, "secrets.delete"),
    ("POST", f"{_IN}/automations/add", Access.member, "automations.add"),
    ("POST", f"{_IN}/automations/list", Access.member, "automations.list_automations"),
    ("POST", f"{_IN}/automations/delete", Access.member, "automations.delete"),
    ("POST", "/api/backends/list_types", Access.user, "backends.list_types"),
    ("POST", f"{_IN}/backends/list", Access.project_admin, "backends.list_backends"),
    ("POST", f"{_IN}/backends/create", Access.project_admin, "backends.create"),
    ("POST", f"{_IN}/backends/update", Access.project_admin, "backends.update"),
    ("POST", f"{_IN}/backends/create_yaml", Access.project_admin, "backends.create_yaml"),
    ("POST", f"{_IN}/backends/update_yaml", Access.project_admin, "backends.update_yaml"),
    ("POST", f"{_IN}/backends/delete", Access.project_admin, "backends.delete"),
    ("POST", f"{_IN}/backends/{{backend_name}}/config_info", Access.project_admin, "backends.config_info"),
    ("POST", f"{_IN}/backends/{{backend_name}}/get_yaml", Access.project_admin, "backends.get_yaml"),
    ("POST", f"{_IN}/backends/{{backend_name}}/check", Access.project_admin, "backends.check"),
    ("POST", f"{_IN}/logs/poll", Access.member, "logs.poll"),
    ("GET", f"{_IN}/metrics/job/{{run_name}}", Access.member, "metrics.job"),
    ("POST", f"{_IN}/gateways/list", Access.member, "gateways.list_project"),
    ("POST", f"{_IN}/gateways/get", Access.member, "gateways.get"),
    ("POST", f"{_IN}/gateways/get_plan", Access.project_admin, "gateways.get_plan"),
    ("POST", f"{_IN}/gateways/apply", Access.project_admin, "gateways.apply"),
    ("POST", f"{_IN}/gateways/create", Access.project_admin, "gateways.create"),
    ("POST", f"{_IN}/gateways/delete", Access.project_admin, "gateways.delete"),
    ("POST", f"{_IN}/gateways/set_default", Access.project_admin, "gateways.set_default"),
    ("POST", f"{_IN}/gateways/set_wildcard_domain", Access.project_admin, "gateways.set_wildcard_domain"),
    ("POST", f"{_IN}/services/create_token", Access.member, "services.create_token"),
    ("POST", f"{_IN}/templates/list", Access.member, "templates.list_templates"),
    ("GET", "/metrics", Access.user, "metrics.prometheus"),
    ("POST", "/api/events/list", Access.user, "events.list_events"),
    ("POST", f"{_IN}/events/changes", Access.member, "events.list_changes"),
    ("POST", "/api/auth/list_providers", Access.public, "auth.list_providers"),
    ("POST", "/api/auth/get_next_redirect", Access.public, "auth.get_next_redirect"),
    ("POST", "/api/auth/{provider}/authorize", Access.public, "auth.authorize"),
    ("POST", "/api/auth/{provider}/callback", Access.public, "auth.callback"),
    ("POST", "/api/auth/{provider}/device", Access.public, "auth.device"),
    ("POST", "/api/auth/{provider}/device_token", Access.public, "auth.device_token"),
    ("POST", "/api/server/get_info", Access.public, "server.get_info"),
    ("POST", "/api/server/get_usage", Access.admin, "server.get_usage"),
    ("POST", "/api/server/get_cost", Access.admin, "server.get_cost"),
    ("GET", "/openapi.json", Access.public, "documents.openapi"),
    ("GET", "/docs", Access.public, "documents.page"),
    ("GET", "/healthcheck", Access.public, "server.healthcheck"),
    ("GET", f"{_IN}/streams/{{run_name}}", Access.member, "streams.open_stream"),
    ("POST", "/agent/sync", Access.agent, "agent.sync"),
    ("GET", "/agent/files/{archive_id}", Access.agent, "agent.file"),
    ("GET", "/agent/streams/{stream_id}", Access.agent, "streams.dial"),
    ("GET", "/agent/gateway", Access.agent, "agent_gateway.configuration"),
    ("POST", "/agent/gateway/traffic", Access.agent, "agent_gateway.traffic"),
    ("POST", "/agent/gateway/rights", Access.agent, "agent_gateway.rights"),
    ("POST", "/agent/gateway/streams", Access.agent, "agent_gateway.streams"),
    ("GET", "/agent/agent.pyz", Access.public, "agent.program"),
    ("GET", "/agent/carrier.tar.gz", Access.public, "agent.carrier"),
    ("GET", "/agent/join.sh", Access.public, "joins.script"),
    ("POST", "/agent/join", Access.public, "joins.redeem"),  # authorised by a command's token in the body
    ("POST", "/agent/left", Access.agent, "joins.left"),
    *v1.ROWS,
)

BUILT = tuple(Route(method, path, access, ByName(name)) for method, path, access, name in _ROWS)
ROUTES: tuple[Route, ...] = (*BUILT, *refused.beside(BUILT))
