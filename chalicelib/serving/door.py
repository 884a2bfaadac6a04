"""The door itself: judges a request, finds it a replica, passes it on, and counts it.

Everything happens on the event loop and waits for nobody but the client and the replica. What has to look into the
store does so on threads of the door's own, and what it found is remembered until something changes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.services import BUCKET, SERVER, Traffic
from chalicelib.domain.serving import Served, ServedReplica
from chalicelib.serving import browsers, limits, problems, routing, websockets
from chalicelib.serving import headers as heads
from chalicelib.serving.access import ServiceAccess, bearer
from chalicelib.serving.catalogue import ServiceCatalogue
from chalicelib.serving.choosing import ATTEMPTS, KEPT, REPEATABLE, Balancer
from chalicelib.serving.counting import Counts
from chalicelib.serving.directory import Directory
from chalicelib.serving.exchange import CONNECT_BRIEFLY, CONNECT_SECONDS, Body, Exchange, Room
from chalicelib.serving.forward import ReplicaConnections
from chalicelib.serving.model_requests import PREFIX as MODELS
from chalicelib.serving.model_requests import ModelRequest, ModelRequests, by_path
from chalicelib.serving.ports import Connected, Gone, MemberRights, Receive, Report, Scope, Services, Way
from chalicelib.serving.problems import Unanswered
from chalicelib.serving.usage import Tail

log = logging.getLogger(__name__)
T = TypeVar("T")

THREADS = 2
HOLD = 30.0  # seconds that a request waits for a replica
MOST_HELD, MOST_HELD_BYTES = 1000, 64 * 2**20  # of one service
SOON = 0.05  # seconds after which something urgent is reported: what happens meanwhile goes with it
AGAIN = 1.0  # seconds between two such reports


@dataclass(frozen=True)
class DoorSettings:
    domain: str = routing.DOMAIN
    proto: str = "http"  # how clients reach the server, where something before it does TLS
    most: int = 4000  # requests under way at once: each needs a connection to a replica
    hold: float = HOLD


async def _taken_for_granted(replica: ServedReplica, seconds: float) -> bool:
    return True


class Door:
    """`now`: the time of day in microseconds. `bind` must be called on the event loop before anything else there."""

    def __init__(
        self,
        services: Services,
        rights: MemberRights,
        report: Report,
        now: Callable[[], Micros],
        *,
        settings: DoorSettings = DoorSettings(),
        way: Way = lambda replica: "",
        connected: Connected = _taken_for_granted,
        gone: Gone = lambda job_id: None,
    ) -> None:
        self._report, self._now, self._settings, self._way, self._gone = report, now, settings, way, gone
        self._connected = connected
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="door")
        self._choice, self._counts, self._limiter = Balancer(), Counts(SERVER), limits.Limiter()
        self._services = services
        self._directory = Directory(services, self._aside, self._looked_up)
        self._access = ServiceAccess(rights, self._aside, time.monotonic)
        self._replicas = ReplicaConnections(way)
        self._catalogue = ServiceCatalogue(services, self._directory, self._aside)
        self._models = ModelRequests(self._catalogue, self._admit, self._pass_on)
        self._held_bytes: dict[str, int] = {}
        self._room = Room(KEPT)
        self._ids, self._began = count(), os.urandom(6).hex()  # of requests
        self._seen: dict[str, frozenset[str]] = {}  # the replicas of each run that was looked up, by their jobs
        self._busy = 0
        self._closing = False
        self._tick: asyncio.TimerHandle | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._told = float("-inf")  # when something urgent was last reported
        self._reporting: asyncio.Task[None] | None = None
        self._looking: dict[str, asyncio.Task[None]] = {}  # by run
        self._look_after: set[str] = set()  # runs that changed meanwhile
        self._to_look_at: set[str] = set()  # once it is bound

    # --- what whoever opened it calls -----------------------------------------------------------------------------

    def bind(self) -> None:
        self._loop = asyncio.get_running_loop()
        for run_id in self._to_look_at:
            self._look_at(run_id)
        self._to_look_at.clear()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "the door isn't bound"
        return self._loop

    def place(self, scope: Scope) -> routing.ServicePath | ModelRequest | None:
        """Where this request goes, if it is one for a service."""
        path: bytes = scope.get("raw_path") or b"/"
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if (found := routing.by_host(host.decode("latin-1"), self._settings.domain, path)) is not None:
            return found
        if path.startswith(MODELS):
            return by_path(path)
        return (routing.by_path(path) or routing.NOWHERE) if path.startswith(routing.PREFIX) else None

    def changed(self, run_ids: Iterable[str], *, look: Iterable[str] = ()) -> None:
        """These runs are others now; those of `look` at least must be looked at, though nobody may ask for them. From
        any thread."""
        looked = tuple(look)
        if self._loop is None:
            self._to_look_at.update(looked)
        self._call(self._changed, tuple(run_ids), looked)

    def rights_changed(self) -> None:
        """From any thread."""
        self._call(self._access.changed)

    def close(self) -> None:
        """Let nobody wait any more: the server is stopping. From any thread."""
        self._call(self._close)

    def _call(self, what: Callable[..., None], *given: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *given)

    def _close(self) -> None:
        self._closing = True
        self._directory.wake_all()

    async def closed(self) -> None:
        """Everything has ended: a last report, and nothing stays open. On the event loop."""
        for timer in (self._tick, self._soon):
            if timer is not None:
                timer.cancel()
        if self._reporting is not None:
            await self._reporting
        await self._tell(urgent=False)
        self._replicas.close()
        self._threads.shutdown(wait=False)

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # --- a request ------------------------------------------------------------------------------------------------

    async def serve(self, place: routing.ServicePath | ModelRequest, scope: Scope, receive: Receive) -> None:
        """Answer a request that `place` is of."""
        exchange = Exchange(scope, receive)
        task = asyncio.current_task()
        assert task is not None
        left = False

        def lost() -> None:
            nonlocal left
            left = True
            task.cancel()

        exchange.wire.lost = lost
        try:
            await self._answer(place, exchange, scope["query_string"])
        except (problems.ClientGone, TimeoutError):
            exchange.wire.leave()
        except asyncio.CancelledError:
            if not left:  # the server is stopping, and has waited long enough
                exchange.wire.leave()
        finally:
            exchange.wire.lost = None

    async def _answer(self, place: routing.ServicePath | ModelRequest, exchange: Exchange, query: bytes) -> None:
        try:
            self._check(exchange)
            if isinstance(place, ModelRequest):
                await self._models.serve(place, exchange, query)
                return
            service = await self._found(place, exchange, query)
            if service is not None:
                await self._pass_on(service, place, exchange, query)
        except problems.HttpProblem as problem:
            openai = isinstance(place, ModelRequest) or self._of_openai(place)
            await exchange.refuse(problem, openai=openai)

    def _of_openai(self, place: routing.ServicePath) -> bool:
        return problems.of_openai(self._directory.peek((place.project, place.run)), place.rest)

    @staticmethod
    def _check(exchange: Exchange) -> None:
        if heads.one(exchange.headers, b"host") is None:
            raise problems.no_host()
        if exchange.method in ("TRACE", "CONNECT"):
            raise problems.no_method(exchange.method)
        if heads.size(exchange.headers) > heads.MOST:
            raise problems.header_too_large(heads.MOST)

    async def _found(self, place: routing.ServicePath, exchange: Exchange, query: bytes) -> Served | None:
        """The service, once the caller may use it. None: the request has been answered."""
        if place.whole[:1] != b"/":
            raise problems.no_path()
        if not place.rest:
            there = f"{place.prefix}/" + (f"?{query.decode('ascii')}" if query else "")
            await exchange.answer(308, [("location", there)])
            return None
        if routing.climbs(place.whole):
            raise problems.climbing()
        name = place.project, place.run
        service = await self._service(name) if place.run else None
        closed = service is None or service.auth  # whoever has no token can't know which of them it is
        if exchange.header("origin") and (closed or (service is not None and service.model is not None)):
            exchange.added = browsers.READABLE
            if browsers.asks_first(exchange):
                await browsers.allow(exchange)
                return None
        if service is None:
            if place.run:
                await self._admit(place.project, exchange)  # whoever may not know what there is learns nothing
            there = await self._aside(lambda: self._services.elsewhere(*name)) if place.run else ""
            raise problems.elsewhere(place.run, there) if there else problems.unknown(place.project, place.run)
        if service.auth:
            await self._admit(service.project_name, exchange, service.run_name)
        if service.model is None:
            exchange.added = ()  # what the application answers is its own matter
        return service

    def _next_id(self) -> str:
        return f"{self._began}{next(self._ids):012x}"

    async def _service(self, name: tuple[str, str]) -> Served | None:
        return self._directory.peek(name) or await self._directory.find(name)

    async def _admit(self, project: str, exchange: Exchange, run: str = "") -> None:
        token = bearer(exchange.headers)
        if not token or not await self._access.judge(token, project, run):
            raise problems.not_allowed(given=bool(token))
        exchange.wire.recognised()

    async def _pass_on(self, service: Served, place: routing.ServicePath, exchange: Exchange, query: bytes) -> None:
        path = place.rest if service.strip_prefix else place.whole
        if service.routed and not routing.through_router(routing.read(place.rest)):
            raise problems.not_routed()
        self._limit(service, place.rest, exchange)
        if (exchange.announced or 0) > service.body:
            raise problems.too_large(service.body)
        if self._busy >= self._settings.most:
            raise problems.busy()
        exchange.wire.unhurried()
        host = (heads.one(exchange.headers, b"host") or b"").decode("latin-1")
        request_id = heads.request_id(exchange.headers, self._next_id)
        prefix = place.prefix if service.strip_prefix else ""
        origin = heads.Origin(exchange.address, self._settings.proto, host, prefix, request_id)
        raw = heads.onward(exchange.headers, origin, judged=service.auth)
        going = _Going(place, path + b"?" + query if query else path, raw, request_id)
        tail = Tail() if service.model is not None else None
        if tail is not None:
            exchange.hearers.append(tail)
        self._busy += 1
        self._counts.came(service.run_id, self._now())
        try:
            self._look_busy()
            if websockets.asked(exchange.method, exchange.headers):
                await self._tunnel(service, going, exchange)
            else:
                await self._exchange(service, going, exchange)
        finally:
            self._busy -= 1
            if tail is not None and (tokens := tail.tokens()) is not None:
                self._counts.took(service.run_id, tokens)
            self._counts.went(service.run_id, self._now())

    def _limit(self, service: Served, path: bytes, exchange: Exchange) -> None:
        if not service.rate_limits:
            return
        limit = limits.applying(service.rate_limits, routing.read(path))
        if limit is None:
            return
        who = limits.client(limit, exchange.address, exchange.header)
        wait = self._limiter.admit(service.run_id, limit, who, time.monotonic_ns() // 1000)
        if wait:
            raise problems.too_many(math.ceil(wait / SECOND))

    async def _exchange(self, service: Served, going: _Going, exchange: Exchange) -> None:
        """A plain request: to one replica after the other, until one answers."""
        body = Body(exchange, service.body, REPEATABLE, self._room)
        try:
            while not await self._attempt(service, going, exchange, body):
                pass
        finally:
            body.forget()

    async def _attempt(self, service: Served, going: _Going, exchange: Exchange, body: Body) -> bool:
        """Has a replica answered?"""
        replica = await self._replica(service, going, exchange)
        self._choice.begins(replica.job_id)
        try:
            patience = await self._reached(service, replica, going)
            response = await self._replicas.request(
                replica, exchange.method, going.target, going.headers, body, patience
            )
            body.forget()  # a stream may go on for hours
            try:
                self._choice.answered(replica.job_id)
                await self._replicas.give_back(response, exchange, going.request_id, replica.job_id, going.place.prefix)
            finally:
                response.release()
            return True
        except Unanswered as failed:
            self._failed(going, replica, failed, again=body.kept)
            return False
        finally:
            self._ends(service.run_id, replica.job_id)

    async def _reached(self, service: Served, replica: ServedReplica, going: _Going) -> float:
        """The seconds that a connection to the replica may take. Raises Unanswered if its host gives no sign while
        another replica stands by: nothing has been sent yet."""
        if not self._choice.others(service, replica, going.tried):
            return CONNECT_SECONDS
        if not replica.address and not await self._connected(replica, CONNECT_BRIEFLY):
            raise Unanswered(problems.unreachable())
        return CONNECT_BRIEFLY

    def _failed(self, going: _Going, replica: ServedReplica, failed: Unanswered, *, again: bool) -> None:
        """Raises Problem if it can't be sent again, or has been often enough."""
        self._choice.failed(replica.job_id, time.monotonic())
        going.tried.append(replica.job_id)
        if not again or len(going.tried) >= ATTEMPTS:
            raise failed.problem from failed

    async def _tunnel(self, service: Served, going: _Going, exchange: Exchange) -> None:
        """A request for a WebSocket: it is under way until that ends."""
        while True:
            replica = await self._replica(service, going, exchange)
            self._choice.begins(replica.job_id)
            over = asyncio.Event()
            try:
                patience = await self._reached(service, replica, going)
                tunnel = await websockets.connect(replica, self._way, over.set, patience)
                try:
                    answer = await tunnel.ask(websockets.request(going.target, going.headers))
                    self._choice.answered(replica.job_id)
                    if answer.status == 101:
                        exchange.wire.lost = None  # the tunnel hears of it, and ends in its own time
                        prefix = going.place.prefix
                        head = websockets.welcome(answer, going.request_id, replica.job_id, prefix)
                        tunnel.join(exchange.wire, head)
                        await over.wait()
                    else:
                        back = heads.back(answer.headers, going.request_id, replica.job_id, going.place.prefix)
                        back = [each for each in back if each[0] != b"content-length"]
                        back.append((b"content-length", str(len(answer.body)).encode()))
                        exchange.begin(answer.status, back)
                        await exchange.write(bytes(answer.body), last=True)
                finally:
                    tunnel.drop()
                return
            except Unanswered as failed:
                self._failed(going, replica, failed, again=True)
            finally:
                self._ends(service.run_id, replica.job_id)

    def _ends(self, run_id: str, job_id: str) -> None:
        self._choice.ends(job_id)
        self._counts.ended(run_id, job_id, self._choice.under_way)
        self._hurry()

    # --- waiting for a replica ------------------------------------------------------------------------------------

    async def _replica(self, service: Served, going: _Going, exchange: Exchange) -> ServedReplica:
        """The one to ask next. Waits for one if none is ready."""
        name = going.place.project, going.place.run
        known = await self._service(name)
        if known is None or known.run_id != service.run_id:
            raise problems.unknown(*name)
        found = self._choice.choose(known, time.monotonic(), going.tried, exchange.only)
        return found or await self._wait(known, name, exchange, going.tried)

    async def _wait(
        self, service: Served, name: tuple[str, str], exchange: Exchange, tried: list[str]
    ) -> ServedReplica:
        run_id, body = service.run_id, 65536 if exchange.announced is None else min(exchange.announced, 65536)
        size = heads.size(exchange.headers) + body + exchange.read
        held = self._held_bytes.get(run_id, 0)
        if self._counts.held(run_id) >= MOST_HELD or held + size > MOST_HELD_BYTES:
            raise problems.no_replica("too many requests wait for one already")
        self._held_bytes[run_id] = held + size
        self._counts.waits(run_id, self._now())
        self._hurry()
        try:
            async with asyncio.timeout(self._settings.hold):
                while not self._closing:
                    change = self._directory.change_of(run_id)
                    known = await self._directory.find(name)
                    if known is None or known.run_id != run_id:
                        raise problems.unknown(*name)
                    if found := self._choice.choose(known, time.monotonic(), tried, exchange.only):
                        return found
                    if known.off:
                        raise problems.off()
                    await change.wait()
            raise problems.stopping()
        except TimeoutError:
            raise problems.no_replica(f"the request waited {self._settings.hold:g} s for one") from None
        finally:
            self._counts.waited(run_id, self._now())
            self._held_bytes[run_id] -= size
            if not self._held_bytes[run_id]:
                del self._held_bytes[run_id]

    # --- what has changed, and what is told -----------------------------------------------------------------------

    def _changed(self, run_ids: tuple[str, ...], look: tuple[str, ...]) -> None:
        self._directory.changed(run_ids)
        self._catalogue.changed(run_ids)
        for run_id in {*look, *(run_id for run_id in run_ids if run_id in self._seen)}:
            self._look_at(run_id)

    def _look_at(self, run_id: str) -> None:
        """One look at a time: all that changes meanwhile is seen by the next one."""
        if run_id in self._looking:
            self._look_after.add(run_id)
            return
        self._looking[run_id] = task = asyncio.ensure_future(self._look(run_id))
        task.add_done_callback(lambda _: self._looked_at(run_id))

    def _looked_at(self, run_id: str) -> None:
        del self._looking[run_id]
        if run_id in self._look_after:
            self._look_after.discard(run_id)
            self._look_at(run_id)

    async def _look(self, run_id: str) -> None:
        try:
            if await self._directory.look_again(run_id) is None:
                self._counts.gone(run_id)
                self._are_gone(self._seen.pop(run_id, frozenset()))
        except Exception:
            log.exception("looking at the service %s failed; the next request looks again", run_id)

    def _are_gone(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._choice.forget(job_id)
            self._gone(job_id)

    def _looked_up(self, service: Served) -> None:
        now = frozenset(each.job_id for each in service.replicas)
        self._are_gone(self._seen.get(service.run_id, frozenset()) - now)
        self._seen[service.run_id] = now
        self._counts.looked_up(service, self._choice.under_way, self._now())
        self._hurry()

    def _hurry(self) -> None:
        """Report what is urgent, if anything is, soon. Called whenever something may have become so, and after each
        report: what became so meanwhile mustn't wait for the next one."""
        if self._soon is None and self._counts.urgent and self._loop is not None:
            pause = max(SOON, self._told + AGAIN - self._loop.time())
            self._soon = self._loop.call_later(pause, self._tell_soon)

    def _tell_soon(self) -> None:
        assert self._loop is not None
        self._soon, self._told = None, self._loop.time()
        self._start_telling(urgent=True)

    def _look_busy(self) -> None:
        """While there are requests there is a report every ten seconds."""
        if self._tick is None and self._loop is not None:
            self._tick = self._loop.call_later(BUCKET / SECOND, self._tell_all)

    def _tell_all(self) -> None:
        self._tick = None
        self._start_telling(urgent=False)
        if len(self._counts):
            self._look_busy()

    def _start_telling(self, *, urgent: bool) -> None:
        if self._reporting is not None and not self._reporting.done():
            self._look_busy()  # the store is slow: the next one tells everything
            return
        self._reporting = asyncio.ensure_future(self._tell(urgent=urgent))

    def told_now(self, *, urgent: bool = False) -> list[Traffic]:
        """What there is to report. On the event loop."""
        return self._counts.report(self._choice.under_way, self._now(), urgent=urgent)

    async def _tell(self, *, urgent: bool) -> None:
        told = self.told_now(urgent=urgent)
        if told:
            try:
                await self._aside(lambda: self._report(told))
            except Exception:
                log.exception("reporting the traffic of %d services failed; the next report includes it", len(told))
        self._hurry()


@dataclass
class _Going:
    """A request on its way."""

    place: routing.ServicePath
    target: bytes
    headers: list[tuple[bytes, bytes]]
    request_id: str
    tried: list[str] = field(default_factory=list)  # replicas, by their jobs
