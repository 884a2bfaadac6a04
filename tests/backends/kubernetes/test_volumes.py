"""Claims: classes and modes as written, claims of others, and pods that share one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.specs import KubernetesVolumeConfiguration
from chalicelib.backends.spi import ContainerMount, CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.errors import AlreadyThere, ContainerFailed, Gone, Transient, Unfit
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for, volume_request
from tests.backends.conformance.suite import offers_of
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.provider import BIG, NAMESPACE, config_of, populate

CLAIMS = "persistentvolumeclaims"


@pytest.fixture
def home(clock: Clock) -> Iterator[Cluster]:
    found = Cluster(clock.now, "home")
    populate(found)
    with found.serving():
        yield found


@pytest.fixture
def backend(home: Cluster, clock: Clock) -> Iterator[KubernetesBackend]:
    found = KubernetesBackend(config_of([home]), now=clock.now)
    yield found
    found.close()


def made(backend: KubernetesBackend, **configuration: Any) -> Handle:
    return backend.create_volume(replace(volume_request("home"), configuration=configuration))


def mounting(backend: KubernetesBackend, claim: Handle, name: str = "one", *, read_only: bool = False) -> CreateRequest:
    wanted = request_for(offers_of(backend)[0], name)
    assert wanted.container is not None
    mount = ContainerMount(claim, "/data", read_only)
    return replace(wanted, container=replace(wanted.container, mounts=(mount,)))


def claim(home: Cluster, name: str = "shared", **annotations: str) -> None:
    spec = {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "5Gi"}}, "volumeName": "pv"}
    status = {"phase": "Bound", "capacity": {"storage": "7516192768"}}
    home.add("PersistentVolumeClaim", name, NAMESPACE, metadata={"annotations": annotations}, spec=spec, status=status)


def test_a_claim_has_the_class_and_the_modes_that_were_written(home: Cluster, backend: KubernetesBackend) -> None:
    home.add("StorageClass", "fast", provisioner="x/y")
    handle = made(backend, storage_class_name="fast", access_modes=["ReadWriteMany"])
    (found,) = home.store.all(CLAIMS, NAMESPACE)
    assert (found["spec"]["storageClassName"], found["spec"]["accessModes"]) == ("fast", ["ReadWriteMany"])
    assert backend.describe_volume(handle).multi_attach


def test_without_them_it_has_the_clusters_default_class_and_is_for_one_node(
    home: Cluster, backend: KubernetesBackend
) -> None:
    handle = made(backend)
    (found,) = home.store.all(CLAIMS, NAMESPACE)
    assert (found["spec"]["storageClassName"], found["spec"]["accessModes"]) == ("standard", ["ReadWriteOnce"])
    disk = backend.describe_volume(handle)
    assert not disk.multi_attach and disk.state == "available", "though it waits for its first pod"


def test_an_existing_claim_says_who_may_have_it(home: Cluster, backend: KubernetesBackend) -> None:
    claim(home, **{"dstack-projects": "main other"})
    disk = backend.register_volume("shared", "home", "")
    assert (disk.size_gib, disk.multi_attach, disk.offered_to) == (7, True, ("main", "other"))
    assert not disk.writable
    assert list(backend.list_owned_volumes()) == [], "it isn't ours"
    claim(home, "private")
    assert backend.register_volume("private", "home", "").offered_to == ()
    assert backend.describe_volume(made(backend)).writable


def test_a_new_claim_that_nobody_could_write_is_refused() -> None:
    written = {"name": "data", "region": "home", "size": "5GB"}
    for modes, paths in ((["ReadOnlyMany"], ["access_modes"]), (["ReadOnlyMany", "ReadWriteOnce"], [])):
        found = KubernetesVolumeConfiguration.model_validate({**written, "access_modes": modes})
        assert [problem.path for problem in found.not_built()] == paths


def test_a_claim_that_is_mounted_read_only_cant_be_written(home: Cluster, backend: KubernetesBackend) -> None:
    handle = made(backend)
    (pod,) = backend.create(mounting(backend, handle, read_only=True))
    (job,) = home.pod(pod.id, NAMESPACE)["spec"]["containers"]
    assert [each["readOnly"] for each in job["volumeMounts"] if each["mountPath"] == "/data"] == [True]


def test_a_pod_that_has_ended_mounts_nothing(home: Cluster, backend: KubernetesBackend, clock: Clock) -> None:
    handle = made(backend)
    pods = list(backend.create(mounting(backend, handle)))
    clock.passes(5.0)
    assert backend.describe_volume(handle).state == "in_use"
    home.kubelet.evict(home.pod(pods[0].id, NAMESPACE))
    assert backend.describe_volume(handle).state == "available"


def test_a_pod_gets_no_volume_later(backend: KubernetesBackend) -> None:
    handle = made(backend)
    pods = list(backend.create(request_for(offers_of(backend)[0])))
    with pytest.raises(Unfit, match="a pod gets volumes only from its beginning"):
        backend.attach_volume(handle, pods)
    for nothing in ([], [pods[0].with_(id="none")]):
        with pytest.raises(Transient, match="doesn't exist"):
            backend.attach_volume(handle, nothing)


def test_a_claim_that_another_node_has_fails_its_pod_with_the_clusters_words(
    home: Cluster, backend: KubernetesBackend, clock: Clock
) -> None:
    handle = made(backend)
    first = list(backend.create(mounting(backend, handle)))
    clock.passes(5.0)
    with home.store.changed:
        node = home.store.find("nodes", "", home.pod(first[0].id, NAMESPACE)["spec"]["nodeName"])
        assert node is not None
        home.store.change(node, spec={"unschedulable": True})
    home.add_node("other", **BIG)
    second = list(backend.create(mounting(backend, handle, "two")))
    clock.passes(60.0)
    assert backend.describe(second).state == "pending"
    clock.passes(150.0)
    with pytest.raises(Gone, match="Multi-Attach") as gone:
        backend.describe(second)
    assert gone.value.refused is ContainerFailed


@pytest.mark.parametrize("binding", ["Immediate", "WaitForFirstConsumer"])
def test_why_a_disk_isnt_made_is_told_by_its_claim(
    home: Cluster, backend: KubernetesBackend, clock: Clock, binding: str
) -> None:
    """Also when jobs have another namespace by now."""
    home.add("StorageClass", "small", provisioner="x/y", volumeBindingMode=binding)
    home.binder.fails["small"] = "the quota of disks is used up"
    pods = list(backend.create(mounting(backend, made(backend, storage_class_name="small"))))
    clock.passes(301.0)
    home.add_namespace("later")
    moved = KubernetesBackend(config_of([home], namespace="later"), now=clock.now)
    for each in (backend, moved):
        with pytest.raises(Gone, match=r"has no disk yet: .*the quota of disks is used up") as gone:
            each.describe(pods)
        assert gone.value.refused is ContainerFailed
    moved.close()


def test_a_claim_of_the_same_name_is_left_alone(home: Cluster, backend: KubernetesBackend) -> None:
    handle = made(backend)
    older = handle.with_(data={**handle.data, "uid": "an-earlier-one"})
    for call in (backend.describe_volume, backend.delete_volume):
        with pytest.raises(Gone):
            call(older)
    assert backend.describe_volume(handle)


def test_a_claim_that_others_have_made_isnt_adopted(home: Cluster, backend: KubernetesBackend) -> None:
    """Though it has the name that ours would get."""
    handle = made(backend)
    with pytest.raises(Gone):
        for _ in range(2):
            backend.delete_volume(handle)
    claim(home, handle.id)
    with pytest.raises(AlreadyThere, match="a claim that dstack didn't create"):
        made(backend)
