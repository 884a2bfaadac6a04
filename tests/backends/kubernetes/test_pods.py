"""The pod and the secret that a request becomes."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from chalicelib.backends.kubernetes.config import KubernetesContext
from chalicelib.backends.kubernetes.kubeconfig import Cluster
from chalicelib.backends.kubernetes.labels import tags_of
from chalicelib.backends.kubernetes.pods import GATE, INIT, is_of, pod, pod_name, secret
from chalicelib.backends.kubernetes.volumes import CLAIM
from chalicelib.backends.spi import Container, ContainerMount, CreateRequest, RegistryLogin
from chalicelib.domain import container_script
from chalicelib.domain.instances import Handle
from chalicelib.errors import ContainerFailed, Unfit
from tests.backends.conformance.requests import BOOT_TOKEN, request_for
from tests.backends.kubernetes.bodies import T4, Body, node
from tests.backends.kubernetes.test_offers import offers

CPUS = {"cpu": "2", "memory": "8GB..", "disk": "20GB.."}
NODE = node("n", labels=T4, nvidia_com__gpu="4", rdma__ib="4")


def cluster(**context: Any) -> Cluster:
    return Cluster(KubernetesContext.model_validate({"name": "east", **context}), "jobs", None)


def request(resources: dict[str, Any] | None = None, **container: Any) -> CreateRequest:
    (offer,) = offers(resources or CPUS, NODE)
    found = request_for(offer)
    assert found.container is not None
    return replace(found, container=replace(found.container, **container))


def made(purchase: CreateRequest | None = None, level: str = "", **context: Any) -> Body:
    return pod(purchase or request(), cluster(**context), level)


def job(body: Body) -> Body:
    (found,) = body["spec"]["containers"]
    return dict(found)


def container(purchase: CreateRequest) -> Container:
    assert purchase.container is not None
    return purchase.container


# --- the pod ----------------------------------------------------------------------------------------------------------


def test_the_first_container_brings_the_agent_and_the_second_is_the_job() -> None:
    purchase = request()
    body = made(purchase, init_image="mirror/busybox:1")
    (init,) = body["spec"]["initContainers"]
    assert (init["image"], init["command"]) == ("mirror/busybox:1", list(container(purchase).command))
    assert {"name": "DSTACK_PREPARE", "value": container_script.MOUNTED} in init["env"]
    assert (job(body)["image"], job(body)["command"]) == (container(purchase).image, container_script.prepared())
    for each in (init, job(body)):
        assert each["volumeMounts"][0] == {"name": "dstack", "mountPath": container_script.MOUNTED}
    assert "workingDir" not in job(body) and "args" not in job(body), "they are the image's own"


def test_nothing_of_the_cluster_is_in_the_pod_and_nothing_restarts() -> None:
    spec = made()["spec"]
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
    assert spec["restartPolicy"] == "Never" and spec["schedulingGates"] == [{"name": GATE}]


def test_a_job_gets_what_it_requests_and_no_limit_unless_it_has_one() -> None:
    assert job(made())["resources"] == {
        "requests": {"cpu": "2", "memory": "8192Mi", "ephemeral-storage": "20480Mi"},
        "limits": {"cpu": "2"},
    }
    bounded = request({"cpu": "1..4", "memory": "1GB..2GB", "disk": "10GB..30GB"})
    limits = job(made(bounded))["resources"]["limits"]
    assert limits == {"cpu": "4", "memory": "2048Mi", "ephemeral-storage": "30720Mi"}
    assert "ephemeral-storage" not in job(made(request({"disk": None})))["resources"]["requests"]


def test_devices_are_requested_and_limited_alike() -> None:
    body = made(request({"gpu": "T4:2"}), gpu_resources={"rdma/ib": 1}, networks=["ml/ib"])
    resources = job(body)["resources"]
    for amounts in (resources["requests"], resources["limits"]):
        assert (amounts["nvidia.com/gpu"], amounts["rdma/ib"]) == ("2", "1")
    assert body["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert body["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "ml/ib"
    assert "NVIDIA_VISIBLE_DEVICES" not in str(job(body)["env"]), "the device plugin sets it"


def test_a_job_without_gpus_sees_none() -> None:
    body = made(gpu_resources={"rdma/ib": 1}, networks=["ml/ib"])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in job(body)["env"]
    assert "rdma/ib" not in str(body) and "k8s.v1.cni.cncf.io/networks" not in str(body)


def test_it_goes_to_nodes_of_its_offer() -> None:
    terms = made()["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    ]
    requirement = {"key": "pool", "operator": "NotIn", "values": ["old"]}
    assert str(requirement) in str(made(node_affinity=[requirement])["spec"]["affinity"])
    zoned = replace(request(), zones=("a", "b"))
    text = str(made(zoned)["spec"]["affinity"])
    assert "{'key': 'topology.kubernetes.io/zone', 'operator': 'In', 'values': ['a', 'b']}" in text


def test_options_of_the_context_are_in_every_pod() -> None:
    spec = made(
        node_selector={"pool": "jobs"},
        tolerations=[{"key": "team", "value": "ml", "effect": "NoSchedule"}],
        priority_class_name="high",
        runtime_class_name="kata",
        service_account_name="trainer",
        image_pull_secrets=["mirror"],
    )["spec"]
    assert spec["nodeSelector"] == {"pool": "jobs"}
    assert spec["tolerations"] == [{"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}]
    names = (spec["priorityClassName"], spec["runtimeClassName"], spec["serviceAccountName"])
    assert names == ("high", "kata", "trainer")
    assert spec["imagePullSecrets"] == [{"name": "mirror"}]
    bare = made()["spec"]
    assert not {"priorityClassName", "runtimeClassName", "serviceAccountName", "imagePullSecrets"} & bare.keys()


def test_shared_memory_and_claims_are_mounted() -> None:
    mounts = [ContainerMount(Handle(kind=CLAIM, id="data"), path, at > 0) for at, path in enumerate(("/a", "/b"))]
    body = made(request(shm_mib=2048, mounts=tuple(mounts)))
    volumes = {each["name"]: each for each in body["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2048Mi"}
    claims = [each["persistentVolumeClaim"] for each in volumes.values() if "persistentVolumeClaim" in each]
    assert claims == [{"claimName": "data"}]
    paths = {each["mountPath"]: each.get("readOnly", False) for each in job(body)["volumeMounts"]}
    assert paths == {"/dstack": False, "/dev/shm": False, "/a": False, "/b": True}
    with pytest.raises(Unfit, match="is no volume of a cluster"):
        made(request(mounts=(ContainerMount(Handle(kind="volume", id="vol-1"), "/a"),)))
    elsewhere = Handle(kind=CLAIM, id="data", data={"namespace": "before"})
    with pytest.raises(Unfit, match="data is in the namespace before, and jobs are in jobs"):
        made(request(mounts=(ContainerMount(elsewhere, "/a"),)))


# --- who runs it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "wanted"),
    [
        ("", {}),
        ("1000", {"runAsUser": 1000}),
        ("1000:7", {"runAsUser": 1000, "runAsGroup": 7}),
        ("0", {"runAsUser": 0}),
    ],
)
def test_a_user_is_a_number(user: str, wanted: Body) -> None:
    assert job(made(request(user=user)))["securityContext"] == wanted


@pytest.mark.parametrize(
    ("user", "read_only", "group"),
    [("1000", False, 1000), ("1000:7", False, 7), ("0", False, None), ("", False, None), ("1000", True, None)],
)
def test_a_user_who_isnt_root_can_write_volumes(user: str, read_only: bool, group: int | None) -> None:
    mount = ContainerMount(Handle(kind=CLAIM, id="data"), "/data", read_only)
    spec = made(request(user=user, mounts=(mount,)))["spec"]
    wanted = {"fsGroup": group, "fsGroupChangePolicy": "OnRootMismatch"} if group else {}
    assert spec.get("securityContext", {}) == wanted
    assert "fsGroup" not in made(request(user=user))["spec"].get("securityContext", {}), "nothing is mounted"


@pytest.mark.parametrize("user", ["trainer", "1000:staff", "-1", "1 0"])
def test_a_users_name_is_refused(user: str) -> None:
    with pytest.raises(ContainerFailed, match=r"only by its number.*`user: 1000`"):
        made(request(user=user))


def test_a_pod_with_rdma_may_lock_memory_where_the_namespace_allows_it() -> None:
    gpu = request({"gpu": "T4:1"})
    for name in ("rdma/ib", "nvidia.com/hostdev", "rdma/hca_shared_devices_a"):
        assert job(made(gpu, gpu_resources={name: 1}))["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    assert "capabilities" not in job(made(gpu, gpu_resources={"example.com/crypto": 1}))["securityContext"]
    assert "capabilities" not in job(made(gpu, "baseline", gpu_resources={"rdma/ib": 1}))["securityContext"]
    strict = job(made(gpu, "restricted", gpu_resources={"rdma/ib": 1}))["securityContext"]
    assert strict["capabilities"] == {"drop": ["ALL"]}
    assert "capabilities" not in job(made(gpu_resources={"rdma/ib": 1}))["securityContext"], "it has no GPUs"


def test_huge_pages_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="`hugepages-2Mi` is memory, and jobs can't have huge pages"):
        cluster(gpu_resources={"hugepages-2Mi": 1})


def test_a_restricted_namespace_gets_what_it_demands() -> None:
    body = made(request(user="1000"), level="restricted")
    security = job(body)["securityContext"]
    assert security["runAsNonRoot"] is True and security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]} and security["runAsUser"] == 1000
    assert body["spec"]["securityContext"]["runAsNonRoot"] is True
    for level in ("", "baseline", "privileged"):
        assert job(made(level=level))["securityContext"] == {}, "as in `docker run`"
    assert job(made(request(privileged=True)))["securityContext"] == {"privileged": True}


def test_the_first_container_passes_everywhere() -> None:
    (init,) = made()["spec"]["initContainers"]
    assert init["name"] == INIT
    security = init["securityContext"]
    assert security["runAsNonRoot"] and security["runAsUser"] > 0 and not security["allowPrivilegeEscalation"]
    assert set(init["resources"]) == {"requests", "limits"}


# --- the secret -------------------------------------------------------------------------------------------------------


def owner(purchase: CreateRequest) -> Body:
    return {"metadata": {"name": pod_name(purchase), "uid": "u-1"}}


def test_the_agents_settings_are_in_the_secret_alone() -> None:
    purchase = request()
    body, kept = made(purchase), secret(purchase, owner(purchase))
    assert BOOT_TOKEN not in str(body)
    data = {key: base64.b64decode(text).decode() for key, text in kept["data"].items()}
    assert data == dict(container(purchase).env) and kept["type"] == "Opaque"
    for each in (job(body), body["spec"]["initContainers"][0]):
        names = {entry["name"]: entry.get("valueFrom") for entry in each["env"]}
        for key in data:
            assert names[key] == {"secretKeyRef": {"name": kept["metadata"]["name"], "key": key}}


def test_the_pod_owns_the_secret() -> None:
    purchase = request()
    (reference,) = secret(purchase, owner(purchase))["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == ("Pod", pod_name(purchase), "u-1")


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("registry.example.com/team/trainer:1", "registry.example.com"),
        ("localhost:5000/trainer", "localhost:5000"),
        ("localhost/trainer", "localhost"),
        ("team/trainer", "https://index.docker.io/v1/"),
        ("trainer", "https://index.docker.io/v1/"),
        ("docker.io/team/trainer", "https://index.docker.io/v1/"),
    ],
)
def test_the_login_is_for_the_images_registry(image: str, registry: str) -> None:
    purchase = request(image=image, login=RegistryLogin("me", "pa55"))
    kept, body = secret(purchase, owner(purchase)), made(purchase)
    auths = orjson.loads(base64.b64decode(kept["data"][".dockerconfigjson"]))["auths"]
    assert auths == {registry: {"username": "me", "password": "pa55", "auth": base64.b64encode(b"me:pa55").decode()}}
    assert kept["type"] == "kubernetes.io/dockerconfigjson"
    assert body["spec"]["imagePullSecrets"] == [{"name": kept["metadata"]["name"]}]
    assert job(body)["imagePullPolicy"] == "Always", "or the image would be for everybody on the node"
    assert not [each for each in job(body)["env"] if "dockerconfigjson" in str(each)], "it is nobody's environment"


# --- names and tags ---------------------------------------------------------------------------------------------------


def test_a_name_is_readable_and_of_one_request() -> None:
    one = request()
    assert pod_name(one) == pod_name(request()) != pod_name(replace(one, token="other"))
    assert pod_name(one).startswith("one-") and len(pod_name(one)) <= 63
    for called, begins in (("Ünï_code Run" * 9, "n-code-run"), ("9lives", "dstack-"), ("", "dstack-")):
        name = pod_name(replace(one, tags=(*one.tags, ("dstack-name", called))))
        assert name.startswith(begins) and len(name) <= 57


def test_tags_that_are_no_labels_are_annotations() -> None:
    tags = {"team": "ml", "who pays": "Dept. of X", "long": "v" * 200, "empty": ""}
    purchase = replace(request(), tags=(*request().tags, *tags.items()))
    body = made(purchase)
    labels = body["metadata"]["labels"]
    assert (labels["team"], labels["empty"]) == ("ml", "") and not {"who pays", "long"} & labels.keys()
    assert tags.items() <= tags_of(body).items() and is_of(body, purchase)
    assert dict(purchase.tags)["dstack-instance"] == labels["dstack-instance"], "by which it is listed"


@pytest.mark.parametrize("other", [{"token": "another"}, {"tags": (("dstack-install", "x"),)}])
def test_a_pod_is_of_its_request_alone(other: dict[str, Any]) -> None:
    assert is_of(made(), request()) and not is_of(made(), replace(request(), **other))


def test_what_isnt_an_offer_of_a_cluster_is_refused() -> None:
    purchase = request()
    with pytest.raises(Unfit, match="isn't an offer of a cluster"):
        made(replace(purchase, offer=purchase.offer.with_(terms=purchase.offer.terms.model_copy(update={"pod": None}))))
    with pytest.raises(Unfit, match="is for a machine"):
        made(replace(purchase, container=None))
