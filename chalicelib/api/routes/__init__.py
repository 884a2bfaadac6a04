"""The route table: the whole HTTP API on one page. Calls that aren't supported are refused by name (`refused.py`).

A row names its handler, `module.function` of this package, and the module is imported on its first call: a cold start
pays only for the nouns it needs, not for all fifteen modules and everything they import.

The verb is what an access token needs to call the route; with None, no access token may. That holds for what would
outlive the token or reach beyond it: credentials of users, access tokens, and tokens for services.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from chalicelib.api.route import Access, Call, Handler, Route, TakesBoth, TakesQuery
from chalicelib.api.routes import refused, v1
from chalicelib.domain.access_tokens import Verb


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

    @property
    def takes_query(self) -> bool:
        return isinstance(handler(self.name), TakesQuery | TakesBoth)


_IN = "/api/project/{project_name}"
_OF = "/api/projects/{project_name}"

_ROWS = (
    ("POST", "/api/runs/list", Access.user, Verb.read, "runs.list_runs"),
    ("POST", f"{_IN}/runs/get_plan", Access.member, Verb.run, "runs.get_plan"),
    ("POST", f"{_IN}/runs/apply", Access.member, Verb.run, "runs.apply"),
    ("POST", f"{_IN}/runs/get", Access.member, Verb.read, "runs.get"),
    ("POST", f"{_IN}/runs/stop", Access.member, Verb.run, "runs.stop"),
    ("POST", f"{_IN}/runs/delete", Access.member, Verb.run, "runs.delete"),
    ("POST", "/api/fleets/list", Access.user, Verb.read, "fleets.list_fleets"),
    ("POST", f"{_IN}/fleets/list", Access.member, Verb.read, "fleets.list_project"),
    ("POST", f"{_IN}/fleets/get", Access.member, Verb.read, "fleets.get"),
    ("POST", f"{_IN}/fleets/get_plan", Access.member, Verb.fleets, "fleets.get_plan"),
    ("POST", f"{_IN}/fleets/apply", Access.member, Verb.fleets, "fleets.apply"),
    ("POST", f"{_IN}/fleets/delete", Access.member, Verb.fleets, "fleets.delete"),
    ("POST", f"{_IN}/fleets/delete_instances", Access.member, Verb.fleets, "fleets.delete_instances"),
    ("POST", f"{_IN}/fleets/create_join", Access.member, Verb.fleets, "joins.create"),
    ("POST", f"{_IN}/fleets/list_joins", Access.member, Verb.fleets, "joins.list_joins"),
    ("POST", f"{_IN}/fleets/revoke_join", Access.member, Verb.fleets, "joins.revoke"),
    ("POST", "/api/volumes/list", Access.user, Verb.read, "volumes.list_volumes"),
    ("POST", f"{_IN}/volumes/list", Access.member, Verb.read, "volumes.list_project"),
    ("POST", f"{_IN}/volumes/get", Access.member, Verb.read, "volumes.get"),
    ("POST", f"{_IN}/volumes/create", Access.member, Verb.fleets, "volumes.create"),
    ("POST", f"{_IN}/volumes/delete", Access.member, Verb.fleets, "volumes.delete"),
    ("POST", "/api/instances/list", Access.user, Verb.read, "instances.list_instances"),
    ("POST", f"{_IN}/instances/get", Access.member, Verb.read, "instances.get"),
    ("POST", f"{_IN}/instances/get_instance_health_checks", Access.member, Verb.read, "instances.get_health_checks"),
    ("POST", f"{_IN}/gpus/list", Access.member, Verb.read, "gpus.list_gpus"),
    ("POST", "/api/projects/list", Access.user, Verb.read, "projects.list_projects"),
    ("POST", "/api/projects/list_only_no_fleets", Access.user, Verb.read, "projects.list_only_no_fleets"),
    ("POST", "/api/projects/create", Access.user, Verb.project, "projects.create"),
    # needs an admin of each project, which the use case checks
    ("POST", "/api/projects/delete", Access.user, Verb.project, "projects.delete"),
    ("POST", f"{_OF}/get", Access.visitor, Verb.read, "projects.get"),
    ("POST", f"{_OF}/set_members", Access.project_admin, Verb.project, "projects.set_members"),
    # anybody may join a public project
    ("POST", f"{_OF}/add_members", Access.visitor, Verb.project, "projects.add_members"),
    ("POST", f"{_OF}/remove_members", Access.member, Verb.project, "projects.remove_members"),  # anybody may leave
    ("POST", f"{_OF}/update", Access.project_admin, Verb.project, "projects.update"),
    ("POST", f"{_OF}/get_quota", Access.member, Verb.read, "quotas.get"),
    # the project's own quota needs a global admin
    ("POST", f"{_OF}/set_quota", Access.project_admin, Verb.project, "quotas.set_quota"),
    ("POST", "/api/users/list", Access.user, Verb.read, "users.list_users"),
    ("POST", "/api/users/get_my_user", Access.user, Verb.read, "users.get_my_user"),
    ("POST", "/api/users/get_user", Access.user, Verb.read, "users.get_user"),
    ("POST", "/api/users/create", Access.admin, None, "users.create"),
    ("POST", "/api/users/update", Access.admin, None, "users.update"),
    ("POST", "/api/users/refresh_token", Access.user, None, "users.refresh_token"),
    ("POST", "/api/users/refresh_ssh_key", Access.user, None, "users.refresh_ssh_key"),
    ("POST", "/api/users/delete", Access.admin, Verb.server, "users.delete"),
    ("POST", "/api/users/public_keys/list", Access.user, None, "public_keys.list_keys"),
    ("POST", "/api/users/public_keys/add", Access.user, None, "public_keys.add"),
    ("POST", "/api/users/public_keys/delete", Access.user, None, "public_keys.delete"),
    ("POST", "/api/users/access_tokens/create", Access.user, None, "access_tokens.create"),
    ("POST", "/api/users/access_tokens/list", Access.user, None, "access_tokens.list_tokens"),
    ("POST", "/api/users/access_tokens/revoke", Access.user, None, "access_tokens.revoke"),
    ("POST", "/api/users/access_tokens/revoke_own", Access.user, Verb.read, "access_tokens.revoke_own"),
    ("POST", "/api/users/sign_in_codes/create", Access.user, Verb.read, "sign_in_codes.create"),
    ("POST", f"{_IN}/repos/init", Access.member, Verb.run, "repos.init"),
    ("POST", f"{_IN}/repos/get", Access.member, Verb.run, "repos.get"),
    ("POST", f"{_IN}/repos/list", Access.member, Verb.read, "repos.list_repos"),
    ("POST", f"{_IN}/repos/delete", Access.member, Verb.run, "repos.delete"),
    ("POST", f"{_IN}/repos/upload_code", Access.member, Verb.run, "repos.upload_code"),
    ("POST", "/api/files/get_archive_by_hash", Access.user, Verb.run, "files.get_archive_by_hash"),
    ("POST", "/api/files/upload_archive", Access.user, Verb.run, "files.upload_archive"),
    ("POST", f"{_IN}/exports/list", Access.project_admin, Verb.project, "exports.list_exports"),
    ("POST", f"{_IN}/exports/create", Access.project_admin, Verb.project, "exports.create"),
    ("POST", f"{_IN}/exports/update", Access.project_admin, Verb.project, "exports.update"),
    ("POST", f"{_IN}/exports/delete", Access.project_admin, Verb.project, "exports.delete"),
    ("POST", f"{_IN}/imports/list", Access.member, Verb.read, "exports.list_imports"),
    ("POST", f"{_IN}/imports/delete", Access.project_admin, Verb.project, "exports.delete_import"),
    ("POST", f"{_IN}/secrets/list", Access.keeper, Verb.project, "secrets.list_secrets"),
    ("POST", f"{_IN}/secrets/get", Access.keeper, Verb.project, "secrets.get"),
    ("POST", f"{_IN}/secrets/create_or_update", Access.keeper, Verb.project, "secrets.create_or_update"),
    ("POST", f"{_IN}/secrets/delete", Access.keeper, Verb.project, "secrets.delete"),
    ("POST", f"{_IN}/automations/add", Access.member, Verb.project, "automations.add"),
    ("POST", f"{_IN}/automations/list", Access.member, Verb.read, "automations.list_automations"),
    ("POST", f"{_IN}/automations/delete", Access.member, Verb.project, "automations.delete"),
    ("POST", "/api/backends/list_types", Access.user, Verb.read, "backends.list_types"),
    ("POST", f"{_IN}/backends/list", Access.project_admin, Verb.project, "backends.list_backends"),
    ("POST", f"{_IN}/backends/create", Access.project_admin, Verb.project, "backends.create"),
    ("POST", f"{_IN}/backends/update", Access.project_admin, Verb.project, "backends.update"),
    ("POST", f"{_IN}/backends/create_yaml", Access.project_admin, Verb.project, "backends.create_yaml"),
    ("POST", f"{_IN}/backends/update_yaml", Access.project_admin, Verb.project, "backends.update_yaml"),
    ("POST", f"{_IN}/backends/delete", Access.project_admin, Verb.project, "backends.delete"),
    (
        "POST",
        f"{_IN}/backends/{{backend_name}}/config_info",
        Access.project_admin,
        Verb.project,
        "backends.config_info",
    ),
    ("POST", f"{_IN}/backends/{{backend_name}}/get_yaml", Access.project_admin, Verb.project, "backends.get_yaml"),
    ("POST", f"{_IN}/backends/{{backend_name}}/check", Access.project_admin, Verb.project, "backends.check"),
    ("POST", f"{_IN}/logs/poll", Access.member, Verb.read, "logs.poll"),
    ("GET", f"{_IN}/metrics/job/{{run_name}}", Access.member, Verb.read, "metrics.job"),
    ("POST", f"{_IN}/gateways/list", Access.member, Verb.read, "gateways.list_project"),
    ("POST", f"{_IN}/gateways/get", Access.member, Verb.read, "gateways.get"),
    ("POST", f"{_IN}/gateways/get_plan", Access.project_admin, Verb.fleets, "gateways.get_plan"),
    ("POST", f"{_IN}/gateways/apply", Access.project_admin, Verb.fleets, "gateways.apply"),
    ("POST", f"{_IN}/gateways/create", Access.project_admin, Verb.fleets, "gateways.create"),
    ("POST", f"{_IN}/gateways/delete", Access.project_admin, Verb.fleets, "gateways.delete"),
    ("POST", f"{_IN}/gateways/set_default", Access.project_admin, Verb.fleets, "gateways.set_default"),
    ("POST", f"{_IN}/gateways/set_wildcard_domain", Access.project_admin, Verb.fleets, "gateways.set_wildcard_domain"),
    ("POST", f"{_IN}/services/get", Access.member, Verb.read, "services.get"),
    ("POST", f"{_IN}/services/create_token", Access.member, None, "services.create_token"),
    ("POST", f"{_IN}/templates/list", Access.member, Verb.read, "templates.list_templates"),
    ("GET", "/metrics", Access.user, Verb.read, "metrics.prometheus"),
    ("POST", "/api/events/list", Access.user, Verb.read, "events.list_events"),
    ("POST", f"{_IN}/events/changes", Access.member, Verb.read, "events.list_changes"),
    ("POST", "/api/auth/list_providers", Access.public, None, "auth.list_providers"),
    ("POST", "/api/auth/get_next_redirect", Access.public, None, "auth.get_next_redirect"),
    ("POST", "/api/auth/{provider}/authorize", Access.public, None, "auth.authorize"),
    ("POST", "/api/auth/{provider}/callback", Access.public, None, "auth.callback"),
    ("POST", "/api/auth/{provider}/device", Access.public, None, "auth.device"),
    ("POST", "/api/auth/{provider}/device_token", Access.public, None, "auth.device_token"),
    ("POST", "/api/auth/oidc/exchange", Access.public, None, "auth.exchange"),
    ("POST", "/api/auth/sign_in_codes/exchange", Access.public, None, "sign_in_codes.exchange"),
    ("POST", "/api/server/get_info", Access.public, None, "server.get_info"),
    ("POST", "/api/server/get_usage", Access.admin, Verb.server, "server.get_usage"),
    ("POST", "/api/server/get_cost", Access.admin, Verb.server, "server.get_cost"),
    ("POST", "/api/server/get_slo", Access.admin, Verb.server, "server.get_slo"),
    ("POST", "/api/server/get_restoration", Access.admin, Verb.server, "server.get_restoration"),
    ("POST", "/api/server/go_on", Access.admin, Verb.server, "server.go_on"),
    ("GET", "/openapi.json", Access.public, None, "documents.openapi"),
    ("GET", "/docs", Access.public, None, "documents.page"),
    ("GET", "/configuration.schema.json", Access.public, None, "documents.schema"),
    ("GET", "/", Access.public, None, "console.page"),
    ("GET", "/auth/{provider}/callback", Access.public, None, "console.signed_on"),
    ("GET", "/console/{part}", Access.public, None, "console.file"),
    ("GET", "/console/{part}/{next}", Access.public, None, "console.file"),  # of the sources, which aren't bundled
    ("GET", "/console/{part}/{next}/{last}", Access.public, None, "console.file"),
    ("GET", "/healthcheck", Access.public, None, "server.healthcheck"),
    ("GET", f"{_IN}/streams/{{run_name}}", Access.member, Verb.run, "streams.open_stream"),
    ("POST", "/agent/sync", Access.agent, None, "agent.sync"),
    ("GET", "/agent/files/{archive_id}", Access.agent, None, "agent.file"),
    ("GET", "/agent/streams/{stream_id}", Access.agent, None, "streams.dial"),
    ("GET", "/agent/gateway", Access.agent, None, "agent_gateway.configuration"),
    ("POST", "/agent/gateway/traffic", Access.agent, None, "agent_gateway.traffic"),
    ("POST", "/agent/gateway/rights", Access.agent, None, "agent_gateway.rights"),
    ("POST", "/agent/gateway/streams", Access.agent, None, "agent_gateway.streams"),
    ("GET", "/agent/agent.pyz", Access.public, None, "agent.program"),
    ("GET", "/agent/carrier.tar.gz", Access.public, None, "agent.carrier"),
    ("GET", "/agent/join.sh", Access.public, None, "joins.script"),
    ("POST", "/agent/join", Access.public, None, "joins.redeem"),  # authorised by a command's token in the body
    ("POST", "/agent/left", Access.agent, None, "joins.left"),
    ("POST", "/api/scim/tokens/create", Access.admin, None, "scim_tokens.create"),
    ("POST", "/api/scim/tokens/list", Access.admin, None, "scim_tokens.list_tokens"),
    ("POST", "/api/scim/tokens/revoke", Access.admin, None, "scim_tokens.revoke"),
    ("GET", "/scim/v2/ServiceProviderConfig", Access.directory, None, "scim.config"),
    ("GET", "/scim/v2/ResourceTypes", Access.directory, None, "scim.types"),
    ("GET", "/scim/v2/ResourceTypes/{id}", Access.directory, None, "scim.type_"),
    ("GET", "/scim/v2/Schemas", Access.directory, None, "scim.schemas"),
    ("GET", "/scim/v2/Schemas/{id}", Access.directory, None, "scim.schema"),
    ("GET", "/scim/v2/Users", Access.directory, None, "scim.list_users"),
    ("POST", "/scim/v2/Users", Access.directory, None, "scim.create_user"),
    ("GET", "/scim/v2/Users/{id}", Access.directory, None, "scim.get_user"),
    ("PUT", "/scim/v2/Users/{id}", Access.directory, None, "scim.replace_user"),
    ("PATCH", "/scim/v2/Users/{id}", Access.directory, None, "scim.patch_user"),
    ("DELETE", "/scim/v2/Users/{id}", Access.directory, None, "scim.delete_user"),
    ("GET", "/scim/v2/Groups", Access.directory, None, "scim.list_groups"),
    ("POST", "/scim/v2/Groups", Access.directory, None, "scim.create_group"),
    ("GET", "/scim/v2/Groups/{id}", Access.directory, None, "scim.get_group"),
    ("PUT", "/scim/v2/Groups/{id}", Access.directory, None, "scim.replace_group"),
    ("PATCH", "/scim/v2/Groups/{id}", Access.directory, None, "scim.patch_group"),
    ("DELETE", "/scim/v2/Groups/{id}", Access.directory, None, "scim.delete_group"),
    *v1.ROWS,
)

# Calls without a project in their path that a token for some projects may make: lists of what is in all projects of the
# caller, which show it no others; the caller; and uploads, which are the user's own until a run of a project uses them.
_NARROWED = frozenset(
    (
        "runs.list_runs",
        "fleets.list_fleets",
        "volumes.list_volumes",
        "instances.list_instances",
        "projects.list_projects",
        "projects.list_only_no_fleets",
        "users.get_my_user",
        "users.list_users",
        "access_tokens.revoke_own",
        "sign_in_codes.create",
        "events.list_events",
        "files.get_archive_by_hash",
        "files.upload_archive",
        *v1.NARROWED,
    )
)

BUILT = tuple(
    Route(method, path, access, ByName(name), verb, name in _NARROWED, name == v1.ENDS_PROJECT)
    for method, path, access, verb, name in _ROWS
)
ROUTES: tuple[Route, ...] = (*BUILT, *refused.beside(BUILT))
