"""One contract for two real clients: whatever both rely on is as a real server has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.backends.kubernetes.clients import PATIENCE, Client, Kubectl, Official, Refused
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.scripted import Life
from tests.backends.kubernetes.objects import pod, secret

pytestmark = pytest.mark.slow


Made = Callable[[dict[str, Any]], Client]


@pytest.fixture(params=[Official, Kubectl], ids=["official", "kubectl"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """A client with this kubeconfig."""
    with ExitStack() as stack:
        yield lambda kubeconfig: stack.enter_context(closing(request.param(kubeconfig, tmp_path)))


@pytest.fixture
def client(made: Made, cluster: Cluster) -> Client:
    return made(cluster.kubeconfig())


def config(name: str, version: str = "", **data: str) -> dict[str, Any]:
    meta = {"name": name, **({"resourceVersion": version} if version else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def names(found: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["name"] for each in found]


def test_objects_are_created_selected_and_deleted(client: Client) -> None:
    made = client.create(pod("a", labels={"x": "1"}))
    assert len(made["metadata"]["uid"]) == 36 and made["spec"]["terminationGracePeriodSeconds"] == 30
    client.create(pod("b", labels={"x": "2"}, nodeSelector={"no": "where"}))
    assert client.read("Pod", "a")["status"]["phase"] == "Running"
    assert names(client.list("Pod", labels="x in (1,3)")) == ["a"]
    assert names(client.list("Pod", fields="status.phase=Pending")) == ["b"]
    assert client.create(secret("s", key="value"))["data"] == {"key": "dmFsdWU="}
    client.delete("Pod", "a")
    assert names(client.list("Pod")) == ["b"]


def test_refusals_have_their_reasons(client: Client, cluster: Cluster) -> None:
    client.create(config("a"))
    cluster.add("ResourceQuota", "q", "default", spec={"hard": {"pods": "0"}})
    for reason, text, call in (
        ("AlreadyExists", 'configmaps "a" already exists', lambda: client.create(config("a"))),
        ("NotFound", 'configmaps "b" not found', lambda: client.read("ConfigMap", "b")),
        ("NotFound", 'pods "b" not found', lambda: client.delete("Pod", "b")),
        ("Invalid", "metadata.name: Invalid value", lambda: client.create(config("Not_A_Name"))),
        (
            "Forbidden",
            "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0",
            lambda: client.create(pod("a")),
        ),
    ):
        with pytest.raises(Refused) as caught:
            call()
        assert caught.value.reason == reason and text in caught.value.message, caught.value


def test_kubectl_has_the_server_read_strictly(cluster: Cluster, tmp_path: Path) -> None:
    """It has read in the server's document that this server can."""
    with pytest.raises(Refused, match='strict decoding error: unknown field "dta"') as caught:
        Kubectl(cluster.kubeconfig(), tmp_path).create({**config("b"), "dta": {}})
    assert caught.value.reason == "BadRequest"


def test_a_stale_version_is_a_conflict(client: Client) -> None:
    old = client.create(config("a", k="1"))["metadata"]["resourceVersion"]
    assert client.replace(config("a", old, k="2"))["data"] == {"k": "2"}
    with pytest.raises(Refused, match="the object has been modified") as caught:
        client.replace(config("a", old, k="3"))
    assert caught.value.reason == "Conflict"


def test_patches(client: Client) -> None:
    client.create(pod("a", labels={"a": "1", "b": "1"}))
    strategic = {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}
    assert client.patch("Pod", "a", "strategic", strategic)["spec"]["containers"][0]["image"] == "other:1"
    merged = client.patch("Pod", "a", "merge", {"metadata": {"labels": {"a": None, "c": "1"}}})
    assert merged["metadata"]["labels"] == {"b": "1", "c": "1"}
    steps = [{"op": "replace", "path": "/metadata/labels/b", "value": "2"}]
    assert client.patch("Pod", "a", "json", steps)["metadata"]["labels"] == {"b": "2", "c": "1"}
    with pytest.raises(Refused, match="pod updates may not change fields") as caught:
        client.patch("Pod", "a", "merge", {"spec": {"hostNetwork": True}})
    assert caught.value.reason == "Invalid"


def test_server_side_apply(client: Client) -> None:
    client.apply(config("a", x="1", y="1"), "one")
    with pytest.raises(Refused, match=r'conflict with "one": \.data\.x') as caught:
        client.apply(config("a", x="2"), "two")
    assert caught.value.reason == "Conflict"
    assert client.apply(config("a", x="2"), "two", force=True)["data"] == {"x": "2", "y": "1"}
    assert client.apply(config("a", z="1"), "one")["data"] == {"x": "2", "z": "1"}


def test_logs_and_commands(client: Client, cluster: Cluster) -> None:
    cluster.scripted.life = lambda given, container: Life(log=b"hello\n")
    cluster.scripted.commands = lambda name, container, command: command
    client.create(pod("a"))
    assert client.log("a") == "hello\n"
    assert client.run("a", "sh", "-c", "echo out; exit 3") == ("out\n", 3)


def test_a_port_is_a_connection(client: Client, cluster: Cluster, echo: int) -> None:
    cluster.scripted.ports["a", 8000] = echo
    client.create(pod("a"))
    sent, found = bytes(range(256)) * 4000, b""
    with client.port("a", 8000) as near:
        near.settimeout(PATIENCE)
        threading.Thread(target=near.sendall, args=(sent,), daemon=True).start()
        while len(found) < len(sent):
            part = near.recv(65536)
            assert part, f"it ended after {len(found)} bytes"
            found += part
    assert found == sent


def test_a_port_that_nobody_listens_to_is_an_error(client: Client) -> None:
    client.create(pod("a"))
    assert "error forwarding port 9 to pod" in client.port_error("a", 9)


ROLE = """
kind: Role
metadata: {name: reader}
rules:
  - {apiGroups: [""], resources: [pods, pods/log], verbs: [get, list]}
"""


def test_a_user_learns_what_a_role_allows(made: Made, cluster: Cluster) -> None:
    cluster.users.user("t", "reader")
    cluster.users.grant("reader", ROLE, "default")
    client = made(cluster.kubeconfig("t"))
    for asked, allowed in (
        (("get", "pods"), True),
        (("get", "pods", "log"), True),
        (("create", "pods"), False),
        (("get", "pods", "exec"), False),
    ):
        assert client.may(*asked) is allowed, asked


def test_watches(client: Client, cluster: Cluster) -> None:
    client.create(config("a"))

    def change() -> None:
        """When the watch has begun."""
        with cluster.store.changed:
            assert cluster.store.changed.wait_for(lambda: cluster.watched("configmaps"), timeout=120)
            cluster.add("ConfigMap", "b", "default")

    thread = threading.Thread(target=change)
    thread.start()
    assert client.watch("ConfigMap", 2) == [("ADDED", "a"), ("ADDED", "b")]
    thread.join()
