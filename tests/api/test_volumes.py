"""Volumes over the API: what is created, listed, refused and deleted, as its callers see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import DAY, HOUR, iso
from chalicelib.domain.tenants import ProjectRole
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.store import nouns
from tests.api.rig import Rig
from tests.world.ports import accounts
from tests.world.volumes import attachment

CLOUDS = tuple(BackendFacts(name=name, volumes=True, largest_volume=16_000) for name in ("aws", "kubernetes", "lium"))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.at(tmp_path, backends=accounts(*CLOUDS, BackendFacts(name="runpod")))


def volume(name: str | None = "data", **fields: Any) -> dict[str, Any]:
    configuration = {"type": "volume", "backend": "aws", "name": name, "region": "r1", "size": "100GB", **fields}
    return {"configuration": {key: value for key, value in configuration.items() if value != ""}}


def create(rig: Rig, name: str | None = "data", **fields: Any) -> Any:
    return rig.ok("P/volumes/create", volume(name, **fields))


def stored(rig: Rig, made: Any) -> Volume:
    found = nouns.find(rig.world.store, Volume, keys.volume(made["id"]))
    assert found is not None
    return found


def activate(rig: Rig, made: Any, **changes: Any) -> Volume:
    """As if its provider had created it."""
    now = rig.world.now()
    found = {"handle": Handle(kind="volume", id="vol-1"), "price": 8.0, "zone": "r1a", "active_at": now}
    saved = stored(rig, made).with_(**{"status": VolumeStatus.active, **found, **changes})
    rig.save(saved)
    return saved


def test_a_new_volume_is_shown_as_clients_expect(rig: Rig) -> None:
    made = create(rig)
    assert {name: made[name] for name in ("name", "user", "project_name", "external", "status", "cost")} == {
        "name": "data",
        "user": "admin",
        "project_name": "main",
        "external": False,
        "status": "submitted",
        "cost": 0.0,
    }
    assert made["configuration"] == {
        "type": "volume",
        "name": "data",
        "auto_cleanup_duration": None,
        "tags": None,
        "backend": "aws",
        "size": 100.0,
        "volume_id": None,
        "region": "r1",
        "availability_zone": None,
    }
    empty = ("status_message", "deleted_at", "volume_id", "provisioning_data", "attachment_data")
    assert [made[name] for name in empty] == [None] * 5 and made["attachments"] == [] and made["deleted"] is False
    assert rig.ok("P/volumes/get", {"name": "data"}) == made and not stored(rig, made).read_only
    assert f"volume/{made['id']}" in rig.world.take_woken()


def test_an_active_volume_says_what_its_provider_gave(rig: Rig) -> None:
    activate(rig, create(rig))
    found = rig.ok("P/volumes/get", {"name": "data"})
    assert (found["status"], found["volume_id"]) == ("active", "vol-1")
    assert found["provisioning_data"] == {
        "backend": "aws",
        "volume_id": "vol-1",
        "size_gb": 100,
        "availability_zone": "r1a",
        "price": 8.0,
        "attachable": True,
        "detachable": True,
        "backend_data": None,
    }


def test_its_cost_is_its_price_for_the_time_it_has_been_there(rig: Rig) -> None:
    made = create(rig)
    active = activate(rig, made)
    rig.world.at += 15 * DAY
    assert rig.ok("P/volumes/get", {"name": "data"})["cost"] == pytest.approx(4.0)
    lost = rig.world.again(active).with_(status=VolumeStatus.failed, last_processed_at=active.active_at + 3 * DAY)
    rig.save(lost)
    assert rig.ok("P/volumes/get", {"name": "data"})["cost"] == pytest.approx(0.8)


def test_an_attached_volume_names_its_machine(rig: Rig) -> None:
    activate(rig, create(rig), attachments=(attachment(name="/dev/sdf"),))
    assert rig.ok("P/volumes/get", {"name": "data"})["attachments"] == [
        {
            "instance": {"name": "pool-0", "fleet_name": "pool", "instance_num": 0, "instance_id": "i-1"},
            "attachment_data": {"device_name": "/dev/sdf"},
        }
    ]


def test_an_existing_volume_is_external(rig: Rig) -> None:
    made = create(rig, size="", volume_id="vol-0abc")
    assert made["external"] is True
    assert (stored(rig, made).external_id, stored(rig, made).blank) == ("vol-0abc", False)


@pytest.mark.parametrize("role", [*ProjectRole])
@pytest.mark.parametrize("field", ["volume_id", "claim_name"])
def test_only_admins_register_what_is_there_already(rig: Rig, role: ProjectRole, field: str) -> None:
    token = rig.user("ann", role)
    backend = "kubernetes" if field == "claim_name" else "aws"
    body = volume("there", size="", backend=backend, **{field: "theirs"})
    if role is ProjectRole.admin:
        assert rig.ok("P/volumes/create", body, token=token)["external"] is True
    else:
        refused = rig.refused("P/volumes/create", body, token=token)
        assert "Only admins of the project main register disks" in refused and "`size`" in refused
    assert rig.ok("P/volumes/create", volume("new"), token=token)["external"] is False


def test_a_claim_of_kubernetes_is_external(rig: Rig) -> None:
    made = create(rig, backend="kubernetes", size="", claim_name="shared", read_only=True)
    assert (stored(rig, made).external_id, stored(rig, made).read_only) == ("shared", True)


def test_a_backend_without_regions_needs_none(rig: Rig) -> None:
    assert stored(rig, create(rig, backend="lium", size="", region="")).region == ""


def test_the_older_spelling_of_the_size_works(rig: Rig) -> None:
    made = create(rig, size="", resources={"disk": "200GB"})
    assert stored(rig, made).size_gib == 200 and made["configuration"]["size"] == 200.0


def test_half_a_gigabyte_is_a_whole_one(rig: Rig) -> None:
    assert stored(rig, create(rig, size="512MB")).size_gib == 1


def test_one_without_a_name_gets_one(rig: Rig) -> None:
    name = create(rig, name=None)["name"]
    assert rig.ok("P/volumes/get", {"name": name})["configuration"]["name"] == name


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": ""}, "a volume needs `size`, or `volume_id`"),
        ({"name": "No"}, "name: `No` can't be the name of a volume"),
        ({"region": ""}, "region"),
        ({"backend": "nonsense"}, "backend"),
        ({"sise": "1GB"}, "sise"),
        ({"resources": {"gpu": 1}}, "resources"),
        ({"volume_id": "v", "size": "1GB"}, "an existing volume has a size of its own"),
        ({"volume_id": "v", "size": "", "auto_cleanup_duration": "1h"}, "an existing volume isn't deleted for you"),
        ({"volume_id": "v", "size": "", "auto_cleanup_duration": 0}, "an existing volume isn't deleted for you"),
        ({"volume_id": "v", "size": "", "tags": {"team": "blue"}}, "tags: an existing volume stays as it is"),
        ({"tags": {"Dstack-Install": "me"}}, "`Dstack-Install` can't be set: the control plane itself uses"),
        ({"size": "16001GB"}, "size: 16,001 GB is too much for one volume"),
        ({"size": "20TB"}, "size: 20,480 GB is too much for one volume (at most 16,000 GB on aws)"),
        ({"size": "12 parsecs"}, "size: `12 parsecs` isn't an amount of disk space"),
        ({"size": 1e10}, "size: `10000000000.0` is too much disk space (at most 1,000,000,000 GB)"),
        (
            {"backend": "kubernetes", "size": "", "claim_name": "x", "storage_class_name": "fast"},
            "storage_class_name: an existing claim stays as it is (remove `storage_class_name`)",
        ),
        ({"backend": "kubernetes", "access_modes": ["ReadSometimes"]}, "access_modes"),
        ({"backend": "kubernetes", "region": ""}, "region: a volume is in one cluster (name its context)"),
        ({"backend": "kubernetes", "read_only": True}, "read_only: a new volume is empty"),
    ],
)
def test_what_is_wrong_is_named(rig: Rig, fields: dict[str, Any], message: str) -> None:
    assert message in rig.refused("P/volumes/create", volume(**fields))
    assert rig.ok("P/volumes/list") == []


def test_a_specification_that_is_too_large_isnt_looked_at(rig: Rig) -> None:
    tags = {f"tag-{n:05}": "x" * 200 for n in range(1_250)}
    assert "the limit is 250 KB" in rig.refused("P/volumes/create", volume(tags=tags, nonsense=1))


def test_the_largest_that_its_backend_makes_is_taken(rig: Rig) -> None:
    assert create(rig, size="16000GB")["configuration"]["size"] == 16_000


def test_a_name_that_cant_be_is_refused_with_one_that_can(rig: Rig) -> None:
    (problem,) = rig.call("/api/project/main/volumes/create", volume("No")).json["detail"]
    assert "`no`" in problem["msg"] and problem["code"] == "error"


def test_a_backend_that_isnt_configured_is_refused(rig: Rig) -> None:
    reply = rig.call("/api/project/main/volumes/create", volume(backend="gcp"))
    assert (reply.status, reply.json["detail"][0]["code"]) == (400, "backend_not_available")
    assert reply.json["detail"][0]["msg"] == (
        "The backend gcp isn't configured for the project main. Backends with volumes: aws, kubernetes, lium."
    )


def test_a_backend_without_volumes_is_refused(rig: Rig) -> None:
    assert "Volumes of the backend runpod aren't supported yet" in rig.refused(
        "P/volumes/create", volume(backend="runpod")
    )


def test_a_name_is_taken_until_its_volume_is_gone(rig: Rig) -> None:
    made = create(rig)
    reply = rig.call("/api/project/main/volumes/create", volume())
    assert (reply.status, reply.json["detail"][0]["code"]) == (400, "resource_exists")
    rig.ok("P/volumes/delete", {"names": ["data"]})
    assert "is being deleted" in rig.refused("P/volumes/create", volume())
    rig.save(stored(rig, made).with_(status=VolumeStatus.deleted, deleted_at=rig.world.now(), due_at=None))
    assert create(rig)["id"] != made["id"]


# --- listed -----------------------------------------------------------------------------------------------------------


def test_lists_are_paged_and_of_the_callers_projects_only(rig: Rig) -> None:
    for name in ("one", "two", "three"):
        create(rig, name)
        rig.world.at += HOUR
    other = rig.another_project("other")
    rig.ok(f"/api/project/{other.name}/volumes/create", volume("hidden"))
    token = rig.user("ada", ProjectRole.user)
    assert [each["name"] for each in rig.ok("P/volumes/list", token=token)] == ["one", "two", "three"]
    first = rig.ok("/api/volumes/list", {"limit": 2, "only_active": True}, token=token)
    assert [each["name"] for each in first] == ["three", "two"]
    last = {"prev_created_at": first[-1]["created_at"], "prev_id": first[-1]["id"]}
    assert [each["name"] for each in rig.ok("/api/volumes/list", last, token=token)] == ["one"]
    older = rig.ok("/api/volumes/list", {"ascending": True, "limit": 1}, token=token)
    assert [each["name"] for each in older] == ["one"]
    assert rig.ok("/api/volumes/list", {"project_name": "other"}, token=token) == []
    assert [each["project_name"] for each in rig.ok("/api/volumes/list", {"project_name": "other"})] == ["other"]
    assert len(rig.ok("/api/volumes/list")) == 4


def test_a_deleted_volume_leaves_its_projects_list_and_that_of_active_ones(rig: Rig) -> None:
    made = create(rig)
    rig.save(stored(rig, made).with_(status=VolumeStatus.deleted, deleted_at=rig.world.now(), due_at=None))
    assert rig.ok("P/volumes/list") == [] and rig.ok("/api/volumes/list", {"only_active": True}) == []
    (shown,) = rig.ok("/api/volumes/list")
    assert (shown["id"], shown["deleted"], shown["deleted_at"]) == (made["id"], True, iso(rig.world.now()))
    assert "There is no volume data" in rig.refused("P/volumes/get", {"name": "data"})


# --- deleted ----------------------------------------------------------------------------------------------------------


def test_deleted_volumes_take_no_place_on_a_page_of_active_ones(rig: Rig) -> None:
    for name in ("old", "gone", "new"):
        made = create(rig, name)
        rig.world.at += HOUR
        if name == "gone":
            rig.save(stored(rig, made).with_(status=VolumeStatus.deleted, deleted_at=rig.world.now(), due_at=None))
    assert names(rig.ok("/api/volumes/list", {"limit": 2, "only_active": True})) == ["new", "old"]
    assert names(rig.ok("/api/volumes/list", {"limit": 2})) == ["new", "gone"]


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in listed]


def test_a_volume_that_is_being_deleted_shows_as_what_it_was(rig: Rig) -> None:
    activate(rig, create(rig))
    create(rig, "fresh")
    rig.ok("P/volumes/delete", {"names": ["data", "fresh"]})
    shown = {each["name"]: (each["status"], each["deleted"]) for each in rig.ok("P/volumes/list")}
    assert shown == {"data": ("active", False), "fresh": ("submitted", False)}
    rig.ok("P/volumes/delete", {"names": ["data"]})  # again, without harm


@pytest.mark.parametrize(("written", "seconds"), [(None, None), ("off", None), (-1, None), (0, 0), ("1h", 3600)])
def test_how_long_it_stays_unused(rig: Rig, written: Any, seconds: int | None) -> None:
    assert stored(rig, create(rig, auto_cleanup_duration=written)).auto_cleanup_seconds == seconds


def test_an_attached_volume_is_refused_with_its_holder(rig: Rig) -> None:
    create(rig, "free")
    activate(rig, create(rig), attachments=(attachment(),))
    assert rig.refused("P/volumes/delete", {"names": ["free", "data"]}) == (
        "Failed to delete volume data. Volume is in use by the run train, on pool-0. "
        "Wait until it is detached, or stop the run: dstack stop train"
    )
    assert stored(rig, rig.ok("P/volumes/get", {"name": "free"})).status is VolumeStatus.submitted


def test_all_are_deleted_or_none(rig: Rig) -> None:
    made = create(rig)
    assert "There is no volume nope" in rig.refused("P/volumes/delete", {"names": ["data", "nope"]})
    assert stored(rig, made).status is VolumeStatus.submitted


def test_a_project_with_volumes_isnt_deleted(rig: Rig) -> None:
    create(rig)
    assert "has volumes" in rig.refused("/api/projects/delete", {"projects_names": ["main"]})


# --- told -------------------------------------------------------------------------------------------------------------


def test_its_history_names_who_did_what(rig: Rig) -> None:
    made = create(rig)
    create(rig, "other")
    rig.world.at += HOUR
    rig.ok("P/volumes/delete", {"names": ["data"]})
    events = rig.ok("/api/events/list", {"target_volumes": [made["id"]], "ascending": True})
    assert [(event["message"], event["actor_user"]) for event in events] == [
        ("created", "admin"),
        ("submitted → deleting: deleted by a user", "admin"),
    ]
    assert events[0]["targets"][0]["type"] == "volume" and events[0]["targets"][0]["name"] == "data"


def test_a_stored_volume_has_its_own_name_whatever_is_sent_beside_it(rig: Rig) -> None:
    assert rig.ok("P/automations/add", {"spec": {**volume("data"), "run_name": "no name/at all"}})["name"] == "data"
    assert "needs a name" in rig.refused("P/automations/add", {"spec": {**volume(None), "run_name": "data"}})
