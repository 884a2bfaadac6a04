"""The calls of the server's API, a function for each route. Made by `make docs` from the route table and what its
handlers declare (`docs/client_calls.py`); change those instead."""

from __future__ import annotations

# mypy: disable-error-code="no-any-return"
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chalicelib import contract
    from chalicelib.contract import bodies
    from cli.connection.client import Client


def _quoted(text: str) -> str:
    return quote(text, safe="")


def auth_authorize(client: Client, provider: str, body: bodies.AuthorizeBody | None = None) -> contract.Authorization:
    return client.post(f"/api/auth/{_quoted(provider)}/authorize", body)


def auth_callback(client: Client, provider: str, body: bodies.CallbackBody) -> contract.UserWithCreds:
    return client.post(f"/api/auth/{_quoted(provider)}/callback", body)


def auth_device(client: Client, provider: str) -> contract.DeviceCode:
    return client.post(f"/api/auth/{_quoted(provider)}/device")


def auth_device_token(client: Client, provider: str, body: bodies.DeviceBody) -> contract.UserWithCreds | None:
    return client.post(f"/api/auth/{_quoted(provider)}/device_token", body)


def auth_get_next_redirect(client: Client, body: bodies.RedirectBody) -> contract.NextRedirect:
    return client.post("/api/auth/get_next_redirect", body)


def auth_list_providers(client: Client) -> list[contract.SignOnProvider]:
    return client.post("/api/auth/list_providers")


def auth_oidc_exchange(client: Client, body: bodies.ExchangeBody) -> contract.ProgramSignOn:
    return client.post("/api/auth/oidc/exchange", body)


def auth_sign_in_codes_exchange(client: Client, body: bodies.ExchangeCodeBody) -> contract.ProgramSignOn:
    return client.post("/api/auth/sign_in_codes/exchange", body)


def automations_add(client: Client, body: bodies.AddAutomationBody | None = None) -> contract.Automation:
    return client.in_project("automations/add", body)


def automations_delete(client: Client, body: bodies.DeleteAutomationsBody) -> None:
    client.in_project("automations/delete", body)


def automations_list(client: Client) -> list[contract.Automation]:
    return client.in_project("automations/list")


def backends_check(client: Client, backend_name: str) -> None:
    client.in_project(f"backends/{_quoted(backend_name)}/check")


def backends_config_info(client: Client, backend_name: str) -> Mapping[str, object]:
    return client.in_project(f"backends/{_quoted(backend_name)}/config_info")


def backends_create(client: Client, body: Mapping[str, object]) -> Mapping[str, object]:
    return client.in_project("backends/create", body)


def backends_create_yaml(client: Client, body: bodies.YamlBody) -> None:
    client.in_project("backends/create_yaml", body)


def backends_delete(client: Client, body: bodies.DeleteBackendsBody) -> None:
    client.in_project("backends/delete", body)


def backends_get_yaml(client: Client, backend_name: str) -> contract.BackendYaml:
    return client.in_project(f"backends/{_quoted(backend_name)}/get_yaml")


def backends_list(client: Client) -> list[contract.Backend]:
    return client.in_project("backends/list")


def backends_list_types(client: Client) -> list[str]:
    return client.post("/api/backends/list_types")


def backends_update(client: Client, body: Mapping[str, object]) -> Mapping[str, object]:
    return client.in_project("backends/update", body)


def backends_update_yaml(client: Client, body: bodies.YamlBody) -> None:
    client.in_project("backends/update_yaml", body)


def events_changes(client: Client, body: bodies.ChangesBody) -> list[contract.StateChange]:
    return client.in_project("events/changes", body)


def events_list(client: Client, body: bodies.ListEventsBody | None = None) -> list[contract.Event]:
    return client.post("/api/events/list", body)


def exports_create(client: Client, body: bodies.CreateExportBody) -> contract.Export:
    return client.in_project("exports/create", body)


def exports_delete(client: Client, body: bodies.NameBody) -> None:
    client.in_project("exports/delete", body)


def exports_list(client: Client) -> list[contract.Export]:
    return client.in_project("exports/list")


def exports_update(client: Client, body: bodies.UpdateExportBody) -> contract.Export:
    return client.in_project("exports/update", body)


def files_get_archive_by_hash(client: Client, body: bodies.ByHashBody) -> contract.Archive:
    return client.post("/api/files/get_archive_by_hash", body)


def files_upload_archive(client: Client, file_name: str, data: bytes) -> contract.Archive:
    return client.upload("/api/files/upload_archive", file_name, data)


def fleets_apply(client: Client, body: bodies.ApplyFleetBody) -> contract.Fleet:
    return client.in_project("fleets/apply", body)


def fleets_create_join(client: Client, body: bodies.CreateJoinBody) -> contract.CreatedJoin:
    return client.in_project("fleets/create_join", body)


def fleets_delete(client: Client, body: bodies.DeleteFleetsBody) -> None:
    client.in_project("fleets/delete", body)


def fleets_delete_instances(client: Client, body: bodies.DeleteInstancesBody) -> None:
    client.in_project("fleets/delete_instances", body)


def fleets_get(client: Client, body: bodies.GetFleetBody | None = None) -> contract.Fleet:
    return client.in_project("fleets/get", body)


def fleets_get_plan(client: Client, body: bodies.GetFleetPlanBody) -> contract.FleetPlan:
    return client.in_project("fleets/get_plan", body)


def fleets_list(client: Client, body: bodies.ProjectListBody | None = None) -> list[contract.Fleet]:
    return client.in_project("fleets/list", body)


def fleets_list_joins(client: Client, body: bodies.ListJoinsBody) -> list[contract.Join]:
    return client.in_project("fleets/list_joins", body)


def fleets_list_of_projects(client: Client, body: bodies.ListFleetsBody | None = None) -> list[contract.Fleet]:
    return client.post("/api/fleets/list", body)


def fleets_revoke_join(client: Client, body: bodies.RevokeBody) -> None:
    client.in_project("fleets/revoke_join", body)


def gateways_apply(client: Client, body: bodies.ApplyGatewayBody) -> contract.Gateway:
    return client.in_project("gateways/apply", body)


def gateways_create(client: Client, body: bodies.CreateGatewayBody) -> contract.Gateway:
    return client.in_project("gateways/create", body)


def gateways_delete(client: Client, body: bodies.DeleteGatewaysBody) -> None:
    client.in_project("gateways/delete", body)


def gateways_get(client: Client, body: bodies.GetGatewayBody) -> contract.GatewayWithCertificates:
    return client.in_project("gateways/get", body)


def gateways_get_plan(client: Client, body: bodies.GetGatewayPlanBody) -> contract.GatewayPlan:
    return client.in_project("gateways/get_plan", body)


def gateways_list(client: Client) -> list[contract.Gateway]:
    return client.in_project("gateways/list")


def gateways_set_default(client: Client, body: bodies.SetDefaultBody) -> None:
    client.in_project("gateways/set_default", body)


def gateways_set_wildcard_domain(client: Client, body: bodies.SetDomainBody) -> contract.Gateway:
    return client.in_project("gateways/set_wildcard_domain", body)


def gpus_list(client: Client, body: bodies.ListGpusBody) -> contract.GpuList:
    return client.in_project("gpus/list", body)


def imports_delete(client: Client, body: bodies.ImportBody) -> None:
    client.in_project("imports/delete", body)


def imports_list(client: Client) -> list[contract.Import]:
    return client.in_project("imports/list")


def instances_get(client: Client, body: bodies.GetInstanceBody) -> contract.Instance:
    return client.in_project("instances/get", body)


def instances_get_instance_health_checks(client: Client, body: bodies.HealthBody) -> contract.HealthChecks:
    return client.in_project("instances/get_instance_health_checks", body)


def instances_list(client: Client, body: bodies.ListInstancesBody | None = None) -> list[contract.Instance]:
    return client.post("/api/instances/list", body)


def logs_poll(client: Client, body: bodies.PollBody) -> contract.LogPage:
    return client.in_project("logs/poll", body)


def metrics_job(client: Client, run_name: str, query: bodies.JobQuery | None = None) -> contract.JobMetrics:
    return client.get_in_project(f"metrics/job/{_quoted(run_name)}", query)


def projects_add_members(client: Client, project_name: str, body: bodies.Members) -> contract.Project:
    return client.post(f"/api/projects/{_quoted(project_name)}/add_members", body)


def projects_create(client: Client, body: bodies.CreateProjectBody) -> contract.Project:
    return client.post("/api/projects/create", body)


def projects_delete(client: Client, body: bodies.DeleteProjectsBody) -> None:
    client.post("/api/projects/delete", body)


def projects_get(client: Client, project_name: str) -> contract.Project:
    return client.post(f"/api/projects/{_quoted(project_name)}/get")


def projects_get_quota(client: Client, project_name: str) -> contract.Quota:
    return client.post(f"/api/projects/{_quoted(project_name)}/get_quota")


def projects_list(
    client: Client, body: bodies.ListProjectsBody | None = None
) -> list[contract.Project] | contract.ProjectPage:
    return client.post("/api/projects/list", body)


def projects_list_only_no_fleets(client: Client) -> list[contract.Project]:
    return client.post("/api/projects/list_only_no_fleets")


def projects_remove_members(client: Client, project_name: str, body: bodies.RemoveBody) -> contract.Project:
    return client.post(f"/api/projects/{_quoted(project_name)}/remove_members", body)


def projects_set_members(client: Client, project_name: str, body: bodies.Members) -> contract.Project:
    return client.post(f"/api/projects/{_quoted(project_name)}/set_members", body)


def projects_set_quota(client: Client, project_name: str, body: bodies.SetBody | None = None) -> contract.Quota:
    return client.post(f"/api/projects/{_quoted(project_name)}/set_quota", body)


def projects_update(
    client: Client, project_name: str, body: bodies.UpdateProjectBody | None = None
) -> contract.Project:
    return client.post(f"/api/projects/{_quoted(project_name)}/update", body)


def repos_delete(client: Client, body: bodies.DeleteReposBody) -> None:
    client.in_project("repos/delete", body)


def repos_get(client: Client, body: bodies.GetRepoBody) -> contract.RepoWithCreds:
    return client.in_project("repos/get", body)


def repos_init(client: Client, body: bodies.InitBody) -> None:
    client.in_project("repos/init", body)


def repos_list(client: Client, body: bodies.NamedPageBody | None = None) -> list[contract.Repo]:
    return client.in_project("repos/list", body)


def repos_upload_code(client: Client, query: bodies.CodeQuery, file_name: str, data: bytes) -> None:
    client.upload_in_project("repos/upload_code", file_name, data, query)


def runs_apply(client: Client, body: bodies.ApplyRunBody) -> contract.Run:
    return client.in_project("runs/apply", body)


def runs_delete(client: Client, body: bodies.DeleteRunsBody) -> None:
    client.in_project("runs/delete", body)


def runs_get(client: Client, body: bodies.GetRunBody | None = None) -> contract.Run:
    return client.in_project("runs/get", body)


def runs_get_plan(client: Client, body: bodies.GetRunPlanBody) -> contract.RunPlan:
    return client.in_project("runs/get_plan", body)


def runs_list(client: Client, body: bodies.ListRunsBody | None = None) -> list[contract.Run]:
    return client.post("/api/runs/list", body)


def runs_stop(client: Client, body: bodies.StopBody) -> None:
    client.in_project("runs/stop", body)


def scim_tokens_create(client: Client, body: bodies.ScimTokenBody) -> contract.CreatedScimToken:
    return client.post("/api/scim/tokens/create", body)


def scim_tokens_list(client: Client) -> list[contract.ScimToken]:
    return client.post("/api/scim/tokens/list")


def scim_tokens_revoke(client: Client, body: bodies.ScimTokenBody) -> None:
    client.post("/api/scim/tokens/revoke", body)


def secrets_create_or_update(client: Client, body: bodies.SaveSecretBody) -> contract.Secret:
    return client.in_project("secrets/create_or_update", body)


def secrets_delete(client: Client, body: bodies.DeleteSecretsBody) -> None:
    client.in_project("secrets/delete", body)


def secrets_get(client: Client, body: bodies.GetSecretBody) -> contract.Secret:
    return client.in_project("secrets/get", body)


def secrets_list(client: Client, body: bodies.NamedPageBody | None = None) -> list[contract.Secret]:
    return client.in_project("secrets/list", body)


def server_get_cost(client: Client) -> contract.ServerCost:
    return client.post("/api/server/get_cost")


def server_get_info(client: Client) -> contract.ServerInfo:
    return client.post("/api/server/get_info")


def server_get_restoration(client: Client) -> contract.RestorationAnswer:
    return client.post("/api/server/get_restoration")


def server_get_slo(client: Client) -> contract.ServerSlo:
    return client.post("/api/server/get_slo")


def server_get_usage(client: Client) -> contract.ServerUsage:
    return client.post("/api/server/get_usage")


def server_go_on(client: Client) -> contract.RestorationAnswer:
    return client.post("/api/server/go_on")


def services_create_token(client: Client, body: bodies.CreateTokenBody | None = None) -> contract.ServiceToken:
    return client.in_project("services/create_token", body)


def services_get(client: Client, body: bodies.GetServiceBody) -> contract.V1Service:
    return client.in_project("services/get", body)


def templates_list(client: Client) -> list[contract.Template]:
    return client.in_project("templates/list")


def users_access_tokens_create(client: Client, body: bodies.CreateAccessTokenBody) -> contract.CreatedAccessToken:
    return client.post("/api/users/access_tokens/create", body)


def users_access_tokens_list(
    client: Client, body: bodies.ListAccessTokensBody | None = None
) -> list[contract.AccessToken]:
    return client.post("/api/users/access_tokens/list", body)


def users_access_tokens_revoke(client: Client, body: bodies.RevokeAccessTokenBody) -> None:
    client.post("/api/users/access_tokens/revoke", body)


def users_access_tokens_revoke_own(client: Client) -> None:
    client.post("/api/users/access_tokens/revoke_own")


def users_create(client: Client, body: bodies.SaveUserBody) -> contract.UserWithCreds:
    return client.post("/api/users/create", body)


def users_delete(client: Client, body: bodies.DeleteUsersBody) -> None:
    client.post("/api/users/delete", body)


def users_get_my_user(client: Client) -> contract.UserWithCreds:
    return client.post("/api/users/get_my_user")


def users_get_user(client: Client, body: bodies.GetUserBody) -> contract.UserWithCreds:
    return client.post("/api/users/get_user", body)


def users_list(client: Client, body: bodies.PageBody | None = None) -> list[contract.User] | contract.UserPage:
    return client.post("/api/users/list", body)


def users_public_keys_add(client: Client, body: bodies.AddPublicKeyBody) -> contract.PublicKey:
    return client.post("/api/users/public_keys/add", body)


def users_public_keys_delete(client: Client, body: bodies.DeletePublicKeysBody) -> None:
    client.post("/api/users/public_keys/delete", body)


def users_public_keys_list(client: Client) -> list[contract.PublicKey]:
    return client.post("/api/users/public_keys/list")


def users_refresh_ssh_key(client: Client, body: bodies.GetUserBody) -> contract.UserWithCreds:
    return client.post("/api/users/refresh_ssh_key", body)


def users_refresh_token(client: Client, body: bodies.GetUserBody) -> contract.UserWithCreds:
    return client.post("/api/users/refresh_token", body)


def users_sign_in_codes_create(client: Client) -> contract.SignInCode:
    return client.post("/api/users/sign_in_codes/create")


def users_update(client: Client, body: bodies.SaveUserBody) -> contract.User:
    return client.post("/api/users/update", body)


def volumes_create(client: Client, body: bodies.CreateVolumeBody) -> contract.Volume:
    return client.in_project("volumes/create", body)


def volumes_delete(client: Client, body: bodies.DeleteVolumesBody) -> None:
    client.in_project("volumes/delete", body)


def volumes_get(client: Client, body: bodies.GetVolumeBody) -> contract.Volume:
    return client.in_project("volumes/get", body)


def volumes_list(client: Client) -> list[contract.Volume]:
    return client.in_project("volumes/list")


def volumes_list_of_projects(client: Client, body: bodies.ListVolumesBody | None = None) -> list[contract.Volume]:
    return client.post("/api/volumes/list", body)
