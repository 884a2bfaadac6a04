"""Every key and index entry of the table, in one place. Each noun builds its own from these (`place`).

| noun      | pk               | sk                      | gsi1                               | gsi2                   |
|-----------|------------------|-------------------------|------------------------------------|------------------------|
| Run       | run/<id>         | status                  | runs/<project>, submitted#id       | live/<project> (****)  |
| RunBody   | run/<id>         | body/<deployment>       |                                    |                        |
| Job       | run/<id>         | job/<replica>/<job>/<n> | queue/<project>, priority#age (*)  |                        |
| Gang      | run/<id>         | gang/<replica>/<n>      |                                    |                        |
| Traffic   | traffic/<run>    | <door>                  |                                    |                        |
| Fleet     | fleet/<id>       | status                  | fleets/<project>, created#id       | ended-fleets (*****)   |
| FleetBody | fleet/<id>       | body/<num>              |                                    |                        |
| Instance  | instance/<id>    | status                  | instances/<fleet>, num#epoch       | free/<project> (**)    |
| Presence  | instance/<id>    | presence                | presences, instance (******)       |                        |
| Workflow  | workflow/<id>    | status                  |                                    |                        |
| StreamOrder | instance/<id>  | stream/<id>             |                                    |                        |
| Contact   | instance/<id>    | contact                 | tunnels, instance                  |                        |
| Join      | join/<id>        | status                  | joins/<fleet>, created#id          |                        |
| Volume    | volume/<id>      | status                  | volumes/<project>, created#id      | ended-volumes (*****)  |
| Gateway   | gateway/<id>     | status                  | gateways/<project>, created#id     | ended-gateways (*****) |
| Certificate | certificate/<id> | status                | certificates/<gateway>, host       |                        |
| Registration | project/<id>  | authority/<directory>   |                                    |                        |
| Event     | events/<project> | at#id of the first      | run-events/<run>                   | fleet-events/<fleet>   |
| User      | user/<id>        | status                  |                                    |                        |
| Admins    | users            | admins                  |                                    |                        |
| SignOn    | token/<hash>     | sign-on                 | sign-ons/<user>, hash              |                        |
| AccessToken | token/<hash>, or run/<id> | access       |                                    |                        |
| SignInCode | token/<hash>    | code                    |                                    |                        |
| DirectoryToken | token/<hash> | directory              |                                    |                        |
| DirectoryUser | directory    | user/<user>             |                                    |                        |
| DirectoryGroup | directory   | group/<id>              |                                    |                        |
| KeyedRequest | user/<id>     | request/<hash of key>   |                                    |                        |
| Project   | project/<id>     | status                  |                                    |                        |
| Closing   | closing/<project> | status                 | closings, began#id (***)           |                        |
| Member    | project/<id>     | member/<user>           | member-of/<user>, project          |                        |
| Quota     | project/<id>     | quota/limits            |                                    |                        |
| Spending  | spending/<limit> | status                  |                                    |                        |
| CostDay   | project/<id>     | costs/<date>            |                                    |                        |
| PendingTrace | pending-traces | <run>                  |                                    |                        |
| ObjectiveDay | objectives    | <date>                  |                                    |                        |
| Moment    | moments/<project> | at                     |                                    |                        |
| MomentPart | moment-parts/<project> | at#number        |                                    |                        |
| Export    | project/<id>     | export/<name>           |                                    |                        |
| Secret    | project/<id>     | secret/<name>           |                                    |                        |
| Configured | project/<id>    | backend/<type>          |                                    |                        |
| BackendRoster | backends     | roster                  |                                    |                        |
| Automation | project/<id>    | automation/<name>       |                                    |                        |
| Automated | automated/<project> | <rule>#<event>      |                                    |                        |
| RuleCount | automated/<project> | <rule>              |                                    |                        |
| Subscription | subscriptions | webhook/<name>, rule/<name> |                              |                        |
| Repo      | project/<id>     | repo/<repo_id>          |                                    |                        |
| Archive   | archive/<id>     | status                  | archives or unused-archives, used#id |                      |
| UserUploads | user/<id>      | uploads                 |                                    |                        |
| Sighting  | sightings/<acct> | hash of its subject     |                                    |                        |
| UpgradeProgress | renewal    | form                    |                                    |                        |
| Round     | round            | blobs                   |                                    |                        |
| BooksPlace | projects        | books                   |                                    |                        |
| ScheduleTurn | schedule      | name                    |                                    |                        |
| Restoration | restoration    | status                  |                                    |                        |
| LogChunk  | log/<project>/<job> | first byte           |                                    |                        |
| Program   | program/<digest> | status                  |                                    |                        |
| Fence     | plane            | fence                   |                                    |                        |
| names     | see `*_name`, `disk`, `identity` | | pointers, so that a name is taken by one commit only |              |

(*) only once it has to wait for capacity, and of several nodes only the first; (**) only while it has a free block, and
`ended-instances` once it is terminated; (***) until everything of it is erased, then `closed` until its own record is
erased too; (****) `ended-runs` once it has ended, until its logs are erased; `deleted-runs` once it is deleted, until
it is; (*****) once it has ended; (******) where calls are billed, until its instance has ended. Deleted runs, fleets
and volumes leave the lists of their projects.
"""

from __future__ import annotations

from typing import NamedTuple

from chalicelib.domain.instants import Micros, sortable

STATUS = "status"
EVENTS = "events/"  # begins the partition of every project's events

# Partitions of records that will be erased, oldest first: see `engine/erase_unused.py`.
ENDED_RUNS = "ended-runs"
DELETED_RUNS = "deleted-runs"
ENDED_INSTANCES = "ended-instances"
ENDED_FLEETS = "ended-fleets"
ENDED_VOLUMES = "ended-volumes"
ENDED_GATEWAYS = "ended-gateways"
CLOSINGS = "closings"
CLOSED = "closed"
ARCHIVES = "archives"
UNUSED_ARCHIVES = "unused-archives"  # that no run was submitted with

JOB = "job/"  # begins the jobs in their run's partition
LOGS = "log/"  # begins the partitions of the chunks of jobs' logs
COST_DAYS = "costs/"  # begins the days whose costs are counted, in the project's partition
PENDING_TRACES = "pending-traces"  # runs whose traces aren't exported
OBJECTIVES = "objectives"  # days of what the server measures of itself
SUBSCRIPTIONS = "subscriptions"  # webhooks and rules, and how far each has come
PRESENCES = "presences"  # agents that have to report
DIRECTORY = "directory"  # what directories say by SCIM
ACCESS_TOKENS = "access-token/"  # begins the names of a user's, in the user's partition
TUNNELS = "tunnels"  # hosts whose agents' calls are carried over SSH


class Key(NamedTuple):
    pk: str
    sk: str

    def __str__(self) -> str:
        return f"{self.pk}:{self.sk}"


ROUND = Key("round", "blobs")
BOOKS = Key("projects", "books")  # before their names, so that one query reads both
ROSTER = Key("backends", "roster")
RESTORATION = Key("restoration", STATUS)
FENCE = Key("plane", "fence")  # whether this store decides: see `domain/fences.py`


class Due(NamedTuple):
    """When a pass over `unit` is due (`run/<id>`, `queue/<project>`, `instance/<id>`, `fleet/<id>`, …)."""

    kind: str
    unit: str
    at: Micros


class Place(NamedTuple):
    """A noun's key, its entries in the two indexes, when it is due, and when it may expire."""

    key: Key
    gsi1: tuple[str, str] | None = None  # (partition, sort)
    gsi2: tuple[str, str] | None = None
    due: Due | None = None
    expires_at: int | None = None  # epoch seconds


def due(unit: str, at: Micros | None) -> Due | None:
    """The entry of `kind/<id>`; None if no pass is due."""
    return None if at is None else Due(unit.partition("/")[0], unit, at)


def run(run_id: str) -> Key:
    return Key(f"run/{run_id}", STATUS)


def run_body(run_id: str, deployment_num: int) -> Key:
    return Key(f"run/{run_id}", f"body/{deployment_num:06d}")


def job(run_id: str, replica_num: int, job_num: int, submission_num: int) -> Key:
    return Key(f"run/{run_id}", f"{JOB}{replica_num:05d}/{job_num:05d}/{submission_num:05d}")


def is_job(key: Key) -> bool:
    return key.pk.startswith("run/") and key.sk.startswith(JOB)


def gang(run_id: str, replica_num: int, submission_num: int) -> Key:
    return Key(f"run/{run_id}", f"gang/{replica_num:05d}/{submission_num:05d}")


def traffic(run_id: str, door: str) -> Key:
    return Key(f"traffic/{run_id}", door)


def run_name(project_id: str, name: str) -> Key:
    """Pointer to the latest undeleted run with this name."""
    return Key(f"project/{project_id}", f"run-name/{name}")


def fleet(fleet_id: str) -> Key:
    return Key(f"fleet/{fleet_id}", STATUS)


def fleet_body(fleet_id: str, spec_num: int) -> Key:
    return Key(f"fleet/{fleet_id}", f"body/{spec_num:06d}")


def fleet_name(project_id: str, name: str) -> Key:
    return Key(f"project/{project_id}", f"fleet-name/{name}")


def instance(instance_id: str) -> Key:
    return Key(f"instance/{instance_id}", STATUS)


def presence(instance_id: str) -> Key:
    return Key(f"instance/{instance_id}", "presence")


def stream_order(instance_id: str, stream_id: str) -> Key:
    return Key(f"instance/{instance_id}", f"stream/{stream_id}")


def workflow(workflow_id: str) -> Key:
    return Key(f"workflow/{workflow_id}", STATUS)


def contact(instance_id: str) -> Key:
    return Key(f"instance/{instance_id}", "contact")


def join(join_id: str) -> Key:
    return Key(f"join/{join_id}", STATUS)


def volume(volume_id: str) -> Key:
    return Key(f"volume/{volume_id}", STATUS)


def volume_name(project_id: str, name: str) -> Key:
    return Key(f"project/{project_id}", f"volume-name/{name}")


def gateway(gateway_id: str) -> Key:
    return Key(f"gateway/{gateway_id}", STATUS)


def gateway_name(project_id: str, name: str) -> Key:
    return Key(f"project/{project_id}", f"gateway-name/{name}")


def default_gateway(project_id: str) -> Key:
    """Pointer to the gateway of the services that name none."""
    return Key(f"project/{project_id}", "default-gateway")


def disk(backend: str, region: str, disk_id: str) -> Key:
    """Pointer to the external volume with this id at its provider; at most one volume has it at a time."""
    return Key(f"disk/{backend}/{region}/{disk_id}", STATUS)


def certificate(certificate_id: str) -> Key:
    return Key(f"certificate/{certificate_id}", STATUS)


def registration(project_id: str, directory: str) -> Key:
    return Key(f"project/{project_id}", f"authority/{directory}")


def event(project_id: str, at: Micros, event_id: str) -> Key:
    return Key(events_of(project_id), f"{sortable(at)}#{event_id}")


def events_of(project_id: str) -> str:
    return f"{EVENTS}{project_id}"


def event_at(key: Key) -> Micros:
    """When the first event under this key happened."""
    return int(key.sk.partition("#")[0])


def user(user_id: str) -> Key:
    return Key(f"user/{user_id}", STATUS)


def uploads(user_id: str) -> Key:
    return Key(f"user/{user_id}", "uploads")


def keyed_request(user_id: str, key_hash: str) -> Key:
    return Key(f"user/{user_id}", f"request/{key_hash}")


def user_name(name: str) -> Key:
    return Key("users", f"name/{name}")


def admins() -> Key:
    return Key("users", "admins")


def rights() -> Key:
    return Key("users", "rights")


def token(token_hash: str) -> Key:
    return Key(f"token/{token_hash}", "user")


def sign_on(token_hash: str) -> Key:
    return Key(f"token/{token_hash}", "sign-on")


def access_token(token_hash: str) -> Key:
    return Key(f"token/{token_hash}", "access")


def run_access(run_id: str) -> Key:
    """The access token of a run's jobs."""
    return Key(f"run/{run_id}", "access")


def run_of_token(token_hash: str) -> Key:
    """Pointer to the run whose jobs have this access token."""
    return Key(f"token/{token_hash}", "run")


def sign_in_code(code_hash: str) -> Key:
    return Key(f"token/{code_hash}", "code")


def access_token_name(user_id: str, name: str) -> Key:
    """Pointer to the hash of a user's access token."""
    return Key(f"user/{user_id}", f"{ACCESS_TOKENS}{name}")


def workload_token(token_hash: str) -> Key:
    """Pointer from a program's ID token to the access token that it was exchanged for, so that it works once."""
    return Key(f"workload/{token_hash}", "token")


def identity(subject_hash: str) -> Key:
    """Pointer to the user who signs on with this account."""
    return Key(f"identity/{subject_hash}", "user")


def directory_token(token_hash: str) -> Key:
    return Key(f"token/{token_hash}", "directory")


def directory_token_name(name: str) -> Key:
    """Pointer to the hash of a directory's token."""
    return Key(DIRECTORY, f"token/{name}")


def directory_user(user_id: str) -> Key:
    return Key(DIRECTORY, f"user/{user_id}")


def directory_user_name(user_name: str) -> Key:
    """Pointer to the user whom a directory calls so, in lower case."""
    return Key(DIRECTORY, f"name/{user_name.lower()}")


def directory_group(group_id: str) -> Key:
    return Key(DIRECTORY, f"group/{group_id}")


def project(project_id: str) -> Key:
    return Key(f"project/{project_id}", STATUS)


def closing(project_id: str) -> Key:
    return Key(f"closing/{project_id}", STATUS)


def project_name(name: str) -> Key:
    return Key("projects", f"name/{name}")


def member(project_id: str, user_id: str) -> Key:
    return Key(f"project/{project_id}", f"member/{user_id}")


def quota(project_id: str) -> Key:
    return Key(f"project/{project_id}", "quota/limits")


def spending(limit_id: str) -> Key:
    return Key(f"spending/{limit_id}", STATUS)


def moment(project_id: str, at: Micros) -> Key:
    return Key(f"moments/{project_id}", sortable(at))


def moment_part(project_id: str, at: Micros, number: int) -> Key:
    return Key(f"moment-parts/{project_id}", f"{sortable(at)}#{number}")


def cost_day(project_id: str, day: Micros) -> Key:
    return Key(f"project/{project_id}", f"{COST_DAYS}{sortable(day)}")


def objective_day(day: Micros) -> Key:
    return Key(OBJECTIVES, sortable(day))


def pending_trace(run_id: str) -> Key:
    return Key(PENDING_TRACES, run_id)


def export(project_id: str, name: str) -> Key:
    return Key(f"project/{project_id}", f"export/{name}")


def imported(project_id: str, exporter_id: str, name: str) -> Key:
    """Pointer of an importing project to an export."""
    return Key(f"project/{project_id}", f"import/{exporter_id}/{name}")


def for_all(exporter_id: str, name: str) -> Key:
    """Pointer to an export for every project."""
    return Key("exports", f"all/{exporter_id}/{name}")


def secret(project_id: str, name: str) -> Key:
    return Key(f"project/{project_id}", f"secret/{name}")


def backend(project_id: str, type: str) -> Key:
    return Key(f"project/{project_id}", f"backend/{type}")


def automation(project_id: str, name: str) -> Key:
    return Key(f"project/{project_id}", f"automation/{name}")


def automated(project_id: str, rule: str, event_id: str) -> Key:
    return Key(f"automated/{project_id}", f"{rule}#{event_id}")


def rule_count(project_id: str, rule: str) -> Key:
    return Key(f"automated/{project_id}", rule)


def subscription(name: str) -> Key:
    return Key(SUBSCRIPTIONS, name)


def repo(project_id: str, repo_id: str) -> Key:
    return Key(f"project/{project_id}", f"repo/{repo_id}")


def archive(archive_id: str) -> Key:
    return Key(f"archive/{archive_id}", STATUS)


def sightings_of(account: str) -> str:
    return f"sightings/{account}"


def sighting(account: str, subject_hash: str) -> Key:
    return Key(sightings_of(account), subject_hash)


def schedule(name: str) -> Key:
    return Key("schedule", name)


def renewal(form: int) -> Key:
    return Key("renewal", f"{form:05d}")


def program(digest: str) -> Key:
    return Key(f"program/{digest}", STATUS)


def metric(job_id: str, at: Micros) -> Key:
    return Key(f"metrics/{job_id}", sortable(at))


def log_of(project_id: str, job_id: str) -> str:
    return f"{LOGS}{project_id}/{job_id}"


def log_chunk(project_id: str, job_id: str, first: int) -> Key:
    return Key(log_of(project_id, job_id), f"{first:016d}")


def health_check(instance_id: str, at: Micros, status: str) -> Key:
    return Key(f"health/{instance_id}", f"{sortable(at)}#{status}")


# --- index entries ----------------------------------------------------------------------------------------------------


def by_time(partition: str, at: Micros, tie: str) -> tuple[str, str]:
    return (partition, f"{sortable(at)}#{tie}")


def runs_of(project_id: str) -> str:
    return f"runs/{project_id}"


def live_runs_of(project_id: str) -> str:
    return f"live/{project_id}"


def queue_of(project_id: str) -> str:
    return f"queue/{project_id}"


def queue_sort(priority: int, submitted_at: Micros, job_id: str) -> str:
    """The sort key of the queue: higher priority first, then older."""
    return f"{999 - priority:03d}#{sortable(submitted_at)}#{job_id}"


def fleets_of(project_id: str) -> str:
    return f"fleets/{project_id}"


def instances_of(fleet_id: str) -> str:
    return f"instances/{fleet_id}"


def joins_of(fleet_id: str) -> str:
    return f"joins/{fleet_id}"


def volumes_of(project_id: str) -> str:
    return f"volumes/{project_id}"


def gateways_of(project_id: str) -> str:
    return f"gateways/{project_id}"


def certificates_of(gateway_id: str) -> str:
    return f"certificates/{gateway_id}"


def free_of(project_id: str) -> str:
    return f"free/{project_id}"


def run_events(run_id: str) -> str:
    return f"run-events/{run_id}"


def fleet_events(fleet_id: str) -> str:
    return f"fleet-events/{fleet_id}"


def sign_ons_of(user_id: str) -> str:
    return f"sign-ons/{user_id}"


def member_of(user_id: str) -> str:
    return f"member-of/{user_id}"
