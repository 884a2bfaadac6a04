"""The door: authorises a request, finds a replica for it, passes it on, and counts it.

Everything runs on the event loop and waits only for the client and the replica. Reads of the store are made on the
door's own threads, and their results are cached until something changes.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.services import SERVER, Traffic
from chalicelib.domain.serving import Served, ServedReplica
from chalicelib.serving import cross_origin, limits, problems, routing, websockets
from chalicelib.serving import headers as heads
from chalicelib.serving.access import ServiceAccess, bearer
from chalicelib.serving.answer_times import AnswerTimes
from chalicelib.serving.balancer import ATTEMPTS, MOST_RETAINED, REPEATABLE, Balancer
from chalicelib.serving.directory import Directory
from chalicelib.serving.exchange import CONNECT_BRIEFLY, CONNECT_SECONDS, Body, Exchange, Room
from chalicelib.serving.forward import ReplicaConnections
from chalicelib.serving.model_index import ModelIndex
from chalicelib.serving.model_requests import PREFIX as MODELS
from chalicelib.serving.model_requests import ModelRequest, ModelRequests, by_path
from chalicelib.serving.ports import Connected, MemberRights, Receive, ReplicaGone, Report, Scope, Services, SocketPath
from chalicelib.serving.problems import Unanswered
from chalicelib.serving.refreshing import ServiceFollower
from chalicelib.serving.reporting import TrafficReporter
from chalicelib.serving.token_usage import Tail
from chalicelib.serving.traffic_counts import Counts
from chalicelib.serving.waiting import HOLD, ReplicaFinder

T = TypeVar("T")

THREADS = 2


@dataclass(frozen=True)
class DoorSettings:
    domain: str = routing.DOMAIN
    proto: str = "http"  # the scheme by which clients reach the server: https behind a proxy that terminates TLS
    most: int = 4000  # requests under way at once: each needs a connection to a replica
    hold: float = HOLD


async def _assume_connected(replica: ServedReplica, seconds: float) -> bool:
    return True


class Door:
    """Serves requests to services. `now` returns the time in microseconds. `bind` must be called on the event loop
    before any other method there."""

    def __init__(
        self,
        services: Services,
        rights: MemberRights,
        report: Report,
        now: Callable[[], Micros],
        *,
        settings: DoorSettings = DoorSettings(),
        socket_path: SocketPath = lambda replica: "",
        connected: Connected = _assume_connected,
        gone: ReplicaGone = lambda job_id: None,
    ) -> None:
        self._now, self._settings, self._socket_path = now, settings, socket_path
        self._connected, self._gone = connected, gone
        self._loop: asyncio.AbstractEventLoop | None = None
        self._to_refresh: set[str] = set()  # runs, once it is bound
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="door")
        self._balancer, self._counts, self._limiter = Balancer(), Counts(SERVER), limits.Limiter()
        self._services = services
        self._directory = Directory(services, self._in_background, self._looked_up)
        self._access = ServiceAccess(rights, self._in_background, time.monotonic)
        self._replicas = ReplicaConnections(socket_path)
        self._model_index = ModelIndex(services, self._directory, self._in_background)
        self._models = ModelRequests(self._model_index, self._admit, self._pass_on)
        self._reporter = TrafficReporter(report, self._counts, self._balancer.under_way, now, self._in_background)
        self._finder = ReplicaFinder(
            self._directory, self._balancer, self._counts, now, self._reporter.hurry, settings.hold
        )
        self._follower = ServiceFollower(self._directory.refresh, self._replica_gone, self._counts.gone)
        self._copies = Room(MOST_RETAINED)
        self._ids, self._id_prefix = count(), os.urandom(6).hex()  # of requests
        self._busy = 0

    # --- called by the server that opened it --------------------------------------------------------------------------

    def bind(self) -> None:
        self._loop = asyncio.get_running_loop()
        for run_id in self._to_refresh:
            self._follower.refresh(run_id)
        self._to_refresh.clear()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "the door isn't bound"
        return self._loop

    def place(self, scope: Scope) -> routing.ServicePath | ModelRequest | None:
        """The destination of this request; None if it isn't for a service."""
        path: bytes = scope.get("raw_path") or b"/"
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if (found := routing.by_host(host.decode("latin-1"), self._settings.domain, path)) is not None:
            return found
        if path.startswith(MODELS):
            return by_path(path)
        return (routing.by_path(path) or routing.NOWHERE) if path.startswith(routing.PREFIX) else None

    def changed(self, run_ids: Iterable[str], *, refresh: Iterable[str] = ()) -> None:
        """Take note that these runs have changed. Those of `refresh` are read even without a request for them. May be
        called from any thread."""
        at_once = tuple(refresh)
        if self._loop is None:
            self._to_refresh.update(at_once)
        self._call(self._changed, tuple(run_ids), at_once)

    def rights_changed(self) -> None:
        """Forget all verdicts about callers. May be called from any thread."""
        self._call(self._access.changed)

    def close(self) -> None:
        """Refuse the requests that wait, because the server is stopping. May be called from any thread."""
        self._call(self._finder.close)

    def _call(self, what: Callable[..., None], *given: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *given)

    async def closed(self) -> None:
        """Send a last report and close everything, once all requests have ended. On the event loop."""
        await self._reporter.finish()
        self._replicas.close()
        self._threads.shutdown(wait=False)

    def pending_traffic(self) -> list[Traffic]:
        """The traffic that hasn't been reported yet. On the event loop."""
        return self._reporter.pending()

    async def _in_background(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _changed(self, run_ids: tuple[str, ...], refresh: tuple[str, ...]) -> None:
        self._directory.changed(run_ids)
        self._model_index.changed(run_ids)
        self._follower.changed(run_ids, refresh)

    def _looked_up(self, service: Served) -> None:
        self._follower.looked_up(service)
        self._counts.looked_up(service, self._balancer.under_way, self._now())
        self._reporter.hurry()

    def _replica_gone(self, job_id: str) -> None:
        self._balancer.forget(job_id)
        self._gone(job_id)

    # --- a request ------------------------------------------------------------------------------------------------

    async def serve(self, place: routing.ServicePath | ModelRequest, scope: Scope, receive: Receive) -> None:
        """Answer a request to `place`."""
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
            service = await self._resolve_service(place, exchange, query)
            if service is not None:
                await self._pass_on(service, place, exchange, query)
        except problems.HttpProblem as problem:
            openai = isinstance(place, ModelRequest) or self._is_openai(place)
            await exchange.refuse(problem, openai=openai)

    def _is_openai(self, place: routing.ServicePath) -> bool:
        return problems.of_openai(self._directory.peek((place.project, place.run)), place.path)

    @staticmethod
    def _check(exchange: Exchange) -> None:
        if heads.one(exchange.headers, b"host") is None:
            raise problems.no_host()
        if exchange.method in ("TRACE", "CONNECT"):
            raise problems.no_method(exchange.method)
        if heads.size(exchange.headers) > heads.MOST:
            raise problems.header_too_large(heads.MOST)

    async def _resolve_service(self, place: routing.ServicePath, exchange: Exchange, query: bytes) -> Served | None:
        """The service, if the caller may use it. None: the request has been answered."""
        if place.full_path[:1] != b"/":
            raise problems.no_path()
        if not place.path:
            there = f"{place.prefix}/" + (f"?{query.decode('ascii')}" if query else "")
            await exchange.answer(308, [("location", there)])
            return None
        if routing.climbs(place.full_path):
            raise problems.climbing()
        if place.prefix and exchange.header("service-worker"):
            raise problems.no_worker()
        name = place.project, place.run
        service = await self._service(name) if place.run else None
        closed = service is None or service.auth  # the two look alike to a caller without a token
        if exchange.header("origin") and (closed or (service is not None and service.model is not None)):
            exchange.added = cross_origin.READABLE
            if cross_origin.is_preflight(exchange):
                await cross_origin.allow(exchange)
                return None
        if service is None:
            if place.run:
                await self._admit(place.project, exchange)  # only members may learn which services exist
            there = await self._in_background(lambda: self._services.elsewhere(*name)) if place.run else ""
            raise problems.elsewhere(place.run, there) if there else problems.unknown(place.project, place.run)
        if service.auth:
            await self._admit(service.project_name, exchange, service.run_name)
        if service.model is None:
            exchange.added = ()  # the application decides about its own responses
        if there := self._page_elsewhere(service, place, exchange, query):
            await exchange.answer(307, [("location", there)])
            return None
        return service

    def _page_elsewhere(self, service: Served, place: routing.ServicePath, exchange: Exchange, query: bytes) -> str:
        """Where a browser that opens this page is sent: to the service's own host, which is an origin of its own.
        Empty if it stays here, as programs do."""
        opens = exchange.header("sec-fetch-mode") == "navigate" and exchange.header("sec-fetch-dest") == "document"
        if not place.prefix or exchange.method != "GET" or not opens:
            return ""
        path = place.path if service.strip_prefix else place.full_path
        host, domain = exchange.header("host"), self._settings.domain
        if domain == routing.DOMAIN and (exchange.header("x-forwarded-for") or not exchange.local):
            return ""  # the browser is on another machine: behind a proxy, unless this one was told to believe it
        there = routing.own_address(place, path, host, domain, self._settings.proto)
        return f"{there}?{query.decode('latin-1')}" if there and query else there

    def _next_id(self) -> str:
        return f"{self._id_prefix}{next(self._ids):012x}"

    async def _service(self, name: tuple[str, str]) -> Served | None:
        return self._directory.peek(name) or await self._directory.find(name)

    async def _admit(self, project: str, exchange: Exchange, run: str = "") -> None:
        token = bearer(exchange.headers)
        if not token or not await self._access.judge(token, project, run):
            raise problems.not_allowed(given=bool(token))
        exchange.wire.recognised()

    async def _pass_on(self, service: Served, place: routing.ServicePath, exchange: Exchange, query: bytes) -> None:
        path = place.path if service.strip_prefix else place.full_path
        if service.routed and not routing.through_router(routing.read(place.path)):
            raise problems.not_routed()
        self._limit(service, place.path, exchange)
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
        forwarded = _ForwardedRequest(place, path + b"?" + query if query else path, raw, request_id)
        tail = Tail() if service.model is not None else None
        if tail is not None:
            exchange.observers.append(tail)
        times = AnswerTimes(self._counts, service.run_id, self._now)
        exchange.observers.append(times)
        self._busy += 1
        self._counts.begins(service.run_id, self._now())
        try:
            self._reporter.busy()
            if websockets.is_upgrade_request(exchange.method, exchange.headers):
                await self._tunnel(service, forwarded, exchange)
            else:
                await self._exchange(service, forwarded, exchange)
        finally:
            self._busy -= 1
            if tail is not None and (tokens := tail.tokens()) is not None:
                self._counts.add_tokens(service.run_id, tokens)
            now = self._now()
            times.ends(now)
            self._counts.ends(service.run_id, now)

    def _limit(self, service: Served, path: bytes, exchange: Exchange) -> None:
        if not service.rate_limits:
            return
        limit = limits.applying(service.rate_limits, routing.read(path))
        if limit is None:
            return
        client = limits.client(limit, exchange.address, exchange.header)
        wait = self._limiter.admit(service.run_id, limit, client, time.monotonic_ns() // 1000)
        if wait:
            raise problems.too_many(math.ceil(wait / SECOND))

    async def _exchange(self, service: Served, forwarded: _ForwardedRequest, exchange: Exchange) -> None:
        """Pass on a plain request, to one replica after the other until one answers."""
        body = Body(exchange, service.body, REPEATABLE, self._copies)
        try:
            while not await self._attempt(service, forwarded, exchange, body):
                pass
        finally:
            body.forget()

    async def _attempt(self, service: Served, forwarded: _ForwardedRequest, exchange: Exchange, body: Body) -> bool:
        """Try one replica. True: it has answered."""
        replica = await self._finder.find(service.run_id, forwarded.name, exchange, forwarded.tried)
        self._balancer.begins(replica.job_id)
        try:
            patience = await self._reached(service, replica, forwarded)
            response = await self._replicas.request(
                replica, exchange.method, forwarded.target, forwarded.headers, body, patience
            )
            body.forget()  # a stream may go on for hours
            try:
                self._balancer.answered(replica.job_id)
                await self._replicas.give_back(
                    response, exchange, forwarded.request_id, replica.job_id, forwarded.place.prefix
                )
            finally:
                response.release()
            return True
        except Unanswered as failed:
            self._failed(forwarded, replica, failed, again=body.retained)
            return False
        finally:
            self._ends(service.run_id, replica.job_id)

    async def _reached(self, service: Served, replica: ServedReplica, forwarded: _ForwardedRequest) -> float:
        """The seconds that a connection to the replica may take. Raises Unanswered if its host doesn't respond and
        there is another replica: nothing has been sent yet."""
        if not self._balancer.has_alternative(service, replica, forwarded.tried):
            return CONNECT_SECONDS
        if not replica.address and not await self._connected(replica, CONNECT_BRIEFLY):
            raise Unanswered(problems.unreachable())
        return CONNECT_BRIEFLY

    def _failed(self, forwarded: _ForwardedRequest, replica: ServedReplica, failed: Unanswered, *, again: bool) -> None:
        """Record a failed attempt. Raises HttpProblem if the request can't be sent again, or all attempts are used."""
        self._balancer.failed(replica.job_id, time.monotonic())
        forwarded.tried.append(replica.job_id)
        if not again or len(forwarded.tried) >= ATTEMPTS:
            raise failed.problem from failed

    async def _tunnel(self, service: Served, forwarded: _ForwardedRequest, exchange: Exchange) -> None:
        """Pass on a request for a WebSocket, which is under way until the WebSocket ends."""
        while True:
            replica = await self._finder.find(service.run_id, forwarded.name, exchange, forwarded.tried)
            self._balancer.begins(replica.job_id)
            over = asyncio.Event()
            try:
                patience = await self._reached(service, replica, forwarded)
                tunnel = await websockets.connect(replica, self._socket_path, over.set, patience)
                try:
                    answer = await tunnel.send_request(websockets.request(forwarded.target, forwarded.headers))
                    self._balancer.answered(replica.job_id)
                    if answer.status == 101:
                        exchange.wire.lost = None  # the tunnel handles a lost connection itself
                        prefix = forwarded.place.prefix
                        head = websockets.welcome(answer, forwarded.request_id, replica.job_id, prefix)
                        tunnel.join(exchange.wire, head)
                        await over.wait()
                    else:
                        back = heads.back(answer.headers, forwarded.request_id, replica.job_id, forwarded.place.prefix)
                        back = [each for each in back if each[0] != b"content-length"]
                        back.append((b"content-length", str(len(answer.body)).encode()))
                        exchange.begin(answer.status, back)
                        await exchange.write(bytes(answer.body), last=True)
                finally:
                    tunnel.drop()
                return
            except Unanswered as failed:
                self._failed(forwarded, replica, failed, again=True)
            finally:
                self._ends(service.run_id, replica.job_id)

    def _ends(self, run_id: str, job_id: str) -> None:
        self._balancer.ends(job_id)
        self._counts.ended(run_id, job_id, self._balancer.under_way)
        self._reporter.hurry()


@dataclass
class _ForwardedRequest:
    """A request as it is sent to replicas."""

    place: routing.ServicePath
    target: bytes
    headers: list[tuple[bytes, bytes]]
    request_id: str
    tried: list[str] = field(default_factory=list)  # replicas, by their jobs

    @property
    def name(self) -> tuple[str, str]:
        return self.place.project, self.place.run
