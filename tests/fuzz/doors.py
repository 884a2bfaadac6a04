"""Connections of `pairs.py` through a real door to a replica that reads strictly, many at once.

`python -m tests.fuzz.doors --requests 100000 --seed 1` plays both doors; `--only N` plays connection N and shows it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from chalicelib.domain.serving import Served, ServedReplica
from tests.fuzz import pairs
from tests.fuzz.pairs import Drawn, Meaning, ReadRequest
from tests.fuzz.play import Find
from tests.serving.door import Door, service
from tests.serving.embedded import opened
from tests.serving.nginx_door import NginxDoor, installed

DOORS = ("server", "gateway")
LENIENT = ("gateway",)  # nginx's line ends may lack their carriage return, or have several: what follows isn't judged
CLIENTS = 64  # connections at once
IDLE = 0.1  # seconds after which no more is expected of a request that has no end
LATEST = 120.0  # seconds for an answer
PAUSE = 0.002  # seconds between two pieces
BATCH = 1000  # connections


@dataclass
class Played:
    """What was sent, and what came of it."""

    requests: int = 0  # that the strict parser finds in what clients sent
    reached: int = 0  # a replica
    answered: int = 0  # by a replica
    kinds: Counter[str] = field(default_factory=Counter)
    finds: list[Find] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        return (
            f"{self.requests} requests in {self.seconds:.0f} s, {self.reached} reached a replica, "
            f"{self.answered} were answered by one; {kinds}"
        )


# --- the replica ------------------------------------------------------------------------------------------------------


class StrictReplica:
    """Answers as a request's target asks, and keeps what it saw. What isn't one request after the other is a find."""

    def __init__(self) -> None:
        self.seen: list[ReadRequest] = []
        self.wrong: list[tuple[str, bytes]] = []
        self.port = 0
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> asyncio.Server:
        def opened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(reader, writer))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

        server = await asyncio.start_server(opened, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        strict, raw, early = pairs.Reader(), b"", False
        try:
            while data := await reader.read(65536):
                raw = (raw + data)[-20_000:]
                for request in strict.feed(data):
                    self.seen.append(request)
                    if not early and not await self._answer(writer, request):
                        return
                    early = False
                if strict.wrong:
                    self.wrong.append((strict.wrong, raw))
                    return
                if not early and (head := strict.open) is not None and b"plan=early" in head.target:
                    early = True
                    await self._answer(writer, head)
            if strict.open is not None:
                self.seen.append(strict.open)
        except ConnectionError:
            if strict.open is not None:
                self.seen.append(strict.open)
        finally:
            writer.close()

    async def stop(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _answer(self, writer: asyncio.StreamWriter, request: ReadRequest) -> bool:
        """Does the connection go on?"""
        found = pairs.plan_of(request)
        sent, goes_on = pairs.answer(found, request)
        writer.write(sent)
        await writer.drain()
        return goes_on


# --- the clients ------------------------------------------------------------------------------------------------------


@dataclass
class Exchange:
    """What one client sent and got."""

    drawn: Drawn
    meant: Meaning
    got: bytes = b""
    ended: bool = False


async def converse(address: tuple[str, int], drawn: Drawn) -> Exchange:
    exchange = Exchange(drawn, pairs.meaning(drawn.bytes))
    reader, writer = await asyncio.open_connection(*address)
    try:
        sending = asyncio.ensure_future(_send(writer, drawn))
        await _receive(reader, exchange)
        await sending
    except ConnectionError:
        exchange.ended = True
    finally:
        writer.close()
    return exchange


async def _send(writer: asyncio.StreamWriter, drawn: Drawn) -> None:
    with suppress(ConnectionError):
        for piece in drawn.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(PAUSE)


async def _receive(reader: asyncio.StreamReader, exchange: Exchange) -> None:
    wanted = pairs.expected(exchange.meant)
    waits = LATEST if all(each.complete for each in exchange.meant.requests) else IDLE
    while pairs.counted(exchange.meant, exchange.got) < wanted:
        try:
            part = await asyncio.wait_for(reader.read(65536), waits)
        except TimeoutError:
            return
        if not part:
            exchange.ended = True
            return
        exchange.got += part
    with suppress(TimeoutError):  # nothing more should come
        part = await asyncio.wait_for(reader.read(65536), PAUSE)
        exchange.got, exchange.ended = exchange.got + part, not part


# --- both -------------------------------------------------------------------------------------------------------------


@contextmanager
def door_of(name: str, folder: Path) -> Iterator[Door]:
    if name == "server":
        with opened() as door:
            yield door
        return
    installed()
    made = NginxDoor(folder)
    try:
        yield made
    finally:
        made.stop()


def play(name: str, seed: int, numbers: range) -> Played:
    """These connections through this door."""
    with tempfile.TemporaryDirectory() as folder, door_of(name, Path(folder)) as door:
        return asyncio.run(_play(name, door, seed, numbers))


async def _play(name: str, door: Door, seed: int, numbers: range) -> Played:
    replica, played, begun = StrictReplica(), Played(), time.monotonic()
    server = await replica.start()
    served = _served(replica.port)
    await asyncio.to_thread(door.serve, served)
    host = door.host_of(served)
    for start in range(numbers.start, numbers.stop, BATCH):
        batch = range(start, min(start + BATCH, numbers.stop))
        exchanges = await _batch(door.address, [pairs.draw(seed, number, host) for number in batch])
        await asyncio.sleep(2 * IDLE)
        judge(played, exchanges, replica, lenient=name in LENIENT)
        replica.seen.clear()
        replica.wrong.clear()
    server.close()
    await replica.stop()
    played.seconds = time.monotonic() - begun
    return played


async def _batch(address: tuple[str, int], drawn: list[Drawn]) -> dict[int, Exchange]:
    seats, found = asyncio.Semaphore(CLIENTS), {}

    async def one(each: Drawn) -> None:
        async with seats:
            found[each.number] = await converse(address, each)

    await asyncio.gather(*(one(each) for each in drawn))
    return found


def _served(port: int) -> Served:
    one = ServedReplica(job_id="strict", instance_id="i1", port=port, address="127.0.0.1", ready=True)
    return service((one,), auth=False)


def judge(played: Played, exchanges: dict[int, Exchange], replica: StrictReplica, *, lenient: bool) -> None:
    by_mark = {mark: its for its in exchanges.values() for mark in pairs.MARK.findall(its.drawn.bytes)}
    unjudged = {number for number, its in exchanges.items() if lenient and its.meant.odd_ends}
    for wrong, raw in replica.wrong:
        its = by_mark.get(next(reversed(pairs.MARK.findall(raw)), b""))
        number = its.drawn.number if its else 0
        played.finds.append(Find(number, f"a replica got what is no request: {wrong}", repr(raw[-600:])))
    for request in replica.seen:
        its = by_mark.get(request.mark)
        if its is None:
            played.finds.append(Find(0, f"a replica got a request without a sender: {request.target!r}"))
            continue
        played.reached += 1
        if its.drawn.number not in unjudged:
            played.finds += [Find(its.drawn.number, what) for what in pairs.judge_seen(its.meant, request)]
    for number, its in exchanges.items():
        played.requests += len(its.meant.requests)
        played.answered += its.got.lower().count(b"\r\nx-replica:")
        played.kinds["spoilt" if its.meant.spoilt else "good"] += 1
        played.kinds["ended" if its.ended else "left open"] += 1
        found = pairs.judge_answers(its.drawn, its.meant, its.got, ended=its.ended, strictly=number not in unjudged)
        played.finds += [Find(number, what) for what in found]


def show(name: str, seed: int, number: int) -> int:
    with tempfile.TemporaryDirectory() as folder, door_of(name, Path(folder)) as door:

        async def one() -> int:
            replica, played = StrictReplica(), Played()
            await replica.start()
            served = _served(replica.port)
            await asyncio.to_thread(door.serve, served)
            drawn = pairs.draw(seed, number, door.host_of(served))
            print(*(f"> {piece!r}" for piece in drawn.pieces), sep="\n")
            exchange = await converse(door.address, drawn)
            await asyncio.sleep(2 * IDLE)
            print(f"= {exchange.meant}")
            print(*(f"replica: {request}" for request in replica.seen), sep="\n")
            print(f"< {exchange.got!r}{' and the end' if exchange.ended else ''}")
            judge(played, {number: exchange}, replica, lenient=name in LENIENT)
            print(*played.finds, sep="\n")
            return 1 if played.finds else 0

        return asyncio.run(one())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.doors", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="how many, at each door")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--door", choices=DOORS, nargs="*", default=list(DOORS))
    parser.add_argument("--only", type=int, metavar="N", help="play connection N, and show it")
    given = parser.parse_args(arguments)
    if given.only is not None:
        return max(show(name, given.seed, given.only) for name in given.door)
    return max(play_and_report(name, given.seed, given.requests) for name in given.door)


def play_and_report(name: str, seed: int, requests: int) -> int:
    """1 if there is any find. Of each kind one is printed, with how to play it again."""
    played = play(name, seed, range(pairs.connections(requests)))
    print(f"{name}: {played}")
    kinds: dict[str, list[Find]] = {}
    for find in sorted(played.finds, key=lambda each: each.number):
        kinds.setdefault(find.kind, []).append(find)
    for same in kinds.values():
        again = f"python -m tests.fuzz.doors --door {name} --seed {seed} --only {same[0].number}"
        print(f"{same[0]} ({len(same)} times)\n    {again}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
