"""Step Functions on virtual time: a reading of the States Language as far as our machines use it.

An execution calls its function at once and goes on until a state waits, for a callback or for the pause before a retry.
`lost` lets calls to it go astray; what is lost of its own is up to the function that it calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.engine.asl import first_input

Invoke = Callable[[Mapping[str, Any]], Mapping[str, str]]
Machine = Mapping[str, Any]

TIMEOUT, CUT_OFF = "States.Timeout", "Lambda.Unknown"


class CutOff(BaseException):
    """The function's process dies, or its reply is lost."""


@dataclass
class Execution:
    machine: Machine
    name: str
    invoke: Invoke
    now: Callable[[], Micros]
    successor: Callable[[Execution, Mapping[str, Any]], None]
    data: dict[str, Any] = field(default_factory=dict)
    state: str = ""
    token: str = ""  # of the callback it waits for
    due: Micros | None = 0  # when it goes on by itself
    ended: str = ""  # SUCCEEDED or FAILED
    events: int = 0
    transitions: int = 0  # as they are billed: into each state, each repetition, and out of the last
    _used: list[int] = field(default_factory=list)
    _tokens: int = 0
    _flying: int = 0  # the number of the call that hasn't returned yet

    def __post_init__(self) -> None:
        self.data = self.data or first_input(self.name)
        self._enter(self.machine["StartAt"])

    def go_on(self) -> None:
        """Until it waits or has ended."""
        while self.due is not None and self.due <= self.now() and not self.ended:
            if self.token or self._flying:
                self._failed(TIMEOUT, "")
            else:
                self._step(self.machine["States"][self.state])

    def stop(self) -> None:
        """Somebody stops or deletes it."""
        self.ended, self.token = "ABORTED", ""

    def succeed(self, token: str, output: Mapping[str, Any]) -> None:
        self._callback(token, lambda: self._left(dict(output)))

    def fail(self, token: str, error: str, cause: str) -> None:
        self._callback(token, lambda: self._failed(error, cause))

    def _callback(self, token: str, act: Callable[[], None]) -> None:
        if token and token == self.token:
            self.token, self._flying, self.due = "", 0, self.now()
            act()

    # --- its states --------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        self.state, self.due, self.token = name, self.now(), ""
        self.transitions += 1
        self._used = [0] * len(self.machine["States"][name].get("Retry", ()))

    def _step(self, state: Mapping[str, Any]) -> None:
        if state["Type"] in ("Succeed", "Fail"):
            self.ended, self.due = "SUCCEEDED" if state["Type"] == "Succeed" else "FAILED", None
            self.transitions += 1
        elif state["Type"] == "Choice":
            self._enter(next((each["Next"] for each in state["Choices"] if chosen(each, self.data)), state["Default"]))
        elif state["Type"] == "Pass":
            self.data[state["ResultPath"].removeprefix("$.")] = state["Result"]
            self._enter(state["Next"])
        elif state["Resource"].endswith("startExecution"):
            assert state["Parameters"]["Input.$"] == "$"
            self.successor(self, json.loads(json.dumps(self.data)))
            self.ended, self.due = "SUCCEEDED", None
        else:
            self._call(state)

    def _call(self, state: Mapping[str, Any]) -> None:
        self.events += 1
        given = state["Parameters"]["Payload"]
        payload = {"workflow": self.data["workflow"], "step": given["step"], "undo": given["undo"]}
        token = ""
        if "token.$" in given:
            self._tokens += 1
            token = payload["token"] = self.token = f"{self.name}/{self.state}/{self._tokens}"
        self.due = self.now() + state["TimeoutSeconds"] * SECOND
        own_events = self._flying = self.events
        error, cause, answer = "", "", dict[str, str]()
        try:
            answer = json.loads(json.dumps(self.invoke(json.loads(json.dumps(payload)))))
        except CutOff:
            error, cause = CUT_OFF, "its process ended"
        except Exception as raised:  # Lambda reports the name of its class
            error, cause = type(raised).__name__, str(raised)
        if self._flying != own_events or self.token != token:
            return  # its time was up, or its callback came first
        self._flying = 0
        if error:
            self._failed(error, cause)
        elif not token:
            self._left({"Payload": answer})

    def _left(self, result: Mapping[str, Any]) -> None:
        state = self.machine["States"][self.state]
        assert state["ResultSelector"] == {"all.$": "$.Payload"} and state["ResultPath"] == "$.made"
        self.data["made"] = {"all": result["Payload"]}
        self._enter(state["Next"])

    def _failed(self, error: str, cause: str) -> None:
        state, self.token, self._flying = self.machine["States"][self.state], "", 0
        which, retry = next((at, each) for at, each in enumerate(state["Retry"]) if named(each, error))
        if self._used[which] < retry["MaxAttempts"]:
            pause = retry["IntervalSeconds"] * retry["BackoffRate"] ** min(self._used[which], 30)
            pause = min(pause, retry.get("MaxDelaySeconds", pause))
            self._used[which] += 1
            self.transitions += 1
            self.due = self.now() + round(pause * SECOND)
            return
        caught = next(each for each in state["Catch"] if named(each, error))
        self.data[caught["ResultPath"].removeprefix("$.")] = {"Error": error, "Cause": cause}
        self._enter(caught["Next"])


def named(each: Mapping[str, Any], error: str) -> bool:
    return error in each["ErrorEquals"] or each["ErrorEquals"] == ["States.ALL"]


def chosen(choice: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    value: Any = data
    for part in choice["Variable"].removeprefix("$.").split("."):
        value = value.get(part)
        if value is None:
            return False
    return bool(value == choice["StringEquals"]) if "StringEquals" in choice else bool(choice["IsPresent"])


class StepFunctions:
    """The port `Executions`: named executions of some machines, and what became of them."""

    def __init__(self, machines: Mapping[str, Machine], now: Callable[[], Micros], invoke: Invoke) -> None:
        self.machines, self.now, self.invoke = machines, now, invoke
        self.executions: dict[str, Execution] = {}
        self.lost: Callable[[str], bool] = lambda call: False  # of `start`, `succeed`, `fail`
        self.started: list[str] = []

    def start(self, definition: str, name: str) -> None:
        self.started.append(name)
        if name not in self.executions and not self.lost("start"):
            self.executions[name] = self._made(self.machines[definition], name)

    def succeed(self, token: str, made: Mapping[str, str]) -> None:
        for one in () if self.lost("succeed") else self._waiting(token):
            one.succeed(token, {"Payload": dict(made)})

    def fail(self, token: str, error: str, message: str) -> None:
        for one in () if self.lost("fail") else self._waiting(token):
            one.fail(token, error, message)

    def _waiting(self, token: str) -> Iterator[Execution]:
        return iter([one for one in self.executions.values() if one.token == token])

    def _made(self, machine: Machine, name: str, data: Mapping[str, Any] | None = None) -> Execution:
        return Execution(machine, name, self.invoke, self.now, self._follows, dict(data or {}))

    def _follows(self, one: Execution, data: Mapping[str, Any]) -> None:
        name = f"{one.name}/{len(self.executions)}"
        self.executions[name] = self._made(one.machine, name, data)

    def run(self) -> None:
        """Whatever goes on by itself now."""
        while todo := [one for one in self._going_on if one.due is not None and one.due <= self.now()]:
            for one in todo:
                one.go_on()

    @property
    def next_due(self) -> Micros | None:
        return min((one.due for one in self._going_on if one.due is not None), default=None)

    @property
    def _going_on(self) -> list[Execution]:
        return [one for one in self.executions.values() if not one.ended]
