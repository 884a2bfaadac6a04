"""The bodies and queries of calls, as they are sent. Made by `make docs` from the models that read them
(`docs/client_calls.py`), which also say what values may be; change those instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from typing_extensions import NotRequired, ReadOnly, TypedDict

from chalicelib.contract.events import AnyTarget
from chalicelib.contract.users import Verb
from chalicelib.contract.values import GlobalRole, ProjectRole


class ListRunsBody(TypedDict):
    project_name: NotRequired[str | None]
    repo_id: NotRequired[str | None]
    username: NotRequired[str | None]
    only_active: NotRequired[bool]
    include_jobs: NotRequired[bool]
    job_submissions_limit: NotRequired[int | None]
    prev_submitted_at: NotRequired[str | None]
    prev_run_id: NotRequired[str | None]
    limit: NotRequired[int]
    ascending: NotRequired[bool]


class GetRunPlanBody(TypedDict):
    run_spec: Mapping[str, object]
    max_offers: NotRequired[int | None]
    reverse_offers: NotRequired[bool]
    full_offers: NotRequired[bool]
    unallocated_resources: NotRequired[bool]
    for_offers_only: NotRequired[bool]


class CurrentRun(TypedDict):
    id: ReadOnly[str]
    deployment_num: NotRequired[ReadOnly[int]]


class RunPlanBody(TypedDict):
    run_spec: ReadOnly[Mapping[str, object]]
    current_resource: NotRequired[ReadOnly[CurrentRun | None]]


class ApplyRunBody(TypedDict):
    plan: ReadOnly[RunPlanBody]
    force: NotRequired[bool]


class GetRunBody(TypedDict):
    run_name: NotRequired[str | None]
    id: NotRequired[str | None]


class StopBody(TypedDict):
    runs_names: list[str]
    abort: NotRequired[bool]


class DeleteRunsBody(TypedDict):
    runs_names: list[str]


class ListFleetsBody(TypedDict):
    project_name: NotRequired[str | None]
    only_active: NotRequired[bool]
    include_imported: NotRequired[bool]
    prev_created_at: NotRequired[str | None]
    prev_id: NotRequired[str | None]
    limit: NotRequired[int]
    ascending: NotRequired[bool]


class ProjectListBody(TypedDict):
    include_imported: NotRequired[bool]
    prev_created_at: NotRequired[str | None]
    prev_id: NotRequired[str | None]
    limit: NotRequired[int | None]
    ascending: NotRequired[bool]


class GetFleetBody(TypedDict):
    name: NotRequired[str | None]
    id: NotRequired[str | None]


class GetFleetPlanBody(TypedDict):
    spec: Mapping[str, object]


class CurrentFleet(TypedDict):
    id: ReadOnly[str]
    spec: ReadOnly[Mapping[str, object]]


class FleetPlanBody(TypedDict):
    spec: ReadOnly[Mapping[str, object]]
    current_resource: NotRequired[ReadOnly[CurrentFleet | None]]


class ApplyFleetBody(TypedDict):
    plan: ReadOnly[FleetPlanBody]
    force: NotRequired[bool]


class DeleteFleetsBody(TypedDict):
    names: list[str]
    force: NotRequired[bool]


class DeleteInstancesBody(TypedDict):
    name: str
    instance_nums: list[int]
    force: NotRequired[bool]


class CreateJoinBody(TypedDict):
    name: str
    expires_in: NotRequired[int]


class ListJoinsBody(TypedDict):
    name: str


class RevokeBody(TypedDict):
    name: str
    id: str


class ListVolumesBody(TypedDict):
    project_name: NotRequired[str | None]
    only_active: NotRequired[bool]
    prev_created_at: NotRequired[str | None]
    prev_id: NotRequired[str | None]
    limit: NotRequired[int]
    ascending: NotRequired[bool]


class GetVolumeBody(TypedDict):
    name: str


class CreateVolumeBody(TypedDict):
    configuration: Mapping[str, object]


class DeleteVolumesBody(TypedDict):
    names: list[str]


class ListInstancesBody(TypedDict):
    project_names: NotRequired[list[str] | None]
    fleet_ids: NotRequired[list[str] | None]
    only_active: NotRequired[bool]
    include_imported: NotRequired[bool]
    prev_created_at: NotRequired[str | None]
    prev_id: NotRequired[str | None]
    limit: NotRequired[int]
    ascending: NotRequired[bool]


class GetInstanceBody(TypedDict):
    id: str


class HealthBody(TypedDict):
    fleet_name: str
    instance_num: int
    after: NotRequired[str | None]
    before: NotRequired[str | None]
    limit: NotRequired[int | None]


class ListGpusBody(TypedDict):
    run_spec: Mapping[str, object]
    group_by: NotRequired[list[Literal["backend", "region", "count"]] | None]
    reverse: NotRequired[bool]
    full_offers: NotRequired[bool]
    unallocated_resources: NotRequired[bool]


class ListProjectsBody(TypedDict):
    return_total_count: NotRequired[bool]
    name_pattern: NotRequired[str | None]
    prev_created_at: NotRequired[str | None]
    prev_id: NotRequired[str | None]
    limit: NotRequired[int]
    ascending: NotRequired[bool]
    include_not_joined: NotRequired[bool]
    username: NotRequired[str | None]


class CreateProjectBody(TypedDict):
    project_name: str
    is_public: NotRequired[bool]
    templates_repo: NotRequired[str | None]


class DeleteProjectsBody(TypedDict):
    projects_names: list[str]


class Setting(TypedDict):
    username: ReadOnly[str]
    project_role: ReadOnly[ProjectRole]


class Members(TypedDict):
    members: ReadOnly[list[Setting]]


class RemoveBody(TypedDict):
    usernames: list[str]


class UpdateProjectBody(TypedDict):
    is_public: NotRequired[bool | None]
    templates_repo: NotRequired[str | None]
    reset_templates_repo: NotRequired[bool]


class SetBody(TypedDict):
    username: NotRequired[str | None]
    each_user: NotRequired[bool]
    gpus: NotRequired[int | None]
    jobs: NotRequired[int | None]
    money: NotRequired[float | None]


class PageBody(TypedDict):
    return_total_count: NotRequired[bool]
    name_pattern: NotRequired[str | None]
    prev_created_at: NotRequired[str | None]
    prev_id: NotRequired[str | None]
    limit: NotRequired[int]
    ascending: NotRequired[bool]


class GetUserBody(TypedDict):
    username: str


class SaveUserBody(TypedDict):
    username: str
    global_role: GlobalRole
    email: NotRequired[str | None]
    active: NotRequired[bool]


class DeleteUsersBody(TypedDict):
    users: list[str]


class AddPublicKeyBody(TypedDict):
    key: str
    name: NotRequired[str | None]


class DeletePublicKeysBody(TypedDict):
    ids: list[str]


class CreateAccessTokenBody(TypedDict):
    name: str
    verbs: list[Verb]
    projects: NotRequired[list[str]]
    expires_in: NotRequired[int | None]
    dollars_a_day: NotRequired[float | None]


class ListAccessTokensBody(TypedDict):
    username: NotRequired[str | None]


class RevokeAccessTokenBody(TypedDict):
    name: str
    username: NotRequired[str | None]


class Creds(TypedDict):
    clone_url: ReadOnly[str]
    private_key: NotRequired[ReadOnly[str | None]]
    oauth_token: NotRequired[ReadOnly[str | None]]


class InitBody(TypedDict):
    repo_id: str
    repo_info: Mapping[str, object]
    repo_creds: NotRequired[ReadOnly[Creds | None]]


class GetRepoBody(TypedDict):
    repo_id: str
    include_creds: NotRequired[bool]


class NamedPageBody(TypedDict):
    after: NotRequired[str]
    limit: NotRequired[int | None]


class DeleteReposBody(TypedDict):
    repos_ids: list[str]


class CodeQuery(TypedDict):
    repo_id: str


class ByHashBody(TypedDict):
    hash: str


class CreateExportBody(TypedDict):
    name: str
    is_global: NotRequired[bool]
    importer_projects: NotRequired[list[str]]
    exported_fleets: NotRequired[list[str]]
    exported_gateways: NotRequired[list[str]]


class UpdateExportBody(TypedDict):
    name: str
    set_global: NotRequired[bool]
    unset_global: NotRequired[bool]
    add_importer_projects: NotRequired[list[str]]
    remove_importer_projects: NotRequired[list[str]]
    add_exported_fleets: NotRequired[list[str]]
    remove_exported_fleets: NotRequired[list[str]]
    add_exported_gateways: NotRequired[list[str]]
    remove_exported_gateways: NotRequired[list[str]]


class NameBody(TypedDict):
    name: str


class ImportBody(TypedDict):
    export_name: str
    export_project_name: str


class GetSecretBody(TypedDict):
    name: str


class SaveSecretBody(TypedDict):
    name: str
    value: str


class DeleteSecretsBody(TypedDict):
    secrets_names: list[str]


class AddAutomationBody(TypedDict):
    spec: NotRequired[Mapping[str, object] | None]
    text: NotRequired[str | None]


class DeleteAutomationsBody(TypedDict):
    names: list[str]


class YamlBody(TypedDict):
    config_yaml: str


class DeleteBackendsBody(TypedDict):
    backends_names: list[str]


class PollBody(TypedDict):
    run_name: str
    job_submission_id: str
    start_time: NotRequired[str | None]
    end_time: NotRequired[str | None]
    descending: NotRequired[bool]
    next_token: NotRequired[str | None]
    limit: NotRequired[int]
    diagnose: NotRequired[bool]


class JobQuery(TypedDict):
    run_id: NotRequired[str | None]
    replica_num: NotRequired[int]
    job_num: NotRequired[int]
    limit: NotRequired[int]
    after: NotRequired[str | None]
    before: NotRequired[str | None]


class GetGatewayBody(TypedDict):
    name: str


class GetGatewayPlanBody(TypedDict):
    spec: Mapping[str, object]


class CurrentGateway(TypedDict):
    id: ReadOnly[str]
    configuration: ReadOnly[Mapping[str, object]]


class GatewayPlanBody(TypedDict):
    spec: ReadOnly[Mapping[str, object]]
    current_resource: NotRequired[ReadOnly[CurrentGateway | None]]


class ApplyGatewayBody(TypedDict):
    plan: ReadOnly[GatewayPlanBody]
    force: NotRequired[bool]


class CreateGatewayBody(TypedDict):
    configuration: Mapping[str, object]


class DeleteGatewaysBody(TypedDict):
    names: list[str]


class SetDefaultBody(TypedDict):
    name: str
    gateway_project: NotRequired[str | None]


class SetDomainBody(TypedDict):
    name: str
    wildcard_domain: NotRequired[str | None]


class GetServiceBody(TypedDict):
    run_name: str


class CreateTokenBody(TypedDict):
    run_name: NotRequired[str | None]
    expires_in: NotRequired[int]


class ListEventsBody(TypedDict):
    target_projects: NotRequired[list[str] | None]
    target_users: NotRequired[list[str] | None]
    target_fleets: NotRequired[list[str] | None]
    target_instances: NotRequired[list[str] | None]
    target_runs: NotRequired[list[str] | None]
    target_jobs: NotRequired[list[str] | None]
    target_volumes: NotRequired[list[str] | None]
    target_gateways: NotRequired[list[str] | None]
    target_gateway_replicas: NotRequired[list[str] | None]
    target_secrets: NotRequired[list[str] | None]
    target_presets: NotRequired[list[str] | None]
    target_workflows: NotRequired[list[str] | None]
    target_gangs: NotRequired[list[str] | None]
    target_backends: NotRequired[list[str] | None]
    target_automations: NotRequired[list[str] | None]
    target_certificates: NotRequired[list[str] | None]
    within_projects: NotRequired[list[str] | None]
    within_fleets: NotRequired[list[str] | None]
    within_runs: NotRequired[list[str] | None]
    within_gateways: NotRequired[list[str] | None]
    include_target_types: NotRequired[list[AnyTarget] | None]
    actors: NotRequired[list[str | None] | None]
    prev_recorded_at: NotRequired[str | None]
    prev_id: NotRequired[str | None]
    limit: NotRequired[int]
    ascending: NotRequired[bool]


class ChangesBody(TypedDict):
    prev_recorded_at: str
    prev_id: NotRequired[str | None]
    limit: NotRequired[int]


class RedirectBody(TypedDict):
    code: str
    state: str


class AuthorizeBody(TypedDict):
    local_port: NotRequired[int | None]
    base_url: NotRequired[str | None]


class CallbackBody(TypedDict):
    code: str
    state: str
    base_url: NotRequired[str | None]


class DeviceBody(TypedDict):
    state: str


class ExchangeBody(TypedDict):
    id_token: str


class ExchangeCodeBody(TypedDict):
    code: str


class StreamQuery(TypedDict):
    target: NotRequired[str]
    replica: NotRequired[int]
    job: NotRequired[int]
    start_time: NotRequired[str | None]


class ScimTokenBody(TypedDict):
    name: str
