"""The session at its edges: budgets, repeats, patience, and answers that come late or say little."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from chalicelib.agent.kernel.limits import GPUS_MOST, LOG_BYTES, METRICS_MOST, TROUBLE_TEXT, TROUBLES_MOST
from chalicelib.agent.program.commands import Abort, Dial, Remove, SaveCredential, Stop, Trim
from chalicelib.agent.program.session import COALESCE, NEVER, TOMBSTONES
from tests.agent.program.test_session import Logs, greeted, message, report, session

QUIET: dict[str, Any] = {"next_sync_in": 1000}


def test_a_message_in_full() -> None:
    agent = session(agent="1.0", wait=7.0, wall=lambda: 9)
    agent.measured([{"task": "t"}])
    first = message(agent, 3)
    assert first.body == {
        "v": 1,
        "instance": "i",
        "boot": "b",
        "seq": 1,
        "at": 9,
        "agent": "1.0",
        "tasks": [],
        "logs": [],
        "metrics": [{"task": "t"}],
        "wait": 0.0,
    }
    assert (first.wait, first.sent_at, first.facts, first.logs) == (0.0, 3, False, {})
    agent.answered(first, {}, 3)
    poll = message(agent, 3)
    assert (poll.wait, poll.body["wait"], poll.body["metrics"], poll.seq) == (7.0, 7.0, [], 2)


@pytest.mark.parametrize(("size", "at"), [(LOG_BYTES - 1, 10 + COALESCE), (LOG_BYTES, 0.0)])
def test_a_lot_of_output_doesnt_wait_for_more(size: int, at: float) -> None:
    logs = Logs()
    logs.data["t"] = b"x" * size
    agent = greeted(session(logs), **QUIET)
    agent.task_changed(report())
    agent.answered(message(agent, 0), QUIET, 0)
    agent.log_grew("t", size, 10)
    due = agent.next(10)
    assert due == at if isinstance(due, float) else at == 0.0


def test_a_server_may_ask_for_output_less_often() -> None:
    logs = Logs()
    logs.data["t"] = b"x"
    agent = greeted(session(logs), log_every=2.5, **QUIET)
    agent.task_changed(report())
    agent.answered(message(agent, 0), {"log_every": 2.5, **QUIET}, 0)
    agent.log_grew("t", 1, 10)
    assert agent.next(10) == 12.5
    agent.answered(message(agent, 12.5), {"log_every": 0.01, "logs": [{"task": "t", "offset": 1}], **QUIET}, 12.5)
    logs.data["t"] = b"xy"
    agent.log_grew("t", 2, 20)
    assert agent.next(20) == 20 + COALESCE


def test_output_that_was_seen_before_is_no_news() -> None:
    agent = greeted(session(), **QUIET)
    agent.task_changed(report())
    agent.answered(message(agent, 0), {"logs": [{"task": "t", "offset": 9}], **QUIET}, 0)
    agent.log_grew("t", 9, 1)
    agent.log_grew("nobody", 9, 1)
    assert agent.next(1) == 1000, "the server has it"
    agent.log_grew("t", 10, 2)
    agent.log_grew("t", 10, 2.1)
    assert agent.next(2.1) == 2 + COALESCE


def test_what_was_measured_is_kept_up_to_a_number_the_newest() -> None:
    agent = greeted(session(), **QUIET)
    agent.measured([{"n": n} for n in range(METRICS_MOST)])
    agent.measured([{"n": METRICS_MOST}])
    agent.task_changed(report())
    lost = message(agent, 0)
    assert [lost.body["metrics"][0]["n"], lost.body["metrics"][-1]["n"]] == [1, METRICS_MOST]
    agent.measured([{"n": -1}])
    agent.failed(lost, "network", 0)
    again = message(agent, 1).body["metrics"]
    assert (len(again), again[0]["n"], again[-1]["n"]) == (METRICS_MOST, 2, -1)


def test_only_so_many_removed_tasks_are_remembered() -> None:
    agent = greeted(session(), **QUIET)
    for number in range(TOMBSTONES + 1):
        agent.task_removed(f"t{number}")
    poll = message(agent, 1000)
    again = {"tasks": [{"id": "t0", "want": "run", "spec": {"x": 1}}, {"id": "t1", "want": "run", "spec": {"x": 1}}]}
    assert [command.task for command in agent.answered(poll, again, 1000)] == ["t0"]  # type: ignore[union-attr]


def test_the_same_report_is_no_news_and_none_goes_back() -> None:
    agent = greeted(session(), **QUIET)
    agent.task_changed(report(state="running", n=1))
    agent.answered(message(agent, 0), QUIET, 0)
    agent.task_changed(report(state="running", n=1))
    agent.task_changed(report(state="pulling"))
    assert agent.next(1) == 1000
    agent.task_changed(report(state="running", n=2))
    assert message(agent, 1).body["tasks"] == [report(state="running", n=2, log_end=0)]


def test_wants_only_get_stronger() -> None:
    agent = greeted(session(), **QUIET)
    agent.task_changed(report())
    push = message(agent, 0)

    def wanted(want: str, **more: Any) -> list[Any]:
        return agent.answered(push, {"tasks": [{"id": "t", "want": want, **more}], **QUIET}, 0)

    assert wanted("run", spec={"x": 1}) == []
    assert wanted("nothing we know") == []
    assert wanted("stop") == [Stop("t", None)]
    assert wanted("stop", grace=3) == []
    assert wanted("abort") == [Abort("t")]
    assert wanted("stop") == wanted("abort") == []
    agent.task_changed(report(state="exited"))
    assert wanted("remove") == [Remove("t")]
    assert wanted("remove") == []


def test_a_task_that_is_being_removed_keeps_no_server_from_waiting_for_news() -> None:
    agent = greeted(session())
    agent.task_changed(report(state="exited"))
    remove = {"tasks": [{"id": "t", "want": "remove"}]}
    sent = message(agent, 0)
    assert [task["id"] for task in sent.body["tasks"]] == ["t"]
    assert agent.answered(sent, remove, 0) == [Remove("t")]
    assert message(agent, 1).body["tasks"] == [], "somebody reads its log still; the server would say the same again"
    assert agent.tasks() == ["t"]


def test_a_task_that_runs_is_listed_though_it_is_to_be_removed() -> None:
    agent = greeted(session())
    agent.task_changed(report())
    agent.answered(message(agent, 0), {"tasks": [{"id": "t", "want": "remove"}]}, 0)
    assert [task["id"] for task in message(agent, 1).body["tasks"]] == ["t"]


def test_an_agent_that_counts_as_gone_begins_anew_and_says_all_again() -> None:
    agent = session()
    agent.facts_changed({"cpus": 4})
    agent.health_changed([("warning", "hot")], 0)
    first = message(agent, 0)
    agent.answered(first, {}, 0)
    agent.task_changed(report())
    before = message(agent, 1)
    assert "facts" not in before.body
    agent.answered(before, {"boot": "past"}, 1)
    after = message(agent, 1)
    assert after.body["boot"] not in ("", before.body["boot"])
    assert after.body["facts"] == {"cpus": 4} and after.body["health"]
    assert [task["id"] for task in after.body["tasks"]] == ["t"]
    agent.answered(first, {"boot": "past"}, 1)
    assert agent.boot == after.body["boot"], "that was about the id that it had"


def test_two_processes_of_one_machine_dont_displace_each_other_for_ever() -> None:
    agent = greeted(session(), next_sync_in=9)
    seen = {agent.boot}
    for now in range(10, 200, 10):
        agent.answered(message(agent, now), {"boot": "past", "next_sync_in": 9}, now)
        seen.add(agent.boot)
    assert len(seen) == 3


def test_what_is_over_is_only_removed() -> None:
    agent = greeted(session(), **QUIET)
    agent.task_changed(report(state="exited"))
    push = message(agent, 0)
    for want, command in (("stop", []), ("abort", []), ("remove", [Remove("t")])):
        assert agent.answered(push, {"tasks": [{"id": "t", "want": want}], **QUIET}, 0) == command


@pytest.mark.parametrize(
    ("want", "reason"), [("stop", "terminated_by_user"), ("abort", "aborted_by_user"), ("remove", None), ("run", None)]
)
def test_a_task_that_never_came(want: str, reason: str | None) -> None:
    agent = greeted(session(), **QUIET)
    assert agent.answered(message(agent, 1000), {"tasks": [{"id": "t", "want": want}], **QUIET}, 1000) == []
    if reason is None:
        assert agent.tasks() == []
        return
    (report,) = message(agent, 1000).body["tasks"]
    assert report == {
        "id": "t",
        "state": "exited",
        "reason": reason,
        "message": "never started here",
        "log_end": 0,
    }


def test_a_cursor_moves_on_whichever_message_it_answers() -> None:
    logs = Logs()
    logs.data["t"] = b"0123456789"
    agent = greeted(session(logs), **QUIET)
    agent.task_changed(report())
    agent.log_grew("t", 10, 0)
    push = message(agent, 1)
    assert agent.answered(push, {"logs": [{"task": "t", "offset": 10}], **QUIET}, 1) == [Trim("t", 10)]
    late = message(agent, 1001)
    assert late.logs == {}
    assert agent.answered(late, {"logs": [{"task": "t", "offset": 4}], **QUIET}, 1001) == []
    assert agent.next(1001) == 2001, "an older answer takes nothing back"
    assert agent.answered(late, {"logs": [{"task": "t", "offset": 12}], **QUIET}, 1001) == [Trim("t", 12)]


def test_output_that_doesnt_fit_follows_at_once() -> None:
    logs = Logs()
    logs.data = {"a": b"a" * 10, "b": b"b" * LOG_BYTES}
    agent = greeted(session(logs), **QUIET)
    for task in ("a", "b"):
        agent.task_changed(report(task, state="exited"))
    agent.log_grew("a", 10, 1)
    agent.log_grew("b", LOG_BYTES, 2)
    first = message(agent, 3)
    assert {chunk["task"]: len(base64.b64decode(chunk["records"][0][1])) for chunk in first.body["logs"]} == {
        "a": 10,
        "b": LOG_BYTES - 10,
    }
    agent.answered(first, {"logs": [{"task": t, "offset": end} for t, end in first.logs.items()], **QUIET}, 3)
    second = message(agent, 3)
    assert [(chunk["task"], chunk["offset"]) for chunk in second.body["logs"]] == [("b", LOG_BYTES - 10)]


@pytest.mark.parametrize(
    ("problem", "after", "pause"), [("network", 0.0, 1.0), ("refused", 0.0, 5.0), ("network", 17.0, 17.0)]
)
def test_the_first_failure_costs(problem: str, after: float, pause: float) -> None:
    agent = session()
    agent.failed(message(agent, 10), problem, 10, after)
    assert agent.next(10) == 10 + pause


def test_patience_is_jittered() -> None:
    agent = session(jitter=lambda: 0.5)
    agent.failed(message(agent, 0), "network", 0)
    assert agent.next(0) == 0.5


def test_a_new_address_forgets_how_often_the_old_one_failed() -> None:
    agent = session()
    for at in (0.0, 1.0, 3.0):
        agent.failed(message(agent, at), "network", at)
    agent.server_moved(4)
    agent.failed(message(agent, 4), "network", 4)
    assert agent.next(4) == 5


def test_without_a_token_a_refused_credential_is_tried_on() -> None:
    agent = session(credential="old", token="")
    agent.failed(message(agent, 0), "refused", 0)
    assert message(agent, 5).credential == "old"


def test_a_message_that_was_refused_with_another_credential_changes_nothing() -> None:
    agent = session(credential="old", token="token")
    first = message(agent, 0)
    assert agent.answered(first, {"credential": "new", **QUIET}, 0) == [SaveCredential("new")]
    agent.failed(first, "refused", 0)
    assert message(agent, 5).credential == "new"


def test_early_empty_answers_to_polls_slow_them_down_and_news_hurries_them() -> None:
    agent = greeted(session())
    now, pauses = 100.0, []
    for _ in range(9):
        agent.answered(message(agent, now), {"next_sync_in": 0}, now)
        due = agent.next(now + 1e-9)
        assert isinstance(due, float)
        pauses.append(round(due - now, 4))
        now = due
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    agent.answered(message(agent, now), {"tasks": [{"id": "t", "want": "run", "spec": {"x": 1}}]}, now)
    agent.answered(message(agent, now), {}, now)
    assert message(agent, now).wait == 25


def test_a_poll_that_was_held_is_followed_at_once() -> None:
    agent = greeted(session())
    poll = message(agent, 100)
    agent.answered(poll, {"next_sync_in": 0}, 101)
    assert message(agent, 101).wait == 25


def test_nothing_is_sent_before_its_time_or_twice() -> None:
    agent = session()
    first = message(agent, 0)
    assert agent.next(0) == NEVER, "one push at a time"
    agent.failed(first, "network", 0)
    assert (agent.next(0.999), message(agent, 1).seq) == (1.0, 2)


def test_output_that_the_server_has_isnt_sent_again_after_a_lost_message() -> None:
    logs = Logs()
    logs.data["t"] = b"0123456789"
    agent = greeted(session(logs))
    poll = message(agent, 0)
    agent.task_changed(report())
    agent.log_grew("t", 10, 0)
    lost = message(agent, 1)
    agent.answered(poll, {"logs": [{"task": "t", "offset": 10}], **QUIET}, 1)
    agent.failed(lost, "network", 1)
    again = message(agent, 2)
    assert (again.logs, again.body["logs"]) == ({}, [])


def test_a_stream_is_dialled_once_for_a_task_that_is_here() -> None:
    agent = session()
    agent.task_changed(report())
    one, two, none = [{"id": name, "task": task} for name, task in (("a", "t"), ("b", "t"), ("c", "elsewhere"))]
    assert agent.answered(message(agent, 0), {"streams": [one, none, one]}, 0) == [Dial(one)]
    assert agent.answered(message(agent, 1), {"streams": [one, two]}, 1) == [Dial(two)]


def test_only_so_many_streams_are_remembered() -> None:
    agent = session()
    agent.task_changed(report())
    orders = [{"id": str(number), "task": "t"} for number in range(TOMBSTONES + 1)]
    assert len(agent.answered(message(agent, 0), {"streams": orders}, 0)) == len(orders)
    again = [orders[-1], orders[1], orders[0]]
    assert agent.answered(message(agent, 1), {"streams": again}, 1) == [Dial(orders[0])], (
        "only the oldest was forgotten"
    )


def test_a_measurement_names_only_so_many_gpus() -> None:
    agent = session()
    gpus = [{"util_percent": number} for number in range(GPUS_MOST + 1)]
    agent.measured([{"task": "t", "gpus": gpus}, {"task": "u"}])
    assert message(agent, 0).body["metrics"] == [{"task": "t", "gpus": gpus[:-1]}, {"task": "u"}]


def test_output_of_the_first_moments_waits_no_longer_than_later_output() -> None:
    """A machine's clock may stand at zero when its agent begins."""
    logs = Logs()
    logs.data["t"] = b"ab"
    agent = session(logs)
    agent.task_changed(report())
    greeted(agent, **QUIET)
    agent.log_grew("t", 1, 0)
    assert agent.next(0) == COALESCE
    sent = message(agent, COALESCE)
    agent.answered(sent, {**QUIET, "logs": [{"task": "t", "offset": 1}]}, COALESCE)
    agent.log_grew("t", 2, COALESCE)
    assert agent.next(COALESCE) == 2 * COALESCE


def test_output_goes_only_when_the_rest_was_shown_not_to_blame() -> None:
    """Each message that is taken starts the count again."""
    logs = Logs()
    logs.data["t"] = b"0123456789"
    agent = greeted(session(logs))
    now = 0.0
    for _ in range(2):
        agent.task_changed(report(at=now))
        agent.log_grew("t", 10, now)
        refused = message(agent, now)
        assert refused.body["logs"] and agent.failed(refused, "unacceptable", now) == []
        now = 10 * now + 5
        taken = message(agent, now)
        agent.answered(taken, {"logs": [{"task": "t", "offset": 0}]}, now)
        now += 100


def test_what_is_wrong_keeps_its_age_and_is_told_until_it_was_heard() -> None:
    agent = greeted(session(), **QUIET)
    agent.health_changed([], 10)
    assert agent.next(10) == 1000, "that all is well can wait"
    agent.health_changed([("failure", "a card")], 20)
    lost = message(agent, 20)
    assert lost.body["health"] == [{"status": "failure", "message": "a card", "age": 0}]
    agent.failed(lost, "network", 20)
    agent.health_changed([("failure", "a card"), ("warning", "a disk")], 25)
    again = message(agent, 30)
    assert [(each["message"], each["age"]) for each in again.body["health"]] == [("a card", 10), ("a disk", 5)]
    agent.answered(again, QUIET, 30)
    agent.health_changed([("warning", "a disk"), ("failure", "a card")], 40)
    assert agent.next(40) == 1030, "no news"
    agent.health_changed([], 50)
    assert message(agent, 50).body["health"] == [], "that all is well again can't"


def test_what_goes_wrong_while_a_message_is_under_way_is_told_in_the_next() -> None:
    agent = greeted(session(), **QUIET)
    agent.health_changed([("failure", "a card")], 20)
    under_way = message(agent, 20)
    agent.health_changed([("failure", "a disk")], 25)
    agent.answered(under_way, QUIET, 30)
    assert [each["message"] for each in message(agent, 30).body["health"]] == ["a disk"]


def test_so_many_troubles_are_told_and_so_much_of_each() -> None:
    agent = session()
    agent.health_changed([("failure", f"{number}") for number in range(TROUBLES_MOST + 1)], 0)
    health = message(agent, 0).body["health"]
    assert [each["message"] for each in health] == [str(number) for number in range(TROUBLES_MOST)]
    other = session()
    other.health_changed([("failure", "x" * (TROUBLE_TEXT + 1))], 0)
    assert message(other, 0).body["health"][0]["message"] == "x" * TROUBLE_TEXT


def test_a_clock_that_went_back_makes_no_negative_age() -> None:
    agent = session()
    agent.health_changed([("warning", "w")], 50)
    assert message(agent, 40).body["health"][0]["age"] == 0


@pytest.mark.parametrize("seen", [0, 100])
def test_what_is_left_of_output_that_was_dropped_is_sent(seen: int) -> None:
    """Also if nobody had looked since it grew."""
    logs = Logs()
    agent = session(logs)
    agent.task_changed(report())
    greeted(agent, **QUIET)
    agent.log_grew("t", seen, 0)
    logs.data["t"] = b"left"
    agent.log_shrank("t", 4, 10)
    agent.log_grew("t", 4, 10)
    sent = message(agent, 10 + COALESCE)
    assert [chunk["offset"] for chunk in sent.body["logs"]] == [0]
    agent.log_shrank("t", 4, 11)
    agent.answered(sent, {**QUIET, "logs": [{"task": "t", "offset": 4}]}, 11)
    assert agent.next(11) == 1011, "nothing is left to send"


def test_a_task_whose_disk_is_held_is_told_after_its_removal_too() -> None:
    agent = greeted(session(), **QUIET)
    agent.task_changed(report(state="exited", held=["v"]))
    agent.answered(message(agent, 0), {"tasks": [{"id": "t", "want": "remove"}], **QUIET}, 0)
    agent.facts_changed({"cpus": 1})
    sent = message(agent, 1)
    assert [task["held"] for task in sent.body["tasks"]] == [["v"]]
    agent.answered(sent, QUIET, 1)
    agent.task_changed(report(state="exited"))
    assert message(agent, 2).body["tasks"] == [], "unmounted: nothing of it is to be told"


def test_a_refused_report_still_says_what_is_mounted() -> None:
    agent = greeted(session(), **QUIET)
    agent.task_changed(report(state="exited", held=["v"], mounted=["v"], message="long"))
    agent.failed(message(agent, 0), "unacceptable", 0)
    again = message(agent, 1000)
    assert again.body["tasks"] == [{"id": "t", "state": "exited", "log_end": 0, "mounted": ["v"], "held": ["v"]}]
