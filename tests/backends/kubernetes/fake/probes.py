"""The kubelet's probes: whether a container has started, whether it is ready, and whether it is still well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from chalicelib.domain.instants import SECOND, Micros
from tests.backends.kubernetes.fake.schema import Object

NEVER: Micros = 1 << 62
KINDS = {"startupProbe": "Startup", "livenessProbe": "Liveness", "readinessProbe": "Readiness"}
Ask = Callable[[Object, Mapping[str, Any]], str]  # why the probe of this pod fails; empty: it succeeds
Say = Callable[[Object, str, str], None]  # an event about a pod: its reason and its message


@dataclass
class _One:
    due: Micros
    good: int = 0
    bad: int = 0


class Found(NamedTuple):
    started: bool
    ready: bool
    well: bool  # else it has to be ended
    due: Micros  # when to look again


class Probes:
    def __init__(self, ask: Ask, say: Say) -> None:
        self._ask, self._say = ask, say
        self._all: dict[tuple[str, str, str], _One] = {}

    def begin(self, pod: Object, container: Mapping[str, Any], now: Micros) -> dict[str, bool]:
        """What its status says when it has just been started."""
        for kind in KINDS:
            if kind in container:
                delay = container[kind].get("initialDelaySeconds", 0) * SECOND
                self._all[pod["metadata"]["uid"], container["name"], kind] = _One(now + delay)
        started = "startupProbe" not in container
        return {"started": started, "ready": started and "readinessProbe" not in container}

    def look(self, pod: Object, container: Mapping[str, Any], status: Object, now: Micros) -> Found:
        started, ready = status["started"], status["ready"]
        if not started:
            outcome = self._probe(pod, container, "startupProbe", now)
            if not outcome:
                return Found(False, False, outcome is None, self._due(pod, container, "startupProbe"))
            ready = "readinessProbe" not in container
        well = "livenessProbe" not in container or self._probe(pod, container, "livenessProbe", now) is not False
        if "readinessProbe" in container:
            outcome = self._probe(pod, container, "readinessProbe", now)
            ready = ready if outcome is None else outcome
        due = min(self._due(pod, container, kind) for kind in ("livenessProbe", "readinessProbe"))
        return Found(True, ready, well, due)

    def _due(self, pod: Object, container: Mapping[str, Any], kind: str) -> Micros:
        found = self._all.get((pod["metadata"]["uid"], container["name"], kind))
        return found.due if found else NEVER

    def _probe(self, pod: Object, container: Mapping[str, Any], kind: str, now: Micros) -> bool | None:
        """Whether it has succeeded, or failed, as often as the probe asks for; None: neither, or it isn't due."""
        probe, one = container[kind], self._all[pod["metadata"]["uid"], container["name"], kind]
        if now < one.due:
            return None
        one.due = now + probe["periodSeconds"] * SECOND
        wrong = self._ask(pod, {**probe, "ports": container.get("ports", ())})
        one.good, one.bad = (0, one.bad + 1) if wrong else (one.good + 1, 0)
        if wrong:
            self._say(pod, "Unhealthy", f"{KINDS[kind]} probe failed: {wrong}")
        if one.good >= probe["successThreshold"]:
            return True
        return False if one.bad >= probe["failureThreshold"] else None

    def forget(self, uid: str) -> None:
        for key in [each for each in self._all if each[0] == uid]:
            del self._all[key]
