"""What the fake of an API server does with objects, as its official client sees it."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest

from tests.backends.clock import Clock
from tests.backends.fakes.script import Cut, Fault
from tests.backends.kubernetes.conftest import Wire
from tests.backends.kubernetes.fake import faults
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.scripted import Life
from tests.backends.kubernetes.objects import claim, pod, secret, service

HERE = "default"


def refused(call: Any, *given: Any, **named: Any) -> dict[str, Any]:
    """The `Status` of a call that is refused."""
    from kubernetes.client import ApiException

    with pytest.raises(ApiException) as caught:
        call(*given, **named)
    body: dict[str, Any] = json.loads(caught.value.body)
    assert body["code"] == caught.value.status
    return body


def brief(status: dict[str, Any]) -> tuple[int, str, str]:
    return status["code"], status["reason"], status["message"]


def test_a_created_object_gets_what_only_the_server_says(core: Any, clock: Clock) -> None:
    one = core.create_namespaced_config_map(HERE, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    two = core.create_namespaced_config_map(HERE, {"metadata": {"generateName": "b-"}})
    assert len(one.metadata.uid) == 36 and one.metadata.uid != two.metadata.uid
    assert int(two.metadata.resource_version) > int(one.metadata.resource_version)
    assert one.metadata.creation_timestamp.timestamp() == clock.at // 1_000_000
    assert two.metadata.name.startswith("b-") and len(two.metadata.name) == 7
    assert (one.kind, one.api_version, one.metadata.namespace) == ("ConfigMap", "v1", HERE)
    listed = core.list_namespaced_config_map(HERE)
    assert [each.metadata.name for each in listed.items] == ["a", two.metadata.name]
    assert listed.items[0].kind is None and int(listed.metadata.resource_version) >= int(two.metadata.resource_version)


def test_errors_have_the_reasons_that_clients_decide_by(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("a"))
    assert brief(refused(core.read_namespaced_pod, "b", HERE)) == (404, "NotFound", 'pods "b" not found')
    exists = refused(core.create_namespaced_pod, HERE, pod("a"))
    assert brief(exists) == (409, "AlreadyExists", 'pods "a" already exists')
    assert exists["details"] == {"name": "a", "kind": "pods"}
    missing = refused(core.create_namespaced_pod, "nowhere", pod("a"))
    assert brief(missing) == (404, "NotFound", 'namespaces "nowhere" not found')
    invalid = refused(core.create_namespaced_pod, HERE, pod("Not_A_Name"))
    assert invalid["code"] == 422 and invalid["details"]["causes"][0]["field"] == "metadata.name"


def test_a_stale_version_is_a_conflict(core: Any) -> None:
    old = core.create_namespaced_config_map(HERE, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    body = {"metadata": {"name": "a", "resourceVersion": old.metadata.resource_version}, "data": {"k": "2"}}
    assert core.replace_namespaced_config_map("a", HERE, body).data == {"k": "2"}
    stale = refused(core.replace_namespaced_config_map, "a", HERE, body)
    assert brief(stale)[:2] == (409, "Conflict") and "the object has been modified" in stale["message"]
    assert core.replace_namespaced_config_map("a", HERE, {"metadata": {"name": "a"}}).data is None


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (pod("a", containers=[]), "spec.containers", "FieldValueRequired"),
        (pod("a", restartPolicy="Sometimes"), "spec.restartPolicy", "FieldValueNotSupported"),
        (pod("a", volumes=[{"name": "v"}]), "spec.volumes[0]", "FieldValueRequired"),
        (pod("a", requests={"nvidia.com/gpu": "1"}), "spec.containers[0].resources.limits", "FieldValueInvalid"),
        (
            pod("a", limits={"nvidia.com/gpu": "0.5"}),
            "spec.containers[0].resources.limits.nvidia.com/gpu",
            "FieldValueInvalid",
        ),
        (
            pod("a", requests={"cpu": "2"}, limits={"cpu": "1"}),
            "spec.containers[0].resources.requests",
            "FieldValueInvalid",
        ),
        (pod("a", labels={"k": "no spaces"}), "metadata.labels", "FieldValueInvalid"),
        (
            pod("a", container={"volumeMounts": [{"name": "no", "mountPath": "/x"}]}),
            "spec.containers[0].volumeMounts[0].name",
            "FieldValueNotFound",
        ),
        (pod("a", container={"image": None}), "spec.containers[0].image", "FieldValueRequired"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_no_schema_says_is_checked_too(core: Any, body: dict[str, Any], field: str, reason: str) -> None:
    status = refused(core.create_namespaced_pod, HERE, body)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (field, reason) in {(each["field"], each["reason"]) for each in status["details"]["causes"]}


def test_defaults_are_set(core: Any) -> None:
    body = {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"cpu": "0.5"}}}]},
    }
    made = core.create_namespaced_pod(HERE, body)
    spec, container = made.spec, made.spec.containers[0]
    assert (spec.restart_policy, spec.termination_grace_period_seconds, spec.dns_policy) == (
        "Always",
        30,
        "ClusterFirst",
    )
    assert (spec.service_account_name, container.image_pull_policy) == ("default", "Always")
    assert container.resources.requests == {"cpu": "500m"} == container.resources.limits
    assert {each.key: each.toleration_seconds for each in spec.tolerations} == {
        "node.kubernetes.io/not-ready": 300,
        "node.kubernetes.io/unreachable": 300,
    }
    assert (made.status.phase, made.status.qos_class) == ("Pending", "Burstable")
    assert spec.volumes[0].name.startswith("kube-api-access-")  # unless the pod says that it wants no token


def test_secrets_and_services(core: Any) -> None:
    made = core.create_namespaced_secret(HERE, secret("s", key="value"))
    assert made.string_data is None and base64.b64decode(made.data["key"]) == b"value"
    cluster_ip = core.create_namespaced_service(HERE, service("inside")).spec
    assert cluster_ip.cluster_ip.startswith("10.96.") and cluster_ip.ports[0].target_port == 80
    headless = core.create_namespaced_service(HERE, service("names", clusterIP="None"))
    assert headless.spec.cluster_ip == "None"
    port = core.create_namespaced_service(HERE, service("outside", type="NodePort")).spec.ports[0].node_port
    assert 30000 <= port <= 32767
    taken = service("again", type="NodePort", ports=[{"port": 80, "nodePort": port}])
    assert "provided port is already allocated" in refused(core.create_namespaced_service, HERE, taken)["message"]


CONFIGS = "/api/v1/namespaces/default/configmaps"


def test_unknown_fields_are_dropped_with_a_warning_or_refused(wire: Wire) -> None:
    body = {"metadata": {"name": "a"}, "dta": {}}
    status, strict, _ = wire("POST", f"{CONFIGS}?fieldValidation=Strict", body)
    assert status == 400 and 'strict decoding error: unknown field "dta"' in strict["message"]
    status, made, headers = wire("POST", CONFIGS, body)
    assert (status, "dta" in made, headers["warning"]) == (201, False, '299 - "unknown field \\"dta\\""')


def test_requests_that_nobody_can_read(wire: Wire) -> None:
    status, wrong, _ = wire("POST", CONFIGS, {"metadata": {"name": "a"}, "data": {"k": 1}})
    assert (status, wrong["reason"]) == (400, "BadRequest") and "data.k" in wrong["message"]
    _, other, _ = wire("POST", CONFIGS, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}})
    assert "does not match the expected API version" in other["message"]
    assert wire("POST", CONFIGS, {"metadata": {"name": "a"}}, kind="application/vnd.kubernetes.protobuf")[0] == 415
    assert wire("PUT", CONFIGS, {})[0] == 405
    assert wire("GET", "/api/v1/namespaces/default/cronjobs")[0] == 404
    assert wire("GET", "/apis/apps/v1/namespaces/default/deployments")[0] == 404  # nothing would come of one
    assert wire("DELETE", f"{CONFIGS}/a?propagationPolicy=Orphan")[0] == 404
    assert wire("POST", CONFIGS, {"metadata": {"name": "a"}})[0] == 201
    assert wire("DELETE", f"{CONFIGS}/a?propagationPolicy=Orphan")[0] == 501
    assert wire("GET", CONFIGS, token="stolen")[:1] == (401,)


def test_a_dry_run_stores_nothing(core: Any) -> None:
    assert core.create_namespaced_pod(HERE, pod("a"), dry_run="All").metadata.uid
    assert refused(core.read_namespaced_pod, "a", HERE)["code"] == 404


def test_selectors(core: Any) -> None:
    for name, labels in (("a", {"x": "1", "y": "1"}), ("b", {"x": "2"}), ("c", {})):
        core.create_namespaced_pod(HERE, pod(name, labels=labels))

    def found(**query: str) -> str:
        return "".join(each.metadata.name for each in core.list_namespaced_pod(HERE, **query).items)

    expected = {"x=1": "a", "x==2": "b", "x!=1": "bc", "x": "ab", "!x": "c", "x in (1, 2),y": "a", "x notin (1)": "bc"}
    assert {each: found(label_selector=each) for each in expected} == expected
    assert found(field_selector="metadata.name!=b,spec.nodeName=one") == "ac"
    assert found(field_selector="status.phase=Failed") == ""
    unknown = refused(core.list_namespaced_pod, HERE, field_selector="spec.image=x")
    assert brief(unknown)[0::2] == (400, "field label not supported: spec.image")


def test_pages_are_of_one_moment_and_die(core: Any, cluster: Cluster) -> None:
    for name in "abcde":
        core.create_namespaced_config_map(HERE, {"metadata": {"name": name}})
    first = core.list_namespaced_config_map(HERE, limit=2)
    core.delete_namespaced_config_map("d", HERE)
    second = core.list_namespaced_config_map(HERE, limit=2, _continue=first.metadata._continue)
    assert [each.metadata.name for each in (*first.items, *second.items)] == list("abcd")
    assert (first.metadata.remaining_item_count, second.metadata.remaining_item_count) == (3, 1)
    cluster.store.compact()
    expired = refused(core.list_namespaced_config_map, HERE, limit=2, _continue=second.metadata._continue)
    assert (expired["code"], expired["reason"]) == (410, "Expired")


# --- changes ---------------------------------------------------------------------------------------------------------


def test_hardly_anything_of_a_pod_can_be_changed(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("a", schedulingGates=[{"name": "x/y"}]))
    status = refused(core.patch_namespaced_pod, "a", HERE, {"spec": {"hostNetwork": True}})
    assert status["code"] == 422 and "pod updates may not change fields other than" in status["message"]
    more = refused(core.patch_namespaced_pod, "a", HERE, {"spec": {"schedulingGates": [{"name": "z"}]}})
    assert "only deletion is allowed" in more["message"]
    lifted = core.patch_namespaced_pod("a", HERE, {"spec": {"schedulingGates": None}})
    assert lifted.spec.scheduling_gates is None
    assert core.read_namespaced_pod("a", HERE).status.phase == "Running"


def test_patches_of_three_kinds(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("a", labels={"a": "1", "b": "1"}))
    strategic = {"metadata": {"labels": {"a": None}}, "spec": {"containers": [{"name": "main", "image": "other:1"}]}}
    changed = core.patch_namespaced_pod("a", HERE, strategic)
    assert changed.metadata.labels == {"b": "1"}
    assert [(each.name, each.image) for each in changed.spec.containers] == [("main", "other:1")]
    steps = [
        {"op": "test", "path": "/metadata/labels/b", "value": "1"},
        {"op": "add", "path": "/metadata/labels/c", "value": "1"},
    ]
    assert core.patch_namespaced_pod("a", HERE, steps, _content_type="application/json-patch+json").metadata.labels == {
        "b": "1",
        "c": "1",
    }
    steps[0]["value"] = "2"
    assert (
        refused(core.patch_namespaced_pod, "a", HERE, steps, _content_type="application/json-patch+json")["code"] == 422
    )
    merge = {"metadata": {"labels": {"b": None}}}
    assert core.patch_namespaced_pod(
        "a", HERE, merge, _content_type="application/merge-patch+json"
    ).metadata.labels == {"c": "1"}


def apply(core: Any, manager: str, body: dict[str, Any], **named: Any) -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **body}
    kind = "application/apply-patch+yaml"
    return core.patch_namespaced_config_map("a", HERE, body, field_manager=manager, _content_type=kind, **named)


def test_server_side_apply(core: Any) -> None:
    apply(core, "one", {"data": {"x": "1", "y": "1"}})
    assert apply(core, "two", {"data": {"z": "1"}}).data == {"x": "1", "y": "1", "z": "1"}
    conflict = refused(apply, core, "two", {"data": {"x": "2"}})
    assert (conflict["code"], conflict["reason"]) == (409, "Conflict")
    assert conflict["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]
    assert apply(core, "two", {"data": {"x": "2"}}, force=True).data == {"x": "2", "y": "1"}  # z isn't applied any more
    assert apply(core, "one", {"data": {}}).data == {"x": "2"}  # what another has taken over stays
    owners = {
        each.manager: each.operation for each in core.read_namespaced_config_map("a", HERE).metadata.managed_fields
    }
    assert owners["two"] == "Apply"
    assert refused(apply, core, "", {})["code"] == 422


# --- deletion --------------------------------------------------------------------------------------------------------


def test_a_running_pod_gets_its_time_and_its_namesake_has_to_wait(core: Any, cluster: Cluster, clock: Clock) -> None:
    cluster.scripted.life = lambda given, container: Life(stops=None)
    core.create_namespaced_pod(HERE, pod("a"))
    old = core.read_namespaced_pod("a", HERE)
    going = core.delete_namespaced_pod("a", HERE, grace_period_seconds=20)
    assert going.metadata.deletion_grace_period_seconds == 20
    assert refused(core.create_namespaced_pod, HERE, pod("a"))["reason"] == "AlreadyExists"
    longer = core.delete_namespaced_pod("a", HERE, grace_period_seconds=60)
    assert longer.metadata.deletion_grace_period_seconds == 20
    clock.passes(19)
    assert core.read_namespaced_pod("a", HERE).metadata.uid == old.metadata.uid
    clock.passes(1)
    assert refused(core.read_namespaced_pod, "a", HERE)["code"] == 404
    new = core.create_namespaced_pod(HERE, pod("a"))
    assert new.metadata.uid != old.metadata.uid
    mismatch = refused(core.delete_namespaced_pod, "a", HERE, body={"preconditions": {"uid": old.metadata.uid}})
    assert (mismatch["code"], mismatch["reason"]) == (409, "Conflict") and "UID in precondition" in mismatch["message"]


def test_pods_that_do_not_run_go_at_once(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("pending", nodeSelector={"no": "where"}))
    core.delete_namespaced_pod("pending", HERE)
    assert refused(core.read_namespaced_pod, "pending", HERE)["code"] == 404
    core.create_namespaced_secret(HERE, secret("s"))
    status = core.delete_namespaced_secret("s", HERE)
    assert (status["status"], status["details"]["kind"]) == ("Success", "secrets")
    assert refused(core.delete_namespaced_secret, "s", HERE)["code"] == 404


def test_finalizers_hold_and_owners_take_along(core: Any, cluster: Cluster) -> None:
    owner = core.create_namespaced_pod(HERE, pod("owner"))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner.metadata.uid}
    owned = {**secret("owned"), "metadata": {"name": "owned", "ownerReferences": [reference]}}
    core.create_namespaced_secret(HERE, owned)
    core.create_namespaced_config_map(HERE, {"metadata": {"name": "held", "finalizers": ["x/y"]}})
    core.delete_namespaced_config_map("held", HERE)
    assert core.read_namespaced_config_map("held", HERE).metadata.deletion_timestamp
    core.patch_namespaced_config_map("held", HERE, {"metadata": {"finalizers": None}})
    assert refused(core.read_namespaced_config_map, "held", HERE)["code"] == 404
    assert core.read_namespaced_secret("owned", HERE)
    core.delete_namespaced_pod("owner", HERE)
    assert refused(core.read_namespaced_secret, "owned", HERE)["code"] == 404


def test_a_collection_is_deleted_by_its_labels(core: Any) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {})):
        core.create_namespaced_pod(HERE, pod(name, labels=labels))
    core.delete_collection_namespaced_pod(HERE, label_selector="x=1")
    assert [each.metadata.name for each in core.list_namespaced_pod(HERE).items] == ["c"]


def test_a_claim_in_use_is_kept_until_its_pod_is_gone(core: Any, cluster: Cluster) -> None:
    cluster.add("StorageClass", "fast", provisioner="x/y")
    core.create_namespaced_persistent_volume_claim(HERE, claim("data", storageClassName="fast"))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    core.create_namespaced_pod(HERE, pod("a", volumes=volumes))
    core.delete_namespaced_persistent_volume_claim("data", HERE)
    held = core.read_namespaced_persistent_volume_claim("data", HERE)
    assert held.metadata.deletion_timestamp and held.status.phase == "Bound"
    core.delete_namespaced_pod("a", HERE)
    assert refused(core.read_namespaced_persistent_volume_claim, "data", HERE)["code"] == 404


def test_a_namespace_ends_with_what_is_in_it(core: Any, cluster: Cluster) -> None:
    core.create_namespace({"metadata": {"name": "team"}})
    cluster.kubelet.stuck.add("a")
    core.create_namespaced_pod("team", pod("a"))
    core.create_namespaced_secret("team", secret("s"))
    core.delete_namespace("team")
    status = refused(core.create_namespaced_secret, "team", secret("t"))
    assert status["code"] == 403 and status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert core.read_namespace("team").status.phase == "Terminating"
    core.delete_namespaced_pod("a", "team", grace_period_seconds=0)
    assert refused(core.read_namespace, "team")["code"] == 404


# --- faults ----------------------------------------------------------------------------------------------------------


def test_faults_before_and_after_the_effect(core: Any, cluster: Cluster) -> None:
    cluster.faults.script.faults = [
        Fault("create pods", faults.throttled(7)),
        Fault("create pods", faults.quota_race("q")),
        Fault("create pods", faults.broken(), when="after"),
        Fault("create pods", Cut, when="after"),
    ]
    assert refused(core.create_namespaced_pod, HERE, pod("a"))["details"] == {"retryAfterSeconds": 7}
    race = refused(core.create_namespaced_pod, HERE, pod("a"))
    assert race["details"]["kind"] == "resourcequotas" and race["reason"] == "Conflict"
    assert refused(core.create_namespaced_pod, HERE, pod("a"))["code"] == 500
    assert core.read_namespaced_pod("a", HERE)  # it was created all the same
    with pytest.raises(Exception, match=r"(?i)closed|aborted|EOF"):
        core.create_namespaced_pod(HERE, pod("b"))
    assert core.read_namespaced_pod("b", HERE)


def test_answers_that_take_their_time(core: Any, cluster: Cluster) -> None:
    cluster.faults.slow["list pod?"] = threading.Event()
    with pytest.raises(Exception, match="timed out"):
        core.list_namespaced_pod(HERE, _request_timeout=(30, 0.1))
    assert core.list_namespaced_secret(HERE).items == []
    cluster.faults.slow["list pod?"].set()
    assert core.list_namespaced_pod(HERE).items == []


def test_what_the_fake_does_not_have_is_refused(core: Any) -> None:
    """Never accepted and ignored."""
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    for field, body in (
        ("spec.readinessGates", pod("a", readinessGates=[{"conditionType": "x/y"}])),
        ("spec.topologySpreadConstraints[0]", pod("a", topologySpreadConstraints=[spread])),
    ):
        assert refused(core.create_namespaced_pod, HERE, body)["details"]["causes"][0]["field"] == field
    limit = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}
    assert refused(core.create_namespaced_limit_range, HERE, limit)["code"] == 422
    bound = claim("c", volumeName="v")
    assert refused(core.create_namespaced_persistent_volume_claim, HERE, bound)["code"] == 422
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}}
    assert refused(core.create_namespaced_resource_quota, HERE, quota)["code"] == 422


def test_the_cluster_shows_nothing_that_a_real_one_would_not(clock: Clock) -> None:
    """Whatever a test has it show is held to the server's own document when the test is over."""
    cluster = Cluster(clock.now)
    cluster.add("Node", "a", status={"fase": "x", "conditions": [{"type": "Ready", "status": "Maybe"}]})
    found = cluster.misshapen()
    assert found[0] == "Node: unknown status.fase" and "'Maybe'" in found[1]
    with pytest.raises(AssertionError, match=r"status\.fase"), cluster.serving():
        pass


def test_what_is_immutable_stays(core: Any) -> None:
    core.create_namespaced_secret(HERE, {**secret("s", key="value"), "immutable": True})
    changed = refused(core.patch_namespaced_secret, "s", HERE, {"stringData": {"key": "other"}})
    assert "field is immutable when `immutable` is set" in changed["message"]
    assert "field is immutable" in refused(core.patch_namespaced_secret, "s", HERE, {"type": "other"})["message"]
    assert core.patch_namespaced_secret("s", HERE, {"metadata": {"labels": {"x": "1"}}}).metadata.labels == {"x": "1"}
