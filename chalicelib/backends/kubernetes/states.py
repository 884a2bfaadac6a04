"""What a pod's state means: a machine, or why there is none (any more).

Only the pod's own fields decide. Events explain, where the pod says nothing: they are dropped when a cluster is busy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kubernetes.pods import INIT, TYPE
from chalicelib.backends.spi import Machine
from chalicelib.domain.instants import MINUTE, SECOND, Micros, from_iso
from chalicelib.errors import BackendError, ContainerFailed, Gone, InsufficientCapacity, Unfit

Body = Mapping[str, Any]
Events = Callable[[], Sequence[Body]]  # of the pod; called only if they are needed

PLACED_WITHIN = 15 * SECOND  # or there is no room: the scheduler needs a moment, and has no queue of ours
PREEMPTED_WITHIN = 5 * MINUTE  # while others make room for it
PROVISIONED_WITHIN = 5 * MINUTE
UNBOUND = "unbound immediate PersistentVolumeClaims"
PULLED_WITHIN = 5 * MINUTE  # if the registry doesn't say what is wrong
MOUNTED_WITHIN = 3 * MINUTE
NOT_READY = ("ContainerCreating", "PodInitializing")
PULLING = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed")
BROKEN = (
    *("InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "CreateContainerConfigError"),
    *("CreateContainerError", "RunContainerError", "PreCreateHookError", "CreatePodSandboxError"),
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
    if phase in ("Failed", "Succeeded"):
        raise _ended(pod, status)
    address = str(status.get("podIP", ""))
    if phase == "Running":
        return Machine("running", address, address, interrupted=deleted or _is_taken_back(status))
    if deleted:
        raise Gone(f"{_name(pod)} is being deleted.")
    _check_placed(pod, status, now)
    _check_started(pod, status, now, events)
    return Machine("pending", address, address, interrupted=_is_taken_back(status))


def _name(pod: Body) -> str:
    return f"The pod {pod['metadata']['name']}"


def _condition(status: Body, kind: str) -> Body:
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), {})


def _is_taken_back(status: Body) -> bool:
    """Somebody disrupts it: a drain, a node that goes, a more important pod."""
    return bool(_condition(status, "DisruptionTarget").get("status") == "True")


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
        return Gone(f"{text} Its job has used more disk than it requested.", refused=ContainerFailed)
    if reason in _FROM_OUTSIDE or target.get("status") == "True":
        why = cleaned(str(target.get("message", "") or target.get("reason", "")))
        return Gone(f"{text}{f': {why}' if why and not message else ''}")
    if UNUSABLE.fullmatch(reason) or reason in _ELSEWHERE:
        return Gone(text, refused=InsufficientCapacity)
    if reason == "DeadlineExceeded":
        return Gone(text, refused=ContainerFailed)
    for each, state in _terminated(status):
        if each["name"] == INIT and state.get("exitCode", 0) != 0:
            return Gone(f"The agent couldn't be brought into the pod: {_exit(state)}", refused=Unfit)
    exits = [_exit(state) for each, state in _terminated(status) if each["name"] != INIT]
    return Gone(f"The container has ended: {exits[0]}" if exits else text, refused=ContainerFailed)


def _terminated(status: Body) -> list[tuple[Body, Body]]:
    found = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return [(each, each["state"]["terminated"]) for each in found if "terminated" in each.get("state", {})]


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


def _check_placed(pod: Body, status: Body, now: Micros) -> None:
    """Raises Gone if nothing has room for it."""
    placed = _condition(status, "PodScheduled")
    if placed.get("status") != "False" or placed.get("reason") != "Unschedulable":
        return
    waits = _since(placed, now, "lastTransitionTime") or _since(pod["metadata"], now, "creationTimestamp")
    why = cleaned(str(placed.get("message", "")))
    if UNBOUND in why:  # a disk is being made
        if waits >= PROVISIONED_WITHIN:
            raise Gone(f"A volume of {pod['metadata']['name']} has no disk yet: {why}", refused=ContainerFailed)
    elif waits >= (PREEMPTED_WITHIN if status.get("nominatedNodeName") else PLACED_WITHIN):
        what = pod["metadata"].get("annotations", {}).get(TYPE, "node")
        raise Gone(f"No {what} has room for {pod['metadata']['name']}: {why}", refused=InsufficientCapacity)


def _check_started(pod: Body, status: Body, now: Micros, events: Events) -> None:
    """Raises Gone if a container can't start."""
    began = _since(_condition(status, "PodScheduled"), now, "lastTransitionTime")
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = each.get("state", {}).get("waiting", {})
        reason, message = waiting.get("reason", ""), str(waiting.get("message", ""))
        is_ours = each["name"] == INIT
        if reason in PULLING:
            why = message if FINAL.search(message) else _pull_failure(events())
            if FINAL.search(why) or began >= PULLED_WITHIN:
                raise _not_started(f"The image {each.get('image', '')} can't be pulled", why or message, is_ours)
        elif reason in BROKEN:
            raise _not_started(f"The container can't start ({reason})", message, is_ours)
    if began >= MOUNTED_WITHIN and (why := _mount_failure(events(), now)):
        raise _not_started("The pod can't start", why, is_ours=False)


def _not_started(what: str, message: str, is_ours: bool) -> Gone:
    kind: type[BackendError] = Unfit if is_ours else ContainerFailed
    hint = " It is the `init_image` of the context." if is_ours else ""
    return Gone(f"{what}: {cleaned(message)}{hint}", refused=kind)


def _pull_failure(events: Iterable[Body]) -> str:
    found = [str(each.get("message", "")) for each in events if each.get("reason") == "Failed"]
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
