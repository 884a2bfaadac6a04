"""What a pod's state means, and why a pod that doesn't run doesn't."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.backends.kubernetes.states import described
from chalicelib.backends.spi import Machine
from chalicelib.domain.instants import MINUTE, SECOND, Micros, from_iso
from chalicelib.errors import BackendError, ContainerFailed, Gone, InsufficientCapacity, Unfit

Body = dict[str, Any]
AT = "2026-11-27T10:00:00Z"
THEN = from_iso(AT)
PLACED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": AT}
UNPLACED: Body = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient cpu.",
    "lastTransitionTime": AT,
}
TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API"}


def pod(phase: str = "Pending", *conditions: Body, deleted: bool = False, **status: Any) -> Body:
    metadata = {"name": "one", "uid": "u", "creationTimestamp": AT, **({"deletionTimestamp": AT} if deleted else {})}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "conditions": list(conditions), **status}}


def status(name: str = "job", **state: Body) -> Body:
    return {"name": name, "image": "team/trainer:1", "state": state}


def waiting(reason: str, message: str = "", name: str = "job") -> Body:
    return status(name, waiting={"reason": reason, "message": message})


def ended(code: int, reason: str = "Error", message: str = "", name: str = "job") -> Body:
    return status(name, terminated={"exitCode": code, "reason": reason, "message": message})


def after(body: Body, wait: Micros = SECOND, events: Sequence[Body] = (), claims: Sequence[Body] = ()) -> Machine:
    return described(body, THEN + wait, lambda claim="": claims if claim else events)


def gone(body: Body, wait: Micros = SECOND, events: Sequence[Body] = (), claims: Sequence[Body] = ()) -> Gone:
    with pytest.raises(Gone) as found:
        after(body, wait, events, claims)
    return found.value


def event(reason: str, message: str, at: str = AT, first: str | None = None) -> Body:
    return {"reason": reason, "message": message, "firstTimestamp": first or at, "lastTimestamp": at}


def test_a_running_pod_is_a_machine_with_its_address() -> None:
    assert after(pod("Running", PLACED, podIP="10.0.0.7")) == Machine("running", "10.0.0.7", "10.0.0.7")
    assert after(pod("Pending")).state == after(pod("Pending", PLACED)).state == "pending"


def test_a_pod_behind_its_gate_waits() -> None:
    gated = {**UNPLACED, "reason": "SchedulingGated"}
    assert after(pod("Pending", gated), MINUTE).state == "pending"


@pytest.mark.parametrize("body", [pod("Running", PLACED, deleted=True), pod("Running", PLACED, TARGET)])
def test_a_pod_that_somebody_ends_is_interrupted(body: Body) -> None:
    assert after(body).interrupted and not after(pod("Running", PLACED, {**TARGET, "status": "False"})).interrupted


def test_a_pod_that_is_deleted_before_it_runs_is_gone() -> None:
    assert gone(pod("Pending", deleted=True)).refused is None


def test_a_pod_without_room_is_a_lack_of_capacity_after_a_moment() -> None:
    body = pod("Pending", UNPLACED)
    assert after(body, 29 * SECOND).state == "pending"
    found = gone(body, 30 * SECOND)
    assert found.refused is InsufficientCapacity and "2 Insufficient cpu" in str(found)


def test_its_time_begins_when_the_scheduler_first_looked_for_a_node() -> None:
    """Behind somebody else's gate its condition keeps the time from before."""
    body, tried = pod("Pending", UNPLACED), event("FailedScheduling", "no", "2026-11-27T10:59:00Z")
    hour = 60 * MINUTE
    assert after(body, hour - 31 * SECOND, [tried]).state == "pending"
    assert gone(body, hour - 30 * SECOND, [tried]).refused is InsufficientCapacity
    newer = {"reason": "FailedScheduling", "firstTimestamp": None, "eventTime": "2026-11-27T10:59:00.000000Z"}
    assert after(body, hour - 31 * SECOND, [newer]).state == "pending"


def test_a_pod_whose_disk_is_being_made_has_longer() -> None:
    body = pod("Pending", {**UNPLACED, "message": "0/2: pod has unbound immediate PersistentVolumeClaims."})
    assert after(body, 4 * MINUTE).state == "pending"
    assert gone(body, 5 * MINUTE).refused is ContainerFailed
    body["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    warnings = [event("ProvisioningFailed", "quota of disks is used up"), event("ExternalProvisioning", "waiting")]
    assert "quota of disks is used up" in str(gone(body, 5 * MINUTE, claims=warnings))


def test_a_disk_that_is_made_for_its_first_pod_has_as_long() -> None:
    """The scheduler has chosen a node, and says nothing, or that it will choose again."""
    again = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "provisioning failed"}
    warnings = [event("ProvisioningFailed", "quota of disks is used up")]
    for conditions in ((), (again,)):
        body = pod("Pending", *conditions)
        body["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        assert after(body, 4 * MINUTE, claims=warnings).state == "pending"
        assert after(body, 6 * MINUTE).state == "pending", "nothing has failed"
        found = gone(body, 6 * MINUTE, claims=warnings)
        assert found.refused is ContainerFailed and "has no disk yet: quota of disks is used up" in str(found)
        body["spec"]["schedulingGates"] = [{"name": "team/quota"}]
        assert after(body, 6 * MINUTE, claims=warnings).state == "pending"


@pytest.mark.parametrize(
    ("message", "refused", "text"),
    [
        (
            '0/1: persistentvolumeclaim "data" not found.',
            ContainerFailed,
            'is missing: 0/1: persistentvolumeclaim "data"',
        ),
        ("0/2: 2 node(s) had volume node affinity conflict.", InsufficientCapacity, "one where its volumes are: 0/2"),
    ],
)
def test_a_volume_that_keeps_a_pod_from_its_nodes_is_named(
    message: str, refused: type[BackendError], text: str
) -> None:
    found = gone(pod("Pending", {**UNPLACED, "message": message}), MINUTE)
    assert found.refused is refused and text in str(found)


def test_a_pod_that_others_make_room_for_has_longer() -> None:
    body = pod("Pending", UNPLACED, nominatedNodeName="n")
    assert after(body, MINUTE).state == "pending"
    assert gone(body, 5 * MINUTE).refused is InsufficientCapacity


@pytest.mark.parametrize(
    ("body", "refused", "text"),
    [
        (pod("Failed", containerStatuses=[ended(3, message="Trace\n\nno GPU\n")]), ContainerFailed, "3 (Trace no GPU)"),
        (pod("Succeeded", containerStatuses=[ended(0, "Completed")]), ContainerFailed, "exit status 0"),
        (pod("Failed", containerStatuses=[ended(137, "OOMKilled")]), ContainerFailed, "more memory than it may"),
        (
            pod("Failed", initContainerStatuses=[ended(78, message="dstack: it can't be fetched", name="dstack-init")]),
            Unfit,
            "couldn't be brought into the pod: exit status 78 (dstack: it can't be fetched)",
        ),
        (pod("Failed", reason="Evicted", message="The node was low on resource: memory."), None, "low on resource"),
        (
            pod("Failed", reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit."),
            ContainerFailed,
            "more disk than its limit",
        ),
        (
            pod("Failed", reason="Evicted", message='Usage of EmptyDir volume "shm" exceeds the limit "1Gi".'),
            ContainerFailed,
            "more shared memory than its limit",
        ),
        (pod("Failed", TARGET, containerStatuses=[ended(143)]), None, "Eviction API"),
        (pod("Failed", reason="Preempting", message="Preempted in order to admit critical pod"), None, "Preempting"),
        (pod("Failed", reason="NodeShutdown"), None, "NodeShutdown"),
        (pod("Failed", reason="OutOfnvidia.com/gpu"), InsufficientCapacity, "OutOfnvidia.com/gpu"),
        (pod("Failed", reason="UnexpectedAdmissionError"), InsufficientCapacity, "UnexpectedAdmissionError"),
        (pod("Failed", reason="DeadlineExceeded"), ContainerFailed, "DeadlineExceeded"),
    ],
)  # fmt: skip
def test_a_pod_that_has_ended_says_why(body: Body, refused: type[BackendError] | None, text: str) -> None:
    found = gone(body)
    assert found.refused is refused and text in str(found)


def test_a_pod_that_is_deleted_while_it_runs_is_interrupted_although_its_container_has_exited() -> None:
    late, early = "2026-11-27T10:00:05Z", "2026-11-27T09:57:00Z"
    for stopped in (late, early):
        body = pod(
            "Failed", deleted=True, containerStatuses=[status(terminated={"exitCode": 143, "finishedAt": stopped})]
        )
        body["metadata"]["deletionGracePeriodSeconds"] = 120
        found = gone(body)
        assert found.refused is (None if stopped == late else ContainerFailed), "it had ended by itself before"
    inits = [status("dstack-init", terminated={"exitCode": 0, "finishedAt": early})]
    before = pod("Failed", deleted=True, initContainerStatuses=inits, containerStatuses=[waiting("PodInitializing")])
    assert gone(before).refused is None and "somebody has deleted it" in str(gone(before))


def test_the_jobs_container_decides_beside_those_of_a_mesh() -> None:
    mesh, of_mesh = status("istio-proxy", running={}), ended(0, "Completed", name="istio-init")
    body = pod("Running", PLACED, initContainerStatuses=[of_mesh], containerStatuses=[mesh, ended(3)])
    assert gone(body).refused is ContainerFailed and "exit status 3" in str(gone(body))
    body = pod("Running", PLACED, containerStatuses=[mesh, waiting("ErrImagePull", "manifest unknown")])
    assert "can't be pulled" in str(gone(body))
    body = pod("Running", PLACED, containerStatuses=[mesh, waiting("ContainerCreating")])
    assert after(body).state == "pending"
    body = pod("Running", PLACED, containerStatuses=[mesh, status(running={})], podIP="10.0.0.7")
    assert after(body) == Machine("running", "10.0.0.7", "10.0.0.7")


@pytest.mark.parametrize(
    "message",
    [
        'rpc error: code = NotFound desc = failed to pull "team/trainer:1": not found',
        "manifest unknown: manifest unknown",
        "unauthorized: authentication required",
        "pull access denied, repository does not exist",
        "no basic auth credentials",
        "no match for platform in manifest",
    ],
)
def test_an_image_that_no_waiting_brings_fails_at_once(message: str) -> None:
    found = gone(pod("Pending", PLACED, containerStatuses=[waiting("ErrImagePull", message)]))
    assert found.refused is ContainerFailed
    assert "team/trainer:1 can't be pulled" in str(found) and message[:20] in str(found)


def test_an_image_whose_registry_doesnt_answer_has_time() -> None:
    body = pod("Pending", PLACED, containerStatuses=[waiting("ErrImagePull", "dial tcp: i/o timeout")])
    assert after(body, 4 * MINUTE).state == "pending"
    assert gone(body, 5 * MINUTE).refused is ContainerFailed


def test_a_pulls_time_begins_with_its_first_failure() -> None:
    """A large init image, or a queue of pulls, may take long before."""
    body = pod("Pending", PLACED, containerStatuses=[waiting("ImagePullBackOff", "Back-off pulling image")])
    failed = [event("Failed", "Failed to pull image: i/o timeout", "2026-11-27T10:15:00Z", "2026-11-27T10:10:00Z")]
    assert after(body, 14 * MINUTE, failed).state == "pending"
    assert "i/o timeout" in str(gone(body, 15 * MINUTE, failed))


def test_events_say_what_the_pod_doesnt() -> None:
    body = pod("Pending", PLACED, containerStatuses=[waiting("ImagePullBackOff", "Back-off pulling image")])
    assert after(body).state == "pending"
    warnings = [
        event("Pulling", "pulling"),
        event("Failed", "Failed to pull image: manifest unknown"),
        event("BackOff", "x"),
    ]
    assert "manifest unknown" in str(gone(body, events=warnings))


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("InvalidImageName", 'couldn\'t parse image "A B"'),
        ("ErrImageNeverPull", "image isn't there and mustn't be pulled"),
    ],
)
def test_a_container_that_never_starts_fails_at_once(reason: str, message: str) -> None:
    found = gone(pod("Pending", PLACED, containerStatuses=[waiting(reason, message)]))
    assert found.refused is ContainerFailed and message[:15] in str(found)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition"),
        ("CreateContainerError", "context deadline exceeded"),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
        ("CreateContainerError", "no such device"),
        ("RunContainerError", "exec: no such file"),
    ],
)
def test_a_container_that_cant_start_says_why(reason: str, message: str) -> None:
    """A busy node recovers from some of these."""
    body = pod("Pending", PLACED, containerStatuses=[waiting(reason, message)])
    failed = [
        event("Failed", "Failed to pull image: i/o timeout", "2026-11-27T10:01:00Z"),
        event("Failed", f"Error: {message}", "2026-11-27T10:11:00Z", "2026-11-27T10:10:00Z"),
    ]
    assert after(body, 11 * MINUTE, failed).state == "pending"
    for found in (gone(body, 12 * MINUTE, failed), gone(body, 2 * MINUTE)):
        assert found.refused is ContainerFailed and message[:15] in str(found)


def test_the_first_containers_image_is_the_admins_affair() -> None:
    body = pod("Pending", PLACED, initContainerStatuses=[waiting("ErrImagePull", "not found", "dstack-init")])
    found = gone(body)
    assert found.refused is Unfit and "`init_image`" in str(found)


def test_a_volume_that_isnt_mounted_is_told_after_a_while() -> None:
    body = pod("Pending", PLACED, containerStatuses=[waiting("ContainerCreating")])
    warnings = [event("FailedAttachVolume", "Multi-Attach error for volume", "2026-11-27T10:02:30Z")]
    assert after(body, 2 * MINUTE, warnings).state == "pending"
    found = gone(body, 3 * MINUTE, warnings)
    assert found.refused is ContainerFailed and "Multi-Attach" in str(found)
    assert after(body, 10 * MINUTE, warnings).state == "pending", "that was long ago"
    assert after(body, 10 * MINUTE).state == "pending", "a large image is still coming"
    for state in ("running", "terminated"):
        mounted = {
            **body,
            "status": {**body["status"], "initContainerStatuses": [status("dstack-init", **{state: {}})]},
        }
        assert after(mounted, 3 * MINUTE, warnings).state == "pending", "its volumes are mounted"
