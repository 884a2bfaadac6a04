"""An agent obeys no server that another has taken over from."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import route
from chalicelib.agent.kernel.link import LinkError
from chalicelib.agent.program.epochs import Epochs
from chalicelib.agent.program.message_sender import MessageSender


def test_a_lower_epoch_of_the_same_lease_is_outdated_also_after_a_restart(tmp_path: Path) -> None:
    def outdated(epochs: Epochs, **answer: Any) -> bool:
        return epochs.outdated(answer)  # type: ignore[arg-type]

    epochs = Epochs(str(tmp_path))
    assert not outdated(epochs)
    assert not outdated(epochs, lease="a", epoch=2)
    assert not outdated(epochs, lease="a", epoch=2)
    assert outdated(epochs, lease="a", epoch=1)
    again = Epochs(str(tmp_path))
    assert outdated(again, lease="a", epoch=1) and not outdated(again, lease="a", epoch=3)
    assert not outdated(again)  # a server without a pair
    assert not outdated(again, lease="b", epoch=1)  # another pair
    assert not outdated(again, lease="b", epoch="x")


def test_on_a_full_disk_an_agent_follows_the_new_server_and_remembers_it_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = Epochs(str(tmp_path))
    (tmp_path / "epoch").mkdir()  # nothing can be written there
    new: Any = {"lease": "a", "epoch": 2}
    old: Any = {"lease": "a", "epoch": 1}
    assert [epochs.outdated(answer) for answer in (new, old, new)] == [False, True, False]
    assert capsys.readouterr().err.count("isn't kept") == 1
    (tmp_path / "epoch").rmdir()
    assert not epochs.outdated(new) and Epochs(str(tmp_path)).outdated(old)


def test_the_answer_of_such_a_server_is_a_failed_call() -> None:
    delivered: list[Any] = []

    class Link:
        closed = False

        def sync(self, *given: Any) -> dict[str, Any]:
            if len(delivered) == 1:
                raise SystemExit  # ends the thread's loop
            return {"seq": 1}

        def close(self) -> None:
            self.closed = True

    sender = MessageSender(
        "push", lambda message, outcome: delivered.append(outcome), route.direct, lambda answer: True
    )
    sender._link = link = Link()  # type: ignore[assignment]

    class Any_:
        body: dict[str, Any] = {}  # noqa: RUF012
        credential, wait = "", 0.0

    for _ in range(2):
        sender.send("http://a", Any_())  # type: ignore[arg-type]
    with contextlib.suppress(SystemExit):
        sender.run()
    assert link.closed and isinstance(delivered[0], LinkError) and "another has taken over from" in str(delivered[0])
