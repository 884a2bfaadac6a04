"""What a pod's state means: a machine, or why there is none (any more).

Only the pod's own fields decide. Events explain, where the pod says nothing: they are dropped when a cluster is busy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kubernetes.pods import INIT, JOB, OPENED, TYPE
from chalicelib.backends.spi import Machine
from chalicelib.domain.instants import MINUTE, SECOND, Micros, from_iso
from chalicelib.errors import BackendError, ContainerFailed, Gone, InsufficientCapacity, Unfit

Body = Mapping[str, Any]
Events = Callable[..., Sequence[Body]]  # of the pod, or of the claim that is named; called only if they are needed

PLACED_WITHIN = 30 * SECOND  # or there is no room: the scheduler needs a moment, and has no queue of ours
PREEMPTED_WITHIN = 5 * MINUTE  # while others make room for it
PROVISIONED_WITHIN = 5 * MINUTE
UNBOUND = "unbound immediate PersistentVolumeClaims"
NO_CLAIM = re.compile(r"persistentvolumeclaim .*not found", re.IGNORECASE)
ELSEWHERE = "volume node affinity conflict"
PULLED_WITHIN = 5 * MINUTE  # of the first failure, if the registry doesn't say what is wrong
STARTED_WITHIN = 2 * MINUTE  # of the first failure: a busy node recovers
MOUNTED_WITHIN = 3 * MINUTE
NOT_READY = ("ContainerCreating", "PodInitializing")
PULLING = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed")
NEVER_STARTS = ("InvalidImageName", "ErrImageNeverPull")
BROKEN = (
    *("ImageInspectError", "CreateContainerConfigError", "CreateContainerError"),
    *("RunContainerError", "PreCreateHookError", "CreatePodSandboxError"),
)
# The registry's own words for what waiting doesn't mend.
FINAL = re.compile(
    r"not found|manifest unknown|name unknown|does not exist|unauthori[sz]ed|authentication required|denied"
    r"|no basic auth credentials|invalid reference|no match for platform|no matching manifest|403 Forbidden",
    re.IGNORECASE,
)
UNUSABLE = re.compile(r"OutOf(.+)")  # the kubelet had less than the scheduler thought
_FROM_OUTSIDE = ("Evicted", "Preempting", "NodeShutdown", "Terminated", "Shutdown", "NodeLost")
_ELSEWHERE = ("NodeAffinity", "UnexpectedAdmissionError", "TopologyAffinityError")


def described(pod: Body, now: Micros, events: Events) -> Machine:
    """Raises Gone for a pod that has ended, or can't start."""
    status = pod.get("status", {})
    phase, deleted = status.get("phase", "Pending"), "deletionTimestamp" in pod["metadata"]
    job: Body = next((each["state"] for each in status.get("containerStatuses", ()) if each["name"] == JOB), {})
    if phase in ("Failed", "Succeeded") or "terminated" in job:  # the containers of others may run on
        raise _ended(pod, status)
    address = str(status.get("podIP", ""))
    if phase == "Running" and "waiting" not in job:
        return _machine("running", address, status, deleted)
    if deleted:
        raise Gone(f"{_name(pod)} is being deleted.")
    _check_placed(pod, status, now, events)
    _check_started(pod, status, now, events)
    return _machine("pending", address, status)


def outlook(pod: Body) -> Machine | str:
    """What `described` finds in its fields alone, whatever the time is, or the text of what it raises. Of a pod that
    starts, only that it does."""
    try:
        found = described(pod, 0, lambda *_: ())
    except BackendError as error:
        return str(error)
    return found if found.state == "running" else replace(found, hostname="", internal_ip="")


def _name(pod: Body) -> str:
    return f"The pod {pod['metadata']['name']}"


def _condition(status: Body, kind: str) -> Body:
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), {})


def _machine(state: Literal["pending", "running"], address: str, status: Body, deleted: bool = False) -> Machine:
    """It is taken back if somebody disrupts it: a drain, a node that goes, a more important pod."""
    target = _condition(status, "DisruptionTarget")
    if target.get("status") == "True":
        why = cleaned(str(target.get("message", "") or target.get("reason", "")))
        return Machine(state, address, address, interrupted=True, message=why)
    why = "somebody has deleted its pod" if deleted else ""
    return Machine(state, address, address, interrupted=deleted, message=why)


def _since(body: Body, now: Micros, *names: str) -> Micros:
    """How long ago the first of these times was."""
    at = next((body[name] for name in names if body.get(name)), None)
    return 0 if at is None else max(0, now - from_iso(str(at)))


# --- that has ended ---------------------------------------------------------------------------------------------------


def _ended(pod: Body, status: Body) -> Gone:
    reason, message = str(status.get("reason", "")), cleaned(str(status.get("message", "")))
    target = _condition(status, "DisruptionTarget")
    text = f"{_name(pod)} has ended{f' ({reason})' if reason else ''}{f': {message}' if message else ''}"
    if reason == "Evicted" and not target and re.search(r"exceed", message):
        what = "shared memory" if '"shm"' in message else "disk"
        return Gone(f"{text} Its job has used more {what} than its limit.", refused=ContainerFailed)
    if reason in _FROM_OUTSIDE or target.get("status") == "True":
        why = cleaned(str(target.get("message", "") or target.get("reason", "")))
        return Gone(f"{text}{f': {why}' if why and not message else ''}")
    if UNUSABLE.fullmatch(reason) or reason in _ELSEWHERE:
        return Gone(text, refused=InsufficientCapacity)
    if reason == "DeadlineExceeded":
        return Gone(text, refused=ContainerFailed)
    terminated = _terminated(status)
    if _is_stopped(pod, terminated):
        return Gone(f"{_name(pod)} has ended: somebody has deleted it.")
    for each, state in terminated:
        if each["name"] == INIT and state.get("exitCode", 0) != 0:
            return Gone(f"The agent couldn't be brought into the pod: {_exit(state)}", refused=Unfit)
    exits = [_exit(state) for each, state in terminated if each["name"] != INIT]
    return Gone(f"The container has ended: {exits[0]}" if exits else text, refused=ContainerFailed)


def _is_stopped(pod: Body, terminated: Sequence[tuple[Body, Body]]) -> bool:
    """Has its job, or what should have started it, ended because somebody deletes the pod? Not if it ended before."""
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        return False
    requested = from_iso(metadata["deletionTimestamp"]) - metadata.get("deletionGracePeriodSeconds", 0) * SECOND
    decisive = (state for each, state in terminated if each["name"] == JOB or state.get("exitCode", 0) != 0)
    finished = next((state.get("finishedAt") for state in decisive), None)
    return finished is None or from_iso(finished) >= requested


def _terminated(status: Body) -> list[tuple[Body, Body]]:
    """The job's container first, then those that failed: others may have added theirs."""
    found = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    terminated = [(each, each["state"]["terminated"]) for each in found if "terminated" in each.get("state", {})]
    return sorted(terminated, key=lambda each: (each[0]["name"] != JOB, each[1].get("exitCode", 0) == 0))


def _exit(state: Body) -> str:
    """The exit status, and the end of its log."""
    code, message = state.get("exitCode", 0), cleaned(_last(str(state.get("message", ""))))
    if state.get("reason") == "OOMKilled":
        return f"it has used more memory than it may (exit status {code})"
    return f"exit status {code}{f' ({message})' if message else ''}"


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return " ".join(lines[-3:])


# --- that doesn't run yet ---------------------------------------------------------------------------------------------


def _check_placed(pod: Body, status: Body, now: Micros, events: Events) -> None:
    """Raises Gone if nothing has room for it."""
    placed = _condition(status, "PodScheduled")
    if placed.get("status") == "True" or pod["spec"].get("schedulingGates"):
        return
    if placed.get("reason") != "Unschedulable":  # a node is chosen, and perhaps a disk is being made there
        if _since(pod["metadata"], now, "creationTimestamp") >= PROVISIONED_WITHIN and (
            why := _unprovisioned(pod, events)
        ):
            raise Gone(f"A volume of {pod['metadata']['name']} has no disk yet: {why}", refused=ContainerFailed)
        return
    waits = _since(placed, now, "lastTransitionTime") or _since(pod["metadata"], now, "creationTimestamp")
    if opened := pod["metadata"].get("annotations", {}).get(OPENED, ""):  # until then it waited for others
        waits = min(waits, _since({OPENED: opened}, now, OPENED))
    why = cleaned(str(placed.get("message", "")))
    if UNBOUND in why:  # a disk is being made
        if waits >= PROVISIONED_WITHIN:
            why = _unprovisioned(pod, events) or why
            raise Gone(f"A volume of {pod['metadata']['name']} has no disk yet: {why}", refused=ContainerFailed)
    elif (within := PREEMPTED_WITHIN if status.get("nominatedNodeName") else PLACED_WITHIN) <= waits:
        if not NO_CLAIM.search(why) and (tried := _tried(events(), now)) is not None and tried < within:
            return  # it was behind somebody else's gate before
        if NO_CLAIM.search(why):
            raise Gone(f"A volume of {pod['metadata']['name']} is missing: {why}", refused=ContainerFailed)
        what = pod["metadata"].get("annotations", {}).get(TYPE, "node")
        where = " where its volumes are" if ELSEWHERE in why else ""
        raise Gone(f"No {what} has room for {pod['metadata']['name']}{where}: {why}", refused=InsufficientCapacity)


def _tried(events: Iterable[Body], now: Micros) -> Micros | None:
    """How long ago the scheduler first found no node. Behind a gate it looks for none, and the condition's time is from
    then. None: no event is left."""
    found = [each for each in events if each.get("reason") == "FailedScheduling"]
    return max((_since(each, now, "firstTimestamp", "eventTime") for each in found), default=None)


def _unprovisioned(pod: Body, events: Events) -> str:
    """The last event that says why a claim has no disk; empty if there is none."""
    volumes = pod["spec"].get("volumes", ())
    names = [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]
    found = [each for name in names for each in events(name) if each.get("reason") == "ProvisioningFailed"]
    return cleaned(str(found[-1].get("message", ""))) if found else ""


def _check_started(pod: Body, status: Body, now: Micros, events: Events) -> None:
    """Raises Gone if a container can't start."""
    began = _since(_condition(status, "PodScheduled"), now, "lastTransitionTime")
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    for each in containers:
        waiting = each.get("state", {}).get("waiting", {})
        reason, message = waiting.get("reason", ""), str(waiting.get("message", ""))
        is_ours = each["name"] == INIT
        if reason in PULLING:
            failures = () if FINAL.search(message) else _failures(events(), each["name"], pulling=True)
            why = _pull_failure(failures) or message
            if FINAL.search(why) or _lasting(failures, now, began) >= PULLED_WITHIN:
                raise _not_started(f"The image {each.get('image', '')} can't be pulled", why, is_ours)
        elif reason in NEVER_STARTS or (
            reason in BROKEN
            and _lasting(_failures(events(), each["name"], pulling=False), now, began) >= STARTED_WITHIN
        ):
            raise _not_started(f"The container can't start ({reason})", message, is_ours)
    has_mounted = any({"running", "terminated"} & each.get("state", {}).keys() for each in containers)
    if not has_mounted and began >= MOUNTED_WITHIN and (why := _mount_failure(events(), now)):
        raise _not_started("The pod can't start", why, is_ours=False)


def _not_started(what: str, message: str, is_ours: bool) -> Gone:
    kind: type[BackendError] = Unfit if is_ours else ContainerFailed
    hint = " It is the `init_image` of the context." if is_ours else ""
    return Gone(f"{what}: {cleaned(message)}{hint}", refused=kind)


def _failures(events: Iterable[Body], container: str, *, pulling: bool) -> Sequence[Body]:
    """The events that say that the container's image couldn't be pulled, or that it couldn't be started."""
    return [
        each
        for each in events
        if each.get("reason") == "Failed"
        and ("pull" in str(each.get("message", "")).lower()) is pulling
        and f"{{{container}}}" in each.get("involvedObject", {}).get("fieldPath", f"{{{container}}}")
    ]


def _lasting(failures: Sequence[Body], now: Micros, began: Micros) -> Micros:
    """How long ago the first failure was; without events, since the pod was placed."""
    return max((_since(each, now, "firstTimestamp", "eventTime", "lastTimestamp") for each in failures), default=began)


def _pull_failure(failures: Iterable[Body]) -> str:
    found = [str(each.get("message", "")) for each in failures]
    return next((text for text in reversed(found) if "pull" in text), "")


def _mount_failure(events: Iterable[Body], now: Micros) -> str:
    """What the last minutes' events say of its volumes or its network."""
    wanted = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
    recent = [
        str(each.get("message", ""))
        for each in events
        if each.get("reason") in wanted and _since(each, now, "lastTimestamp", "eventTime") < MOUNTED_WITHIN
    ]
    return recent[-1] if recent else ""
