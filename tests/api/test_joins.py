"""Machines join SSH fleets by themselves: commands that work once, expire and can be revoked; and how they leave."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.joins import Join
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import ProjectRole
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Invalid
from chalicelib.hosts.join_script import JoinScript
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.agents import joins
from tests.api.rig import ADMIN, Rig, fleet
from tests.api.test_fleets import create

BY_THEMSELVES = {"configuration": {"type": "fleet", "name": "lab", "ssh_config": {"hosts": []}}, "profile": {}}
FINE = """uid=0
sudo=root
arch=x86_64
kernel=Linux
python=3.11
systemd=yes
docker_client=yes
docker=24.0
disk_kib=50000000
owner=
end=yes
"""


def command(rig: Rig, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = rig.ok("P/fleets/create_join", {"name": "lab", **more})
    return made


def token_of(made: dict[str, Any]) -> str:
    """What the pasted line writes to the script."""
    found: str = made["command"].split("printf '%s\\n' ")[1].split(" |")[0].strip("'")
    return found


def machine_joins(
    rig: Rig,
    made: dict[str, Any],
    *,
    attempt: str = "one",
    inspection: str = FINE,
    name: str = "laptop",
    status: int = 200,
) -> str:
    body = f"{token_of(made)}\n{attempt}\n{name}\n{inspection}".encode()
    found = rig.call("/agent/join", body, token=None)
    assert found.status == status, found
    return found.body.decode() if status == 200 else ""


def instances(rig: Rig) -> list[Instance]:
    ids = [one["id"] for one in rig.ok("P/fleets/get", {"name": "lab"})["instances"]]
    return [found for each in ids if (found := nouns.find(rig.world.store, Instance, keys.instance(each)))]


@pytest.fixture
def lab(rig: Rig) -> Rig:
    create(rig, BY_THEMSELVES)
    return rig


def test_a_machine_gets_an_instance_and_its_agents_token(lab: Rig) -> None:
    made = command(lab)
    verdict, instance_id, token, name = machine_joins(lab, made).split()
    (instance,) = instances(lab)
    assert (verdict, instance_id, name) == ("join", instance.id, "lab-0")
    assert token == bootstrap_token(lab.world.plane.install_key, instance.id, 0)
    assert instance.host is not None and instance.host.joined and instance.hostname == "laptop"
    (listed,) = lab.ok("P/fleets/list_joins", {"name": "lab"})
    assert (listed["status"], listed["instance_name"], listed["created_by"]) == ("used", "lab-0", "admin")
    assert "command" not in listed, "the token is shown once"
    join = nouns.find(lab.world.store, Join, keys.join(made["id"]))
    assert join is not None and token_of(made).partition(".")[2] not in join.model_dump_json()


def test_a_command_of_another_fleet_is_unknown_to_this_one(lab: Rig) -> None:
    made = command(lab)
    other = {**BY_THEMSELVES, "configuration": {**BY_THEMSELVES["configuration"], "name": "attic"}}
    create(lab, other)
    for name, join_id in (("attic", made["id"]), ("lab", "6628ef34-2e9a-4af5-aab4-144f175852f7")):
        assert "has no such command" in lab.refused("P/fleets/revoke_join", {"name": name, "id": join_id})
    assert machine_joins(lab, made).startswith("join ")


def test_a_command_works_once_and_a_lost_answer_may_be_repeated(lab: Rig) -> None:
    made = command(lab)
    first = machine_joins(lab, made)
    assert machine_joins(lab, made) == first, "the same try: its answer was lost"
    assert machine_joins(lab, made, attempt="two").startswith("refused this command was used for lab-0")
    lab.world.clock.pass_(61)
    assert machine_joins(lab, made).startswith("refused this command was used for lab-0")
    assert len(instances(lab)) == 1


def test_a_command_expires_and_can_be_revoked(lab: Rig) -> None:
    soon, revoked = command(lab, expires_in=60), command(lab)
    lab.ok("P/fleets/revoke_join", {"name": "lab", "id": revoked["id"]})
    lab.ok("P/fleets/revoke_join", {"name": "lab", "id": revoked["id"]})  # again: harmless
    lab.world.clock.pass_(60)
    assert "has expired" in machine_joins(lab, soon) and "was revoked" in machine_joins(lab, revoked)
    assert [one["status"] for one in lab.ok("P/fleets/list_joins", {"name": "lab"})] == ["expired", "revoked"]
    assert instances(lab) == []
    used = command(lab)
    machine_joins(lab, used)
    assert "dstack fleet delete lab -i 0" in lab.refused("P/fleets/revoke_join", {"name": "lab", "id": used["id"]})


def test_commands_that_are_spent_are_kept_in_bounded_numbers(lab: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "MOST_UNUSED", 4)
    monkeypatch.setattr(joins, "MOST_SPENT", 3)
    revoked = [command(lab)["id"] for _ in range(4)]
    assert "has 4 unused commands" in lab.refused("P/fleets/create_join", {"name": "lab"})
    for each in revoked:
        lab.ok("P/fleets/revoke_join", {"name": "lab", "id": each})
    used = command(lab)
    machine_joins(lab, used)

    def listed() -> dict[str, int]:
        return Counter(one["status"] for one in lab.ok("P/fleets/list_joins", {"name": "lab"}))

    assert listed() == {"revoked": 3, "used": 1}, "the oldest is forgotten"
    for _ in range(4):
        lab.world.clock.pass_(60)
        command(lab, expires_in=60)
    lab.world.clock.pass_(60)
    assert listed() == {"used": 1, "expired": 4}
    command(lab)
    assert listed() == {"used": 1, "expired": 3, "unused": 1}
    assert "was used for lab-0" in machine_joins(lab, used, attempt="two"), "what became a machine stays"


def test_what_it_lacks_is_named_together_and_leaves_the_command_unused(lab: Rig) -> None:
    made = command(lab)
    poor = FINE.replace("docker=24.0\ndocker_client=yes\n", "").replace("docker=24.0", "").replace("3.11", "3.6")
    verdict, *lacks = machine_joins(lab, made, inspection=poor + "clock=1\n").split("\n")
    assert verdict == "lacks" and len(lacks) == 3
    assert "Python is 3.6" in lacks[0] and "Docker" in lacks[1] and "minutes behind the server's" in lacks[2]
    assert machine_joins(lab, made, inspection="uid=0\n").startswith("lacks\ninspecting it was cut short")
    assert machine_joins(lab, made).startswith("join ")


def test_a_host_of_another_fleet_is_told_whose_it_is(lab: Rig) -> None:
    _, instance_id, *_ = machine_joins(lab, command(lab)).split()
    inspection = FINE.replace("owner=", f"owner={lab.world.plane.install_id}/{instance_id}")
    assert "it belongs to fleet lab (instance lab-0)" in machine_joins(lab, command(lab), inspection=inspection)


@pytest.mark.parametrize("body", [b"", b"one line", b"a\nb\nc", b"x" * 20_000, b"\n" * 20_000])
def test_what_says_nothing_is_refused(lab: Rig, body: bytes) -> None:
    assert lab.call("/agent/join", body, token=None).status == 400


def test_a_look_may_have_so_many_bytes_and_no_more() -> None:
    most = b"token\none\nname\n".ljust(joins.MAX_INSPECTION - 1, b"x") + b"y"
    assert joins.read_request(most).inspection.endswith("xy")
    with pytest.raises(Invalid):
        joins.read_request(most + b"z")


def test_an_unknown_command_reveals_nothing(lab: Rig) -> None:
    made = command(lab)
    for wrong in (f"{made['id']}.guess", "nonsense", f"{made['id']}", ""):
        body = f"{wrong}\none\nname\n{FINE}".encode()
        assert lab.call("/agent/join", body, token=None).status == 403


def test_who_may_not_change_the_fleet_gets_no_command(lab: Rig) -> None:
    ann = lab.user("ann", ProjectRole.user)
    for path, more in (("create_join", {}), ("list_joins", {}), ("revoke_join", {"id": "x" * 8})):
        lab.refused(f"P/fleets/{path}", {"name": "lab", **more}, token=ann)


@pytest.mark.parametrize("ends", ["removed", "demoted", "deactivated"])
def test_a_command_is_worth_no_more_than_whoever_made_it(lab: Rig, ends: str) -> None:
    ann = lab.user("ann", ProjectRole.manager)
    made, other = (lab.ok("P/fleets/create_join", {"name": "lab"}, token=ann) for _ in range(2))
    assert machine_joins(lab, made).startswith("join ")
    if ends == "removed":
        lab.ok("/api/projects/main/remove_members", {"usernames": ["ann"]})
    elif ends == "demoted":
        lab.ok("/api/projects/main/add_members", {"members": [{"username": "ann", "project_role": "user"}]})
    else:
        lab.ok("/api/users/update", {"username": "ann", "global_role": "user", "email": None, "active": False})
    assert machine_joins(lab, other).startswith("refused this command is ann's, who may no longer change the fleet")
    assert len(instances(lab)) == 1


def test_a_command_of_a_global_admin_is_good_without_a_membership_and_nobody_elses_is(lab: Rig) -> None:
    made = command(lab)
    ann = lab.user("ann", ProjectRole.admin)
    spec = {**BY_THEMSELVES, "configuration": {**BY_THEMSELVES["configuration"], "name": "hers"}}
    lab.ok("P/fleets/apply", {"plan": {"spec": spec}, "force": False}, token=ann)
    anns = lab.ok("P/fleets/create_join", {"name": "hers"}, token=ann)
    lab.user("bob")
    lab.ok("/api/projects/main/add_members", {"members": [{"username": "bob", "project_role": "admin"}]})
    lab.ok("/api/projects/main/remove_members", {"usernames": ["admin", "ann"]})
    assert machine_joins(lab, made).startswith("join ")
    assert "is ann's, who may no longer change the fleet" in machine_joins(lab, anns), "though she made it"


def test_bought_machines_dont_join_and_nobody_joins_what_ends(rig: Rig) -> None:
    create(rig, fleet())
    refused = rig.refused("P/fleets/create_join", {"name": "pool"})
    assert "machines that are bought" in refused and "Machines join fleets with `ssh_config`" in refused
    create(rig, BY_THEMSELVES)
    made = command(rig)
    rig.ok("P/fleets/delete", {"names": ["lab"]})
    assert machine_joins(rig, made) == "refused the fleet is being deleted"


@pytest.mark.parametrize("url", ["http://127.0.0.1:3000", "http://localhost:3000", "http://[::1]:3000"])
def test_a_server_that_nobody_reaches_says_so(lab: Rig, url: str) -> None:
    plane = lab.world.plane
    joining = JoinScript(plane.store, lab.world.clock, plane.install_id, url, lambda: "d" * 64)
    lab.world.plane = replace(plane, joining=joining)
    assert "--public-url" in lab.refused("P/fleets/create_join", {"name": "lab"})


# --- leaving ----------------------------------------------------------------------------------------------------------


def reported(rig: Rig) -> tuple[Instance, str]:
    """A machine that joined and whose agent has reported; and the agent's credential."""
    _, instance_id, token, _ = machine_joins(rig, command(rig)).split()
    facts = {"cpus": 4, "memory_mib": 8192, "disk_mib": 50_000, "arch": "x86", "runtimes": ["docker"]}
    answer = sync(rig, instance_id, token, 1, facts=facts)
    assert answer["credential"]
    take_pass(rig, instance_id)
    return one(rig, instance_id), answer["credential"]


def sync(rig: Rig, instance_id: str, credential: str, seq: int, **more: Any) -> dict[str, Any]:
    message = {"v": 1, "instance": instance_id, "boot": "b", "seq": seq, **more}
    found: dict[str, Any] = rig.call("/agent/sync", message, token=credential).json
    return found


def one(rig: Rig, instance_id: str) -> Instance:
    found = nouns.find(rig.world.store, Instance, keys.instance(instance_id))
    assert found is not None
    return found


def take_pass(rig: Rig, instance_id: str) -> None:
    """One look of the engine at the instance."""
    instance = one(rig, instance_id)
    presence = nouns.find(rig.world.store, Presence, keys.presence(instance_id))
    row = rig.world.plane.read.fleet_row(nouns.find(rig.world.store, Fleet, keys.fleet(instance.fleet_id)))
    view = FleetView(row.fleet, FleetSpec.model_validate_json(row.spec), (instance,))
    snapshot = InstanceSnapshot(rig.world.clock.now(), instance, presence, view, (), None, ())
    rig.world.plane.committer.take(snapshot, decide_instance(snapshot))


def test_its_agent_hears_that_it_is_out_and_says_when_the_host_is_cleared(lab: Rig) -> None:
    instance, credential = reported(lab)
    assert instance.status == "idle"
    assert sync(lab, instance.id, credential, 2).get("error") is None
    lab.ok("P/fleets/delete_instances", {"name": "lab", "instance_nums": [0]})
    take_pass(lab, instance.id)
    assert one(lab, instance.id).status == "terminating", "not gone before the host is cleared"
    assert sync(lab, instance.id, credential, 3)["error"] == "gone"
    lab.ok("/agent/left", {"instance": instance.id}, token=credential)
    take_pass(lab, instance.id)
    assert one(lab, instance.id).status == "terminated"
    lab.ok("/agent/left", {"instance": instance.id}, token=credential)  # again: harmless


def test_a_machine_that_is_away_can_be_forgotten_and_hears_it_when_it_is_back(lab: Rig) -> None:
    instance, credential = reported(lab)
    lab.ok("P/fleets/delete_instances", {"name": "lab", "instance_nums": [0], "force": True})
    take_pass(lab, instance.id)
    assert one(lab, instance.id).status == "terminated"
    assert sync(lab, instance.id, credential, 9)["error"] == "gone"


def test_a_machine_leaves_by_itself(lab: Rig) -> None:
    instance, credential = reported(lab)
    lab.ok("/agent/left", {"instance": instance.id}, token=credential)
    left = one(lab, instance.id)
    assert (left.status, left.reason, left.message) == ("terminating", "terminated_by_user", "its host left the fleet")
    take_pass(lab, instance.id)
    assert one(lab, instance.id).status == "terminated"


def test_a_machine_whose_record_was_erased_meanwhile_may_leave(lab: Rig) -> None:
    instance, credential = reported(lab)
    lab.world.store.commit([Delete(keys.presence(instance.id))])
    assert lab.call("/agent/left", {"instance": instance.id}, token=credential).status == 403
    lab.world.store.commit([Delete(keys.instance(instance.id))])
    assert lab.call("/agent/left", {"instance": instance.id}, token=credential).status == 403
    lab.ok("/agent/left", {"instance": instance.id}, token=bootstrap_token(lab.world.plane.install_key, instance.id, 0))


def test_nobody_else_takes_a_machine_out(lab: Rig) -> None:
    first, _ = reported(lab)
    other, other_token = reported(lab)
    assert lab.call("/agent/left", {"instance": first.id}, token=other_token).status == 403
    assert lab.call("/agent/left", {"instance": first.id}, token=ADMIN).status == 403
    assert lab.call("/agent/left", {"instance": lab.project.id}, token=other_token).status == 403
    assert one(lab, first.id).status == one(lab, other.id).status == "idle"


def test_an_apply_leaves_machines_that_joined_in_the_fleet(lab: Rig) -> None:
    instance, _ = reported(lab)
    row = lab.ok("P/fleets/apply", {"plan": {"spec": BY_THEMSELVES}, "force": True})
    assert [each["id"] for each in row["instances"]] == [instance.id]
    take_pass(lab, instance.id)
    assert one(lab, instance.id).status == "idle"


def test_one_whose_agent_never_reports_is_let_go(lab: Rig) -> None:
    _, instance_id, *_ = machine_joins(lab, command(lab)).split()
    lab.world.clock.pass_(5 * 60)
    take_pass(lab, instance_id)
    late = one(lab, instance_id)
    assert (late.status, late.reason) == ("terminated", "provisioning_timeout")
    assert "its agent didn't report within 5 minutes" in late.message


# --- the script -------------------------------------------------------------------------------------------------------


def test_the_script_is_a_shells_and_holds_no_secret(lab: Rig) -> None:
    made = command(lab)
    found = lab.call("/agent/join.sh", token=None, method="GET")
    text = found.body.decode()
    assert found.status == 200 and token_of(made).partition(".")[2] not in text
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-n", "-c", text], check=True, timeout=120)
        subprocess.run([shell, "-n", "-c", made["command"]], check=True, timeout=120)


def test_a_script_that_was_changed_on_the_way_isnt_run(lab: Rig, tmp_path: Path) -> None:
    made = command(lab)
    fetched = tmp_path / "bin" / "curl"
    fetched.parent.mkdir()
    fetched.write_text("#!/bin/sh\necho touch ran\n")
    fetched.chmod(0o755)
    path = {"PATH": f"{fetched.parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", made["command"]], env=path, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "This is not the script" in done.stdout and not (tmp_path / "ran").exists()


def test_how_long_a_command_is_good(lab: Rig) -> None:
    made = nouns.find(lab.world.store, Join, keys.join(command(lab)["id"]))
    assert made is not None and made.expires_at == made.created_at + HOUR
    made = nouns.find(lab.world.store, Join, keys.join(command(lab, expires_in=120)["id"]))
    assert made is not None and made.expires_at == made.created_at + 120 * SECOND
    for wrong in (0, 59, 7 * 86_400 + 1):
        assert lab.call("/api/project/main/fleets/create_join", {"name": "lab", "expires_in": wrong}).status == 400
