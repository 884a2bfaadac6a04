"""Threads in turns and memory by the byte: nobody gets all of it. The threads here work when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import pytest

from chalicelib.runtime.lanes import MOST_WAITING, Busy, Memory, Turns


class Held(Executor):
    """A pool whose calls are begun at once, and end in their order when the test lets them."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self._ends: list[Callable[[], None]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        name = work(*args, **more)
        self.begun.append(name)
        self._ends.append(lambda: done.set_result(name))
        return done

    async def end(self, number: int = 0) -> None:
        self._ends.pop(number)()
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def played(story: Callable[[Held], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story(Held()))


def test_a_caller_leaves_half_of_the_places_to_others_and_callers_take_turns() -> None:
    async def story(threads: Held) -> None:
        turns = Turns(threads, 4)
        calls = ["a1", "a2", "a3", "a4", "b1", "b2", "c1"]
        pending = [asyncio.create_task(turns.run(name[0], partial(str, name))) for name in calls]
        await settled()
        assert threads.begun == ["a1", "a2", "b1", "b2"]  # the third place isn't for the first caller
        for begun in ("a3", "c1", "a4"):
            await threads.end()
            assert threads.begun[-1] == begun
        while threads._ends:
            await threads.end()
        assert await asyncio.gather(*pending) == calls

    played(story)


def test_a_call_that_fails_frees_its_place() -> None:
    async def story(threads: Held) -> None:
        turns = Turns(threads, 1)
        with pytest.raises(ZeroDivisionError):
            await turns.run("a", lambda: 1 // 0)
        pending = asyncio.create_task(turns.run("a", lambda: "next"))
        await settled()
        await threads.end()
        assert await pending == "next"

    played(story)


def test_a_call_given_up_while_it_waits_costs_no_place() -> None:
    async def story(threads: Held) -> None:
        turns = Turns(threads, 1)
        first, second, third = (asyncio.create_task(turns.run("a", partial(str, name))) for name in "123")
        await settled()
        second.cancel()
        await settled()
        await threads.end()
        await threads.end()
        assert threads.begun == ["1", "3"] and await first == "1" and await third == "3" and second.cancelled()

    played(story)


def test_a_caller_with_too_many_waiting_is_refused_and_others_are_not() -> None:
    async def story(threads: Held) -> None:
        turns = Turns(threads, 2)
        waiting = [asyncio.create_task(turns.run("a", lambda: "a")) for _ in range(MOST_WAITING + 1)]
        await settled()
        with pytest.raises(Busy):
            await turns.run("a", lambda: "one more")
        pending = asyncio.create_task(turns.run("b", lambda: "b"))
        await settled()
        assert threads.begun == ["a", "b"]
        for task in (*waiting, pending):
            task.cancel()

    played(story)


def test_memory_is_shared_and_half_of_it_is_the_most_for_one() -> None:
    async def story(threads: Held) -> None:
        memory = Memory(100, patience=0)
        async with memory.held("a", 40):
            with pytest.raises(Busy):
                async with memory.held("a", 20):
                    pass
            async with memory.held("b", 50):
                with pytest.raises(Busy):
                    async with memory.held("c", 20):
                        pass
                async with memory.held("c", 10):
                    pass
        async with memory.held("a", 1_000), memory.held("b", 1_000):  # what is larger than the half counts as the half
            with pytest.raises(Busy):
                async with memory.held_now("c", 1):
                    pass

    played(story)


def test_who_waits_for_memory_gets_it_when_another_is_done() -> None:
    async def story(threads: Held) -> None:
        memory = Memory(100, patience=3600)

        async def one(name: str) -> str:
            async with memory.held(name, 50):
                return name

        async with memory.held("a", 50), memory.held("b", 50):
            waiting = asyncio.create_task(one("c"))
            await settled()
            assert not waiting.done()
        assert await waiting == "c"

    played(story)
