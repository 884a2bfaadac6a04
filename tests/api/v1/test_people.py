"""Projects, members, secrets, quotas, backends and users under `/api/v1`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.keys import Key
from chalicelib.domain.tenants import ProjectRole
from chalicelib.store.port import Record
from tests.api.rig import Rig
from tests.api.v1.rest import Client


def test_a_project_is_created_changed_and_deleted(rig: Rig) -> None:
    api = Client.of(rig)
    rig.world.clock.pass_(1)
    reply = api.call("POST", "/api/v1/projects", {"name": "lab"}, idempotency_key="k")
    assert (reply.status, reply.headers["Location"]) == (201, "/api/v1/projects/lab")
    again = api.call("POST", "/api/v1/projects", {"name": "lab"}, idempotency_key="k")
    assert (again.status, again.body, again.headers["Idempotency-Replayed"]) == (201, reply.body, "true")
    assert api.refused("POST", "/api/v1/projects", {"name": "lab"})[:2] == (409, "already-exists")
    assert api.ok("PATCH", "/api/v1/projects/lab", {"public": True})["public"] is True
    assert api.ok("PATCH", "/api/v1/projects/lab", {})["public"] is True
    lab = api.ok("GET", "/api/v1/projects/lab")
    assert (lab["owner"], lab["public"]) == ("admin", True)
    assert [each["name"] for each in api.ok("GET", "/api/v1/projects?limit=1")["items"]] == ["lab"]
    assert api.call("DELETE", "/api/v1/projects/lab").status == 204
    assert api.refused("GET", "/api/v1/projects/lab")[0] == 404
    assert api.refused("POST", "/api/v1/projects", {"name": "lab"}, idempotency_key="k")[:2] == (410, "gone")


@dataclass
class MadeAgain:
    """A store in which a project is deleted and made again once its caller was admitted."""

    api: Client
    made: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api.plane.store, name)

    def get(self, key: Key) -> Record | None:
        if key == keys.project_name("lab") and not self.made:
            self.made = {"name": "lab"}
            assert self.api.call("DELETE", "/api/v1/projects/lab").status == 204
            self.made = self.api.ok("POST", "/api/v1/projects", self.made, status=201)
        return self.api.plane.store.get(key)


def test_who_was_admitted_to_a_project_deletes_no_later_one_of_its_name(rig: Rig) -> None:
    api = Client.of(rig)
    api.ok("POST", "/api/v1/projects", {"name": "lab"}, status=201)
    wanted = {"name": "ci", "verbs": ["project"], "projects": ["lab"]}
    token = rig.ok("/api/users/access_tokens/create", wanted)["token"]
    store = MadeAgain(api)
    slow = Client(replace(api.plane, store=store), api.project, token)
    assert slow.refused("DELETE", "/api/v1/projects/lab")[0] == 404
    assert api.ok("GET", "/api/v1/projects/lab")["id"] == store.made["id"]


def test_names_are_checked_where_they_were_sent(rig: Rig) -> None:
    api = Client.of(rig)
    for path in ("/api/v1/projects", "/api/v1/users"):
        _, code, problem = api.refused("POST", path, {"name": "not a name"})
        assert (code, [each["pointer"] for each in problem["errors"]]) == ("invalid", ["/name"])


def test_members_join_change_and_leave(rig: Rig) -> None:
    api, ann = Client.of(rig), Client.of(rig, token=rig.user("ann"))
    members = f"/api/v1/projects/{api.project}/members"
    assert ann.refused("PUT", f"{members}/ann", {"role": "user"})[0] == 403
    assert api.ok("PUT", f"{members}/ann", {"role": "manager"}, status=201)["role"] == "manager"
    assert ann.refused("PUT", f"{members}/ann", {"role": "admin"})[0] == 403
    listed = ann.ok("GET", members)["items"]
    assert [(each["user"], each["role"]) for each in listed] == [("ann", "manager"), ("admin", "admin")]
    first = api.ok("GET", f"{members}?limit=1")
    assert [each["user"] for each in api.ok("GET", f"{members}?cursor={first['next']}")["items"]] == ["admin"]
    assert ann.call("DELETE", f"{members}/ann").status == 204
    assert api.refused("DELETE", f"{members}/ann")[:2] == (404, "not-found")
    assert api.refused("DELETE", f"{members}/admin")[:2] == (409, "refused")


def test_secrets(rig: Rig) -> None:
    api, bob = Client.of(rig), Client.of(rig, token=rig.user("bob", ProjectRole.user))
    secrets = f"/api/v1/projects/{api.project}/secrets"
    for name in ("b", "a", "c"):
        for _ in range(2):
            put = api.ok("PUT", f"{secrets}/{name}", {"value": f"hunter-{name}"}, status=201, idempotency_key=name)
            assert "value" not in put
    assert api.ok("GET", f"{secrets}/a")["value"] == "hunter-a"
    first = api.ok("GET", f"{secrets}?limit=2")
    second = api.ok("GET", f"{secrets}?limit=2&cursor={first['next']}")
    assert [each["name"] for each in (*first["items"], *second["items"])] == ["a", "b", "c"]
    assert b"hunter" not in api.call("GET", secrets).body
    assert bob.refused("GET", secrets)[0] == bob.refused("PUT", f"{secrets}/a", {"value": "x"})[0] == 403
    assert api.call("DELETE", f"{secrets}/a", idempotency_key="d").status == 204
    assert api.call("DELETE", f"{secrets}/a", idempotency_key="d").status == 204
    assert api.refused("DELETE", f"{secrets}/a")[:2] == (404, "not-found")


def test_quotas(rig: Rig) -> None:
    api = Client.of(rig)
    rig.user("ann", ProjectRole.user)
    quota = f"/api/v1/projects/{api.project}/quota"
    assert api.ok("PUT", quota, {"gpus": 8, "usd_per_day": 9.5}, status=201)["limits"] == {
        "gpus": 8, "jobs": None, "usd_per_day": 9.5,
    }  # fmt: skip
    api.ok("PUT", f"{quota}/each-user", {"jobs": 3}, status=201)
    api.ok("PUT", f"{quota}/users/ann", {"jobs": 5}, status=201)
    seen = api.ok("GET", quota)
    assert (seen["each_user"]["jobs"], seen["users"][0]["user"], seen["users"][0]["limits"]["jobs"]) == (3, "ann", 5)
    assert seen["used"] == {"gpus": 0, "jobs": 0, "usd_today": 0}
    assert api.ok("PUT", quota, {})["limits"] == {"gpus": None, "jobs": None, "usd_per_day": None}
    assert api.ok("PUT", f"{quota}?dry_run=true", {})["action"] == "none"


def test_users(rig: Rig) -> None:
    api = Client.of(rig)
    ann = api.ok("POST", "/api/v1/users", {"name": "ann", "email": "ann@example.com"}, status=201, idempotency_key="k")
    again = api.ok(
        "POST", "/api/v1/users", {"name": "ann", "email": "ann@example.com"}, status=201, idempotency_key="k"
    )
    assert ann["token"] and again == {**ann, "token": None}
    own = Client.of(rig, token=ann["token"])
    me = own.ok("GET", "/api/v1/users/me")
    assert (me["name"], me["role"], me.pop("token")) == ("ann", "user", None)
    made = rig.ok("/api/users/access_tokens/create", {"name": "ci", "verbs": ["run"]}, token=ann["token"])
    held = Client.of(rig, token=made["token"]).ok("GET", "/api/v1/users/me")["token"]
    assert held == {"verbs": ["read", "run"], "projects": []}
    assert own.ok("GET", "/api/v1/users/ann") == me and own.refused("GET", "/api/v1/users/admin")[0] == 403
    assert [user["name"] for user in own.ok("GET", "/api/v1/users")["items"]] == ["ann"]
    first = api.ok("GET", "/api/v1/users?limit=1")
    assert len(api.ok("GET", f"/api/v1/users?cursor={first['next']}")["items"]) == 1
    assert api.ok("PATCH", "/api/v1/users/ann", {"active": False})["email"] == "ann@example.com"
    assert own.refused("GET", "/api/v1/users/me")[0] in (401, 403)
    changed = api.ok("PATCH", "/api/v1/users/ann", {"email": None, "role": "admin"})
    assert (changed["email"], changed["role"], changed["active"]) == (None, "admin", False)
    assert api.call("DELETE", "/api/v1/users/ann").status == 204
    assert api.refused("GET", "/api/v1/users/ann")[0] == 404


def test_no_backend_is_known_to_a_plane_without_types(rig: Rig) -> None:
    api = Client.of(rig)
    backends = f"/api/v1/projects/{api.project}/backends"
    assert api.ok("GET", backends) == {"items": []}
    creds: dict[str, Any] = {"creds": {"type": "default"}}
    assert api.refused("PUT", f"{backends}/aws", creds)[:2] == (422, "not-supported")
    _, code, problem = api.refused("PUT", f"{backends}/aws", {**creds, "type": "gcp"})
    assert (code, problem["errors"][0]["pointer"]) == ("invalid", "/type")
