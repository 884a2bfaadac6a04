"""A context that leads to another cluster than before ends nothing that is in the first one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from chalicelib.backends.kubernetes.permissions import Rule
from chalicelib.backends.spi import Backend
from chalicelib.errors import Gone, InvalidCredentials
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for, volume_request
from tests.backends.conformance.suite import offers_of
from tests.backends.kubernetes.account import NAMESPACE, TOKEN, USER, add_account
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.test_permissions import without

KUBE_SYSTEM = Rule("namespaces", ("get",), cluster=True)


@pytest.fixture
def clusters(clock: Clock) -> Iterator[tuple[Cluster, Cluster]]:
    with ExitStack() as serving:
        found = Cluster(clock.now, "home"), Cluster(clock.now, "other")
        for cluster in found:
            cluster.add("StorageClass", "standard", provisioner="x/y")
            cluster.add_node("one", cpu="16", memory="64Gi", ephemeral_storage="1000Gi")
            add_account(cluster)
            serving.enter_context(cluster.serving())
        yield found


def backend(cluster: Cluster, clock: Clock, **changes: str) -> KubernetesBackend:
    """Whatever the cluster is, its context is called `home`."""
    given: dict[str, Any] = cluster.kubeconfig(token=TOKEN, namespace=NAMESPACE)
    given["contexts"][0]["name"] = given["current-context"] = "home"
    given["clusters"][0]["cluster"] |= changes
    raw = {"type": "kubernetes", "kubeconfig": {"data": yaml.safe_dump(given)}}
    return KubernetesBackend(KubernetesBackendConfig.model_validate(raw), now=clock.now)


def made(found: KubernetesBackend) -> Any:
    handles = list(found.create(request_for(offers_of(found)[0])))
    volume = found.create_volume(volume_request("home"))
    return handles, volume


def assert_not_gone(found: Backend, handles: Any, volume: Any, text: str) -> None:
    assert isinstance(found, KubernetesBackend)
    calls = (
        lambda: found.describe(handles),
        lambda: found.terminate(handles[0]),
        lambda: found.describe_volume(volume),
        lambda: found.delete_volume(volume),
    )
    for call in calls:
        with pytest.raises(InvalidCredentials, match=text):
            call()


def test_what_another_cluster_lacks_isnt_gone(clusters: tuple[Cluster, Cluster], clock: Clock) -> None:
    home, other = clusters
    handles, volume = made(backend(home, clock))
    system = home.store.find("namespaces", "", "kube-system")
    assert system is not None and handles[0].data["cluster"] == volume.data["cluster"] == system["metadata"]["uid"]
    assert_not_gone(backend(other, clock), handles, volume, "leads to another cluster than the one that")
    again = backend(home, clock)
    again.terminate(handles[0])
    clock.passes(60.0)
    with pytest.raises(Gone):
        again.describe(handles)
    home.users.grants.clear()
    home.users.grant(USER, without(KUBE_SYSTEM, "get"))
    assert_not_gone(backend(home, clock), handles, volume.with_(id="none"), "Nothing shows any more whether home is")


def test_without_the_id_it_is_the_address_or_the_authority(clusters: tuple[Cluster, Cluster], clock: Clock) -> None:
    home, other = clusters
    for cluster in clusters:
        cluster.users.grants.clear()
        cluster.users.grant(USER, without(KUBE_SYSTEM, "get"))
    handles, volume = made(backend(home, clock))
    assert {"server", "authority"} <= handles[0].data.keys() and "cluster" not in handles[0].data
    moved = backend(home, clock, **{"server": home.kubeconfig()["clusters"][0]["cluster"]["server"] + "/"})
    moved.terminate(handles[0])
    clock.passes(60.0)
    with pytest.raises(Gone):
        moved.describe(handles)
    elsewhere = {"insecure-skip-tls-verify": True, "certificate-authority-data": ""}
    assert_not_gone(backend(other, clock, **elsewhere), handles, volume, "leads to another cluster")  # type: ignore[arg-type]


def test_older_handles_say_nothing_of_their_cluster(clusters: tuple[Cluster, Cluster], clock: Clock) -> None:
    home, other = clusters
    (handle,), _ = made(backend(home, clock))
    old = handle.with_(data={name: handle.data[name] for name in ("region", "namespace", "uid")})
    with pytest.raises(Gone):
        backend(other, clock).describe([old])
