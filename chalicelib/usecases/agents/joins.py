"""Commands with which machines join SSH fleets by themselves: laptops, and machines behind NAT or without SSH access.

A command's token works once and expires. It gives a place in the fleet and nothing else: the machine gets an instance
and a bootstrap token for its agent, as a bought machine does. If the machine lacks something, the command reports that
and remains unused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.joins import Join, JoinStatus
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User, hash_token
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.read import FleetRow
from chalicelib.errors import Conflict, Contended, Forbidden, Invalid, NotFound, Refused
from chalicelib.loopback import is_loopback
from chalicelib.planning.kernel.snapshot import FleetView, NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.joining import host_left, join_host
from chalicelib.printable import printable
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Delete
from chalicelib.usecases.agents.credentials import holds, outlived
from chalicelib.usecases.context import TRIES, Joining
from chalicelib.usecases.machines.fleets import get, refuse_hosts
from chalicelib.usecases.machines.hosts import MOST_HOSTS
from chalicelib.usecases.ports import ChangePorts, CredentialPorts, RecordPorts

LEAST_SECONDS, MOST_SECONDS = 60, 7 * 86_400
MOST_UNUSED = 100  # unused commands of a fleet
MOST_SPENT = 100  # revoked and expired ones: of more, the newest are listed
MAX_INSPECTION = 16 * 1024  # bytes of a machine's report about itself
_UNKNOWN = "This command is unknown here"


class JoinPorts(ChangePorts, CredentialPorts, Protocol):
    """The ports for machines that join fleets by themselves."""

    @property
    def joining(self) -> Joining | None: ...


@dataclass(frozen=True)
class NewJoin:
    join: Join
    command: str  # with the token, which isn't stored


# --- for users --------------------------------------------------------------------------------------------------------


def create(
    plane: JoinPorts, user: User, project: Project, name: str, seconds: int, *, role: ProjectRole | None = None
) -> NewJoin:
    """A new command for one machine."""
    row = _fleet(plane, user, project, name, role)
    joining, now = _joining(plane), plane.clock.now()
    known = [(each, each.status(now)) for each in _of(plane, row.fleet)]
    unused = sum(status is JoinStatus.unused for _, status in known)
    spent = [each for each, status in known if status in (JoinStatus.revoked, JoinStatus.expired)]
    if unused >= MOST_UNUSED:
        raise Refused(f"The fleet {name} has {unused} unused commands.", hint=f"Revoke some: dstack fleet joins {name}")
    secret = plane.random_token()
    join = Join(
        id=plane.random_id(),
        project_id=project.id,
        fleet_id=row.fleet.id,
        secret_hash=hash_token(secret),
        user_id=user.id,
        user_name=user.name,
        created_at=now,
        expires_at=now + seconds * SECOND,
    )
    oldest = spent[: max(0, len(spent) - MOST_SPENT)][: MOST_UNUSED // 2]
    plane.store.commit([nouns.put(join), *(Delete(keys.join(each.id)) for each in oldest)])
    return NewJoin(join, joining.command(f"{join.id}.{secret}"))


def listed(
    plane: ChangePorts, user: User, project: Project, name: str, *, role: ProjectRole | None = None
) -> list[Join]:
    """The fleet's commands, oldest first, up to a week after they expire."""
    return _of(plane, _fleet(plane, user, project, name, role).fleet)


def revoke(
    plane: ChangePorts, user: User, project: Project, name: str, join_id: str, *, role: ProjectRole | None = None
) -> None:
    fleet = _fleet(plane, user, project, name, role).fleet
    for _ in range(TRIES):
        join, now = nouns.find(plane.store, Join, keys.join(join_id)), plane.clock.now()
        if join is None or join.fleet_id != fleet.id:
            raise NotFound(f"The fleet {name} has no such command.", hint=f"See them with: dstack fleet joins {name}")
        if join.used_at is not None:
            number = join.instance_name.rpartition("-")[2]
            hint = f"To remove the machine: dstack fleet delete {name} -i {number}"
            raise Refused(f"The command was used: {join.instance_name} has joined.", hint=hint)
        if join.revoked_at is not None:
            return
        try:
            plane.store.commit([nouns.put(join.with_(revoked_at=now))])
        except Conflict:
            continue
        return
    raise Contended("The command keeps changing.", hint="Try again.")


def _fleet(plane: ChangePorts, user: User, project: Project, name: str, role: ProjectRole | None) -> FleetRow:
    row = get(plane, project, name=name, fleet_id=None)
    refuse_hosts(plane, user, role, row)
    if FleetSpec.model_validate_json(row.spec).configuration.ssh_config is None:
        hint = "Machines join fleets with `ssh_config`, which may be `ssh_config: {hosts: []}`."
        raise Refused(f"The fleet {name} consists of machines that are bought.", hint=hint)
    return row


def _of(plane: RecordPorts, fleet: Fleet) -> list[Join]:
    return [nouns.read(Join, record) for record in all_of(plane.store, "gsi1", keys.joins_of(fleet.id))]


def _joining(plane: JoinPorts) -> Joining:
    found = plane.joining
    if found is None or is_loopback(found.server_url):
        where = f" at {found.server_url}" if found is not None else ""
        hint = "Start it with --public-url, the address at which they do, and with --host if it must listen elsewhere."
        raise Refused(f"Other machines can't reach this server{where}.", hint=hint)
    return found


# --- for machines -----------------------------------------------------------------------------------------------------


def script(plane: JoinPorts) -> str:
    """The script that the command runs. It contains no secret."""
    return _joining(plane).script()


@dataclass(frozen=True)
class JoinRequest:
    """The request of a joining machine: its token, a random number of this attempt, its name, and its inspection."""

    token: str
    attempt: str
    hostname: str
    inspection: str


def read_request(body: bytes) -> JoinRequest:
    """Parse the lines: the token, the attempt, the name, then the inspection."""
    lines = body[: MAX_INSPECTION + 1].decode("utf-8", "replace").split("\n")
    if len(body) > MAX_INSPECTION or len(lines) < 4:
        raise Invalid("A machine joins with its token, a number, its name and its description, each on a line.")
    token, attempt, hostname, *inspection = (line.strip() for line in lines)
    hostname = re.sub(r"[^A-Za-z0-9._-]", "", printable(hostname))[:60]
    return JoinRequest(token, attempt[:100], hostname or "host", "\n".join(inspection))


def redeem(plane: JoinPorts, body: bytes) -> str:
    """The answer to a machine: `refused` and the reason, `lacks` and a line for each thing that is missing, or `join`
    with the instance, its token and its name."""
    request = read_request(body)
    for _ in range(TRIES):
        try:
            return _redeem(plane, request)
        except Conflict:
            continue
    return "refused the fleet keeps changing; try again"


def _redeem(plane: JoinPorts, request: JoinRequest) -> str:
    join_id, _, secret = request.token.partition(".")
    join = nouns.find(plane.store, Join, keys.join(join_id)) if re.fullmatch(r"[0-9a-f-]{36}", join_id) else None
    if join is None or hash_token(secret) != join.secret_hash:
        raise Forbidden(_UNKNOWN)
    now = plane.clock.now()
    attempt = hash_token(request.attempt)
    if join.used_at is not None and join.try_hash == attempt and now < join.used_at + MINUTE:
        return _welcome(plane, join.instance_id, join.instance_name)
    status = join.status(now)
    if status is not JoinStatus.unused:
        why = {JoinStatus.used: f"was used for {join.instance_name}", JoinStatus.revoked: "was revoked"}
        return f"refused this command {why.get(status, 'has expired')}; print a new one: dstack fleet join-command"
    missing = _joining(plane).missing(request.inspection, join.project_id)
    if missing:
        return "\n".join(("lacks", *missing))
    found = _view(plane, join)
    if isinstance(found, str):
        return f"refused {found}"
    instance, plan = join_host(found, request.hostname, Draft(now))
    used = join.with_(used_at=now, instance_id=instance.id, instance_name=instance.name, try_hash=attempt)
    plane.committer.take(NounsSnapshot(now, (found.fleet,)), plan, [nouns.put(used)])
    return _welcome(plane, instance.id, instance.name)


def _view(plane: ChangePorts, join: Join) -> FleetView | str:
    """The fleet to join, or why it can't be joined."""
    fleet = nouns.find(plane.store, Fleet, keys.fleet(join.fleet_id))
    if fleet is None or fleet.deleted or fleet.status is not FleetStatus.active:
        return "the fleet is being deleted" if fleet is not None else "the fleet is gone"
    if not _backed(plane, join, fleet):
        return f"this command is {join.user_name}'s, who may no longer change the fleet; ask somebody who may"
    instances = plane.read.fleet_row(fleet).instances
    if len(instances) >= MOST_HOSTS:
        return f"the fleet {fleet.name} has {MOST_HOSTS} machines already"
    return FleetView(fleet, plane.read.fleet_spec(fleet.id, fleet.spec_num), instances)


def _backed(plane: ChangePorts, join: Join, fleet: Fleet) -> bool:
    """May the command's creator still change the fleet? A machine that joins gets other people's jobs."""
    user = nouns.find(plane.store, User, keys.user(join.user_id))
    member = nouns.find(plane.store, Member, keys.member(join.project_id, join.user_id))
    if user is None or not user.active or (member is None and user.role is not GlobalRole.admin):
        return False
    return plane.permissions.end_hosts(user, None if member is None else member.role, fleet.user_id)


def _welcome(plane: CredentialPorts, instance_id: str, name: str) -> str:
    return f"join {instance_id} {bootstrap_token(plane.install_key, instance_id, 0)} {name}"


def left(plane: JoinPorts, credential: str, instance_id: str) -> None:
    """Handle an agent's report that its host is cleared."""
    for _ in range(TRIES):
        instance = nouns.find(plane.store, Instance, keys.instance(instance_id))
        if instance is None and outlived(plane, instance_id, credential):
            return
        presence = nouns.find(plane.store, Presence, keys.presence(instance_id))
        if instance is None or presence is None or not holds(presence, credential):
            raise Forbidden("This credential doesn't belong to this instance")
        now = plane.clock.now()
        plan = host_left(instance, Draft(now))
        if plan.empty:
            return
        try:
            plane.committer.take(NounsSnapshot(now, (instance,)), plan)
        except Conflict:
            continue
        return
    raise Contended("The instance keeps changing.", hint="Try again.")
