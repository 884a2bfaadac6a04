"""The session core: no socket, no clock, no disk, so every history can be told in a few lines."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.agent.kernel.limits import LOG_BYTES
from chalicelib.agent.program.commands import (
    Abort,
    Carry,
    End,
    Rekey,
    Remove,
    Reroute,
    SaveCredential,
    Start,
    Stop,
    Trim,
)
from chalicelib.agent.program.session import COALESCE, NEVER, STATES, AgentSession, Message
from tests.harness.examples import many

Body = dict[str, Any]


class Logs:
    """Spools in memory; what is before `begins` was deleted."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.begins: dict[str, int] = {}

    def read(self, task: str, offset: int, limit: int) -> tuple[int, list[tuple[int, bytes]]]:
        offset = max(offset, self.begins.get(task, 0))
        piece = self.data.get(task, b"")[offset : offset + limit]
        return offset, [(1, piece)] if piece else []


def session(logs: Logs | None = None, **more: Any) -> AgentSession:
    more.setdefault("credential", "old")
    return AgentSession(instance="i", boot="b", read_log=(logs or Logs()).read, **more)


def message(session: AgentSession, now: float) -> Message:
    action = session.next(now)
    assert isinstance(action, Message), f"nothing to send before {action}"
    return action


def greeted(session: AgentSession, now: float = 0.0, **answer: Any) -> AgentSession:
    session.answered(message(session, now), answer, now)
    return session


def report(task: str = "t", state: str = "running", **more: Any) -> Body:
    return {"id": task, "state": state, **more}


def test_the_first_message_brings_the_facts_and_no_logs() -> None:
    logs = Logs()
    logs.data["t"] = b"x"
    agent = session(logs)
    agent.facts_changed({"cpus": 2})
    agent.task_changed(report())
    agent.log_grew("t", 1, 0)
    first = message(agent, 5)
    assert (first.wait, first.seq, first.credential) == (0, 1, "old")
    assert first.body["facts"] == {"cpus": 2}
    assert (first.body["v"], first.body["instance"], first.body["boot"], first.body["logs"]) == (1, "i", "b", [])
    assert first.body["tasks"] == [report(log_end=1)]


def test_facts_are_repeated_until_they_were_answered() -> None:
    agent = session()
    agent.facts_changed({"cpus": 2})
    agent.failed(message(agent, 0), "network", 0)
    again = message(agent, 1)
    assert again.body["facts"] == {"cpus": 2}
    agent.answered(again, {}, 1)
    assert "facts" not in message(agent, 1).body
    agent.facts_changed({"cpus": 2})
    assert agent.next(2) == NEVER


def test_a_poll_hangs_and_a_change_goes_past_it() -> None:
    agent = greeted(session())
    poll = message(agent, 0)
    assert poll.wait == 25
    assert agent.next(0) == NEVER
    agent.task_changed(report())
    push = message(agent, 3)
    assert (push.wait, push.seq > poll.seq) == (0, True)
    agent.task_changed(report(state="exited"))
    assert agent.next(3) == NEVER, "one push at a time"
    agent.answered(push, {}, 3)
    assert message(agent, 3).body["tasks"][0]["state"] == "exited"


def test_next_sync_in_is_the_pause_while_nothing_happens() -> None:
    agent = greeted(session(), next_sync_in=10)
    assert agent.next(0) == 10
    agent.task_changed(report())
    agent.answered(message(agent, 4), {"next_sync_in": 2}, 4)
    assert agent.next(4) == 6


def test_output_waits_a_moment_for_more_of_it() -> None:
    logs = Logs()
    agent = greeted(session(logs), next_sync_in=60)
    agent.task_changed(report())
    agent.answered(message(agent, 0), {"next_sync_in": 60}, 0)
    logs.data["t"] = b"ab"
    agent.log_grew("t", 1, 1)
    agent.log_grew("t", 2, 1.1)
    assert agent.next(1.1) == 1 + COALESCE
    sent = message(agent, 1 + COALESCE)
    assert sent.body["logs"] == [{"task": "t", "offset": 0, "records": [(1, base64.b64encode(b"ab").decode())]}]


def test_the_end_of_a_task_hurries_its_output() -> None:
    logs = Logs()
    agent = greeted(session(logs), next_sync_in=60)
    logs.data["t"] = b"ab"
    agent.task_changed(report())
    agent.log_grew("t", 2, 1)
    agent.task_changed(report(state="exited"))
    assert message(agent, 1).body["logs"]


def test_a_message_carries_a_bounded_amount_of_output() -> None:
    logs = Logs()
    logs.data = {"a": b"x" * LOG_BYTES, "b": b"y" * LOG_BYTES}
    agent = greeted(session(logs))
    for task in logs.data:
        agent.task_changed(report(task))
        agent.log_grew(task, LOG_BYTES, 0)
    sizes = []
    held: dict[str, int] = {}
    for _ in range(2):
        push = message(agent, 1)
        sizes.append(sum(len(base64.b64decode(r[1])) for chunk in push.body["logs"] for r in chunk["records"]))
        held.update(push.logs)
        agent.answered(push, {"logs": [{"task": task, "offset": end} for task, end in held.items()]}, 1)
    assert sizes == [LOG_BYTES, LOG_BYTES]
    assert held == {"a": LOG_BYTES, "b": LOG_BYTES}


def test_a_refused_gap_goes_back_to_the_servers_cursor() -> None:
    logs = Logs()
    logs.data["t"] = b"0123456789"
    agent = greeted(session(logs))
    agent.task_changed(report())
    agent.log_grew("t", 10, 0)
    agent.answered(message(agent, 1), {"logs": [{"task": "t", "offset": 4}]}, 1)
    assert message(agent, 2).body["logs"][0]["offset"] == 4


def test_a_server_that_takes_nothing_isnt_pressed() -> None:
    logs = Logs()
    logs.data["t"], logs.begins["t"] = b"0123456789", 5
    agent = greeted(session(logs), next_sync_in=60)
    agent.task_changed(report())
    agent.log_grew("t", 10, 0)
    now, pauses = 1.0, []
    for _ in range(9):
        agent.answered(message(agent, now), {"logs": [{"task": "t", "offset": 0}], "next_sync_in": 1000}, now)
        after = agent.next(now)
        assert isinstance(after, float)
        pauses.append(after - now)
        now = after
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_patience_doubles_to_a_minute_and_success_forgets_it() -> None:
    agent = session()
    now, pauses = 0.0, []
    for _ in range(8):
        agent.failed(message(agent, now), "network", now)
        after = agent.next(now)
        assert isinstance(after, float)
        pauses.append(after - now)
        now = after
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    agent.answered(message(agent, now), {}, now)
    agent.failed(message(agent, now), "network", now)
    assert agent.next(now) == now + 1


def test_a_change_doesnt_shorten_patience_but_a_new_address_does() -> None:
    agent = session()
    agent.failed(message(agent, 0), "network", 0)
    agent.task_changed(report())
    assert agent.next(0.5) == 1
    agent.server_moved(0.5)
    assert message(agent, 0.5).body["tasks"]


def test_poll_and_push_that_fail_together_count_once() -> None:
    agent = greeted(session())
    poll = message(agent, 0)
    agent.task_changed(report())
    push = message(agent, 0)
    agent.failed(poll, "network", 1)
    agent.failed(push, "network", 1)
    assert agent.next(1) == 2


def test_refused_is_slower_tries_the_token_and_ends_nothing() -> None:
    agent = greeted(session(token="token"))
    agent.task_changed(report())
    agent.failed(message(agent, 0), "refused", 0)
    assert agent.next(0) == 5
    second = message(agent, 5)
    assert (second.credential, [task["id"] for task in second.body["tasks"]]) == ("token", ["t"])
    agent.failed(second, "refused", 5)
    assert message(agent, 15).credential == "old"


def test_a_credential_is_kept_and_used() -> None:
    agent = session(credential="", token="token")
    first = message(agent, 0)
    assert first.credential == "token"
    assert agent.answered(first, {"credential": "new"}, 0) == [SaveCredential("new")]
    assert message(agent, 0).credential == "new"


def test_logs_of_a_lost_message_are_sent_again() -> None:
    logs = Logs()
    logs.data["t"] = b"abc"
    agent = greeted(session(logs))
    agent.task_changed(report())
    agent.log_grew("t", 3, 0)
    lost = message(agent, 1)
    agent.failed(lost, "network", 1)
    assert message(agent, 2).body["logs"] == lost.body["logs"]


def test_wants_become_commands_once() -> None:
    agent = greeted(session())
    answer = {"tasks": [{"id": "t", "want": "run", "spec": {"commands": ["x"]}}], "next_sync_in": 9}
    poll = message(agent, 0)
    assert agent.answered(poll, answer, 0) == [Start("t", {"commands": ["x"]})]
    assert agent.answered(poll, answer, 0) == []
    for want, command in [("stop", Stop("t", 5)), ("abort", Abort("t")), ("remove", Remove("t"))]:
        wanted = {"tasks": [{"id": "t", "want": want, "grace": 5}]}
        assert agent.answered(poll, wanted, 0) == [command]
        assert agent.answered(poll, wanted, 0) == []


def test_a_task_that_isnt_mentioned_is_left_alone() -> None:
    agent = greeted(session())
    agent.task_changed(report())
    assert agent.answered(message(agent, 0), {"tasks": []}, 0) == []
    assert agent.tasks() == ["t"]


def test_a_removed_task_never_comes_back() -> None:
    agent = greeted(session())
    agent.task_changed(report(state="exited"))
    agent.task_removed("t")
    late = {"tasks": [{"id": "t", "want": "run", "spec": {}}, {"id": "t", "want": "stop"}]}
    assert agent.answered(message(agent, 0), late, 0) == []
    assert agent.tasks() == []


def test_ending_what_never_arrived_is_reported_as_over() -> None:
    agent = greeted(session())
    assert agent.answered(message(agent, 0), {"tasks": [{"id": "t", "want": "stop"}]}, 0) == []
    report = message(agent, 0).body["tasks"][0]
    assert (report["state"], report["reason"], report["log_end"]) == ("exited", "terminated_by_user", 0)


def test_gone_ends_everything() -> None:
    agent = greeted(session())
    assert agent.answered(message(agent, 0), {"error": "gone"}, 0) == [End()]
    assert (agent.ended, agent.next(100)) == (True, NEVER)


def test_cursors_let_the_spool_be_trimmed() -> None:
    agent = greeted(session())
    agent.task_changed(report())
    agent.log_grew("t", 9, 0)
    push = message(agent, 0)
    assert agent.answered(push, {"logs": [{"task": "t", "offset": 9}]}, 0) == [Trim("t", 9)]
    assert agent.answered(push, {"logs": [{"task": "t", "offset": 9}, {"task": "other", "offset": 1}]}, 0) == []


def test_metrics_ride_along_and_are_kept_over_a_failure() -> None:
    agent = greeted(session(), next_sync_in=60)
    agent.measured([{"task": "t", "at": 1}])
    assert agent.next(0) == 60
    lost = message(agent, 60)
    agent.measured([{"task": "t", "at": 2}])
    agent.failed(lost, "network", 60)
    assert [sample["at"] for sample in message(agent, 61).body["metrics"]] == [1, 2]


def test_an_empty_early_answer_to_a_poll_doesnt_make_a_circle() -> None:
    agent = greeted(session())
    now, polls = 0.0, 0
    while now < 60:
        action = agent.next(now)
        if isinstance(action, Message):
            polls += 1
            agent.answered(action, {"next_sync_in": 0}, now)
        else:
            now = action
    assert polls < 75


Step = st.one_of(
    st.tuples(st.just("state"), st.sampled_from(["a", "b"]), st.sampled_from(STATES)),
    st.tuples(st.just("grow"), st.sampled_from(["a", "b"]), st.integers(1, 50)),
    st.tuples(st.just("deliver"), st.booleans(), st.booleans()),
    st.tuples(st.just("repeat"), st.just(0), st.just(0)),
    st.tuples(st.just("pass"), st.floats(0.01, 90), st.just(0)),
)


class World:
    """A server that keeps the rules, over a network that loses requests, loses answers and repeats old ones."""

    def __init__(self) -> None:
        self.logs = Logs()
        self.agent = session(self.logs)
        self.now = 0.0
        self.flying: list[Message] = []
        self.old: list[tuple[Message, Body]] = []
        self.seq = 0
        self.states: dict[str, str] = {}
        self.held: dict[str, bytes] = {}

    def pump(self) -> None:
        while isinstance(action := self.agent.next(self.now), Message):
            self.flying.append(action)

    def deliver(self, arrives: bool, answered: bool) -> None:
        if not self.flying:
            return
        message = self.flying.pop(0)
        if arrives:
            self.take(message)
        answer = {"logs": [{"task": task, "offset": len(data)} for task, data in self.held.items()], "next_sync_in": 5}
        if arrives and answered:
            self.agent.answered(message, answer, self.now)
            self.old.append((message, answer))
        else:
            self.agent.failed(message, "network", self.now)

    def take(self, message: Message) -> None:
        if message.seq <= self.seq:
            return
        self.seq = message.seq
        for task in message.body["tasks"]:
            before = self.states.get(task["id"], "preparing")
            assert STATES.index(task["state"]) >= STATES.index(before), "a state went back"
            self.states[task["id"]] = task["state"]
        for chunk in message.body["logs"]:
            held = self.held.setdefault(chunk["task"], b"")
            data = b"".join(base64.b64decode(text) for _, text in chunk["records"])
            if chunk["offset"] <= len(held):
                self.held[chunk["task"]] = held + data[len(held) - chunk["offset"] :]

    def step(self, kind: str, one: Any, two: Any) -> None:
        if kind == "state":
            self.agent.task_changed(report(one, two))
        elif kind == "grow" and one in self.agent.tasks():
            data = self.logs.data.get(one, b"")
            self.logs.data[one] = data + bytes((len(data) + i) % 251 for i in range(two))
            self.agent.log_grew(one, len(self.logs.data[one]), self.now)
        elif kind == "deliver":
            self.deliver(one, two)
        elif kind == "repeat" and self.old:
            self.agent.answered(*self.old[0], self.now)
        elif kind == "pass":
            self.now += one
        self.pump()


@settings(max_examples=many(300), deadline=None)
@given(st.lists(Step, max_size=60))
def test_whatever_is_lost_repeated_or_late_everything_arrives(
    steps: list[tuple[str, Any, Any]],
) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    for _ in range(40):
        world.now += 61
        world.pump()
        while world.flying:
            world.deliver(True, True)
            world.pump()
    assert {task: len(data) for task, data in world.held.items() if data} == {
        task: len(data) for task, data in world.logs.data.items()
    }
    assert all(world.held[task] == data for task, data in world.logs.data.items())
    assert set(world.states) == set(world.agent.tasks())


# --- taken back -------------------------------------------------------------------------------------------------------


def test_that_the_machine_is_taken_back_is_told_at_once_and_with_every_message() -> None:
    times = iter(range(1_000_000, 9_000_000, 1_000_000))
    agent = greeted(session(wall=lambda: next(times)), next_sync_in=60.0)
    agent.interruption_announced(62_000_000)
    first = message(agent, 1.0)
    assert first.body["taken_back_in"] == 60.0
    agent.answered(first, {"next_sync_in": 60.0}, 1.0)
    agent.interruption_announced(62_000_000)
    assert not isinstance(agent.next(2.0), Message)  # it is known
    assert message(agent, 61.0).body["taken_back_in"] == 59.0


def test_what_was_taken_back_already_or_much_later_is_within_the_limits() -> None:
    for at, seconds in ((0, 0.0), (10**18, 3600.0)):
        agent = session(wall=lambda: 1_000_000)
        agent.interruption_announced(at)
        assert message(agent, 0.0).body["taken_back_in"] == seconds


def test_a_machine_that_stays_says_nothing_of_it() -> None:
    assert "taken_back_in" not in message(session(), 0.0).body


# --- a gateway --------------------------------------------------------------------------------------------------------

WANTED = {"id": "g", "num": 0, "http": 80, "https": 443}


def test_a_gateway_is_wanted_until_an_answer_to_a_message_that_knew_of_it_lacks_it() -> None:
    agent = greeted(session(), next_sync_in=60.0)
    early, late = message(agent, 60.0), {"gateway": WANTED, "next_sync_in": 60.0}
    agent.task_changed(report())
    assert agent.answered(message(agent, 60.0), late, 60.0) == [Carry(WANTED)]
    agent.gateway_changed({**WANTED, "state": "starting", "message": ""})
    assert agent.answered(early, {}, 61.0) == [], "it was sent before"
    sent = message(agent, 62.0)
    assert sent.body["gateway"] == {**WANTED, "state": "starting", "message": ""}
    assert agent.answered(sent, late, 62.0) == []
    agent.gateway_changed({**WANTED, "state": "running", "message": ""})
    sent = message(agent, 63.0)
    assert agent.answered(sent, {"next_sync_in": 60.0}, 63.0) == [Carry(None)]
    agent.gateway_changed(None)
    assert "gateway" not in message(agent, 64.0).body


def test_a_gateway_that_listens_elsewhere_is_another_wish() -> None:
    agent = greeted(session())
    agent.gateway_changed({**WANTED, "state": "running", "message": ""})
    elsewhere = {**WANTED, "http": 8080}
    assert agent.answered(message(agent, 1.0), {"gateway": elsewhere}, 1.0) == [Carry(elsewhere)]


def test_what_a_gateway_says_is_cut_and_left_out_of_what_is_never_taken() -> None:
    agent = greeted(session())
    agent.gateway_changed({**WANTED, "state": "failed", "message": "x" * 5000})
    sent = message(agent, 1.0)
    assert len(sent.body["gateway"]["message"]) == 1000
    agent.failed(sent, "unacceptable", 1.0)
    assert message(agent, 61.0).body["gateway"]["message"] == ""


def test_keys_that_change_are_passed_on_once_for_each_change() -> None:
    agent = greeted(session())
    agent.task_changed(report(access="1"))
    wanted = {"id": "t", "want": "run", "access": "2", "authorized_keys": ["k"]}
    push = message(agent, 1)
    assert agent.answered(push, {"tasks": [wanted]}, 1) == [Rekey("t", "2", ["k"])]
    poll = message(agent, 100)
    assert agent.answered(poll, {"tasks": [wanted]}, 100) == [], "it may be on its way to the disk"
    agent.task_changed(report(access="2"))
    assert message(agent, 200).body["tasks"] == [report(access="2", log_end=0)], "the server hears that it is so"


def test_a_routers_workers_are_passed_on_once_for_each_change() -> None:
    agent = greeted(session())
    agent.task_changed(report(workers=""))
    wanted = {"id": "t", "want": "run", "workers": "1", "worker_urls": ["http://10.0.0.5:8000"]}
    assert agent.answered(message(agent, 1), {"tasks": [wanted]}, 1) == [Reroute("t", "1", ["http://10.0.0.5:8000"])]
    assert agent.answered(message(agent, 100), {"tasks": [wanted]}, 100) == []
    agent.task_changed(report(workers="1"))
    assert agent.answered(message(agent, 200), {"tasks": [wanted]}, 200) == []
    none = {"id": "t", "want": "run", "workers": "2", "worker_urls": []}
    assert agent.answered(message(agent, 300), {"tasks": [none]}, 300) == [Reroute("t", "2", [])]


def test_a_response_without_keys_changes_none() -> None:
    agent = greeted(session())
    agent.task_changed(report(access="1"))
    assert agent.answered(message(agent, 1), {"tasks": [{"id": "t", "want": "run"}]}, 1) == []


def test_what_a_newer_server_adds_to_an_answer_is_ignored() -> None:
    agent = greeted(session(), next_sync_in=10, added_later={"x": [1]})
    spec = {"id": "t", "commands": ["true"], "added_later": True}
    order = {"id": "t", "want": "run", "spec": spec, "added_later": 1}
    orders = agent.answered(
        message(agent, 10), {"tasks": [order], "logs": [], "next_sync_in": 10, "added_later": 1}, 10
    )
    assert orders == [Start("t", spec)]
