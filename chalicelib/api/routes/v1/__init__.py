"""The resources under `/api/v1`, a file for each noun, and the table of their routes.

GET reads and changes nothing. POST to a list makes a resource, and its answer is 201 with its `Location`; POST to a
verb does it; PUT sets what is at its address, and PATCH some of it; DELETE removes. Every write takes `?dry_run=true`,
which says what it would do, and an `Idempotency-Key`.
"""

from __future__ import annotations

from chalicelib.api.route import Access
from chalicelib.domain.access_tokens import Verb

_ALL = "/api/v1"
_IN = "/api/v1/projects/{project_name}"

ROWS = (
    ("GET", f"{_ALL}/changes", Access.user, Verb.read, "v1.changes.follow"),
    ("GET", f"{_ALL}/runs", Access.user, Verb.read, "v1.runs.list_all"),
    ("GET", f"{_IN}/runs", Access.member, Verb.read, "v1.runs.list_project"),
    ("POST", f"{_IN}/runs", Access.member, Verb.run, "v1.runs.submit"),
    ("GET", f"{_IN}/runs/{{run_name}}", Access.member, Verb.read, "v1.runs.get"),
    ("DELETE", f"{_IN}/runs/{{run_name}}", Access.member, Verb.run, "v1.runs.delete"),
    ("GET", f"{_IN}/runs/{{run_name}}/spec", Access.member, Verb.read, "v1.runs.get_spec"),
    ("PUT", f"{_IN}/runs/{{run_name}}/spec", Access.member, Verb.run, "v1.runs.apply"),
    ("GET", f"{_IN}/runs/{{run_name}}/revisions", Access.member, Verb.read, "v1.runs.list_revisions"),
    ("POST", f"{_IN}/runs/{{run_name}}/roll-back", Access.member, Verb.run, "v1.runs.roll_back"),
    ("POST", f"{_IN}/runs/{{run_name}}/stop", Access.member, Verb.run, "v1.runs.stop"),
    ("GET", f"{_IN}/runs/{{run_name}}/jobs", Access.member, Verb.read, "v1.runs.list_jobs"),
    ("GET", f"{_IN}/runs/{{run_name}}/logs", Access.member, Verb.read, "v1.runs.read_logs"),
    ("GET", f"{_IN}/runs/{{run_name}}/metrics", Access.member, Verb.read, "v1.runs.read_metrics"),
    ("GET", f"{_IN}/runs/{{run_name}}/service", Access.member, Verb.read, "v1.services.get"),
    ("GET", f"{_ALL}/fleets", Access.user, Verb.read, "v1.fleets.list_all"),
    ("GET", f"{_IN}/fleets", Access.member, Verb.read, "v1.fleets.list_project"),
    ("POST", f"{_IN}/fleets", Access.member, Verb.fleets, "v1.fleets.create"),
    ("GET", f"{_IN}/fleets/{{fleet_name}}", Access.member, Verb.read, "v1.fleets.get"),
    ("DELETE", f"{_IN}/fleets/{{fleet_name}}", Access.member, Verb.fleets, "v1.fleets.delete"),
    ("GET", f"{_IN}/fleets/{{fleet_name}}/spec", Access.member, Verb.read, "v1.fleets.get_spec"),
    ("PUT", f"{_IN}/fleets/{{fleet_name}}/spec", Access.member, Verb.fleets, "v1.fleets.apply"),
    (
        "DELETE",
        f"{_IN}/fleets/{{fleet_name}}/instances/{{instance_num}}",
        Access.member,
        Verb.fleets,
        "v1.fleets.delete_instance",
    ),
    (
        "GET",
        f"{_IN}/fleets/{{fleet_name}}/instances/{{instance_num}}/health",
        Access.member,
        Verb.read,
        "v1.fleets.get_health",
    ),
    ("GET", f"{_ALL}/instances", Access.user, Verb.read, "v1.instances.list_all"),
    ("GET", f"{_IN}/instances", Access.member, Verb.read, "v1.instances.list_project"),
    ("GET", f"{_IN}/instances/{{instance_id}}", Access.member, Verb.read, "v1.instances.get"),
    ("GET", f"{_ALL}/volumes", Access.user, Verb.read, "v1.volumes.list_all"),
    ("GET", f"{_IN}/volumes", Access.member, Verb.read, "v1.volumes.list_project"),
    ("POST", f"{_IN}/volumes", Access.member, Verb.fleets, "v1.volumes.create"),
    ("GET", f"{_IN}/volumes/{{volume_name}}", Access.member, Verb.read, "v1.volumes.get"),
    ("DELETE", f"{_IN}/volumes/{{volume_name}}", Access.member, Verb.fleets, "v1.volumes.delete"),
    ("GET", f"{_IN}/gateways", Access.member, Verb.read, "v1.gateways.list_project"),
    ("POST", f"{_IN}/gateways", Access.project_admin, Verb.fleets, "v1.gateways.create"),
    ("GET", f"{_IN}/gateways/{{gateway_name}}", Access.member, Verb.read, "v1.gateways.get"),
    ("DELETE", f"{_IN}/gateways/{{gateway_name}}", Access.project_admin, Verb.fleets, "v1.gateways.delete"),
    ("GET", f"{_IN}/gateways/{{gateway_name}}/spec", Access.member, Verb.read, "v1.gateways.get_spec"),
    ("PUT", f"{_IN}/gateways/{{gateway_name}}/spec", Access.project_admin, Verb.fleets, "v1.gateways.apply"),
    ("GET", f"{_IN}/offers", Access.member, Verb.read, "v1.offers.list_project"),
    ("GET", f"{_ALL}/events", Access.user, Verb.read, "v1.events.list_all"),
    ("GET", f"{_IN}/events", Access.member, Verb.read, "v1.events.list_project"),
    ("GET", f"{_ALL}/projects", Access.user, Verb.read, "v1.projects.list_all"),
    ("POST", f"{_ALL}/projects", Access.user, Verb.project, "v1.projects.create"),
    ("GET", _IN, Access.visitor, Verb.read, "v1.projects.get"),
    ("PATCH", _IN, Access.project_admin, Verb.project, "v1.projects.change"),
    ("DELETE", _IN, Access.project_admin, Verb.project, "v1.projects.delete"),
    ("GET", f"{_IN}/members", Access.visitor, Verb.read, "v1.projects.list_members"),
    (
        "PUT",
        f"{_IN}/members/{{user_name}}",
        Access.visitor,
        Verb.project,
        "v1.projects.set_member",
    ),  # as add_members has it
    ("DELETE", f"{_IN}/members/{{user_name}}", Access.member, Verb.project, "v1.projects.remove_member"),
    ("GET", f"{_IN}/secrets", Access.keeper, Verb.project, "v1.secrets.list_project"),
    ("GET", f"{_IN}/secrets/{{secret_name}}", Access.keeper, Verb.project, "v1.secrets.get"),
    ("PUT", f"{_IN}/secrets/{{secret_name}}", Access.keeper, Verb.project, "v1.secrets.put"),
    ("DELETE", f"{_IN}/secrets/{{secret_name}}", Access.keeper, Verb.project, "v1.secrets.delete"),
    ("GET", f"{_IN}/quota", Access.member, Verb.read, "v1.quotas.get"),
    (
        "PUT",
        f"{_IN}/quota",
        Access.project_admin,
        Verb.project,
        "v1.quotas.put",
    ),  # needs a global admin, which the use case checks
    ("PUT", f"{_IN}/quota/each-user", Access.project_admin, Verb.project, "v1.quotas.put_each"),
    ("PUT", f"{_IN}/quota/users/{{user_name}}", Access.project_admin, Verb.project, "v1.quotas.put_user"),
    ("GET", f"{_ALL}/costs", Access.admin, Verb.server, "v1.costs.list_all"),
    ("GET", f"{_ALL}/costs.csv", Access.admin, Verb.server, "v1.costs.list_all_csv"),
    ("GET", f"{_IN}/costs", Access.manager, Verb.read, "v1.costs.list_project"),
    ("GET", f"{_IN}/costs.csv", Access.manager, Verb.read, "v1.costs.list_project_csv"),
    ("GET", f"{_IN}/state", Access.member, Verb.read, "v1.moments.get_state"),
    ("GET", f"{_IN}/marks", Access.member, Verb.read, "v1.moments.list_marks"),
    ("GET", f"{_IN}/backends", Access.project_admin, Verb.project, "v1.backends.list_project"),
    ("GET", f"{_IN}/backends/{{backend_type}}", Access.project_admin, Verb.project, "v1.backends.get"),
    ("PUT", f"{_IN}/backends/{{backend_type}}", Access.project_admin, Verb.project, "v1.backends.put"),
    ("DELETE", f"{_IN}/backends/{{backend_type}}", Access.project_admin, Verb.project, "v1.backends.delete"),
    ("GET", f"{_ALL}/users", Access.user, Verb.read, "v1.users.list_all"),
    ("POST", f"{_ALL}/users", Access.admin, None, "v1.users.create"),
    ("GET", f"{_ALL}/users/me", Access.user, Verb.read, "v1.users.me"),
    ("GET", f"{_ALL}/users/{{user_name}}", Access.user, Verb.read, "v1.users.get"),
    ("PATCH", f"{_ALL}/users/{{user_name}}", Access.admin, None, "v1.users.change"),
    ("DELETE", f"{_ALL}/users/{{user_name}}", Access.admin, Verb.server, "v1.users.delete"),
)

ENDS_PROJECT = "v1.projects.delete"

# Calls that `Prefer: wait` lets wait, until their resource is settled.
SETTLING = (
    *("v1.runs.submit", "v1.runs.get", "v1.runs.stop"),
    *("v1.fleets.create", "v1.fleets.get"),
    *("v1.volumes.create", "v1.volumes.get"),
    *("v1.gateways.create", "v1.gateways.get"),
)

# Calls without a project in their path that a token for some projects may make, as with those of the protocol.
NARROWED = (
    "v1.changes.follow",
    "v1.runs.list_all",
    "v1.fleets.list_all",
    "v1.instances.list_all",
    "v1.volumes.list_all",
    "v1.events.list_all",
    "v1.projects.list_all",
    "v1.users.list_all",
    "v1.users.me",
)
