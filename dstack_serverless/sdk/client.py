"""`Client`, and what it shares with `AsyncClient`: the same nouns and methods, on one transport.

The server, the token and the project are those that are given, else those of `DSTACK_SERVER_URL`, `DSTACK_TOKEN` and
`DSTACK_PROJECT`, else those that the command line uses (`~/.dstack/config.yml`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import httpx

from chalicelib.errors import DstackError
from chalicelib.loopback import is_loopback
from cli.connection.client import in_clear
from dstack_serverless.sdk.core import API_VERSION, Core, encoded, log
from dstack_serverless.sdk.flow import Exchange, Flow, Item, Lost, NotSent, Pause, Reply, Request, Together, Work
from dstack_serverless.sdk.machines import Fleets, Gateways, Instances, Volumes
from dstack_serverless.sdk.observations import Events, Offers
from dstack_serverless.sdk.people import Projects, Secrets, Users
from dstack_serverless.sdk.resource import Mode, Sync
from dstack_serverless.sdk.runs import Runs
from dstack_serverless.sdk.settings import certificates, endpoint_of

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0  # seconds
ANSWER_TIMEOUT = 60.0
RETRIES = 4
POOL = 100  # connections at a time


class Nouns(Generic[Mode]):
    """What both clients have."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        project: str | None = None,
        *,
        timeout: float = ANSWER_TIMEOUT,
        retries: int = RETRIES,
        transport: Any = None,
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> None:
        """`timeout`: seconds that an answer may take. `retries`: how often a request is sent again that may be.
        `transport`: another one of httpx."""
        env, home = os.environ if env is None else env, home or Path.home()
        found = endpoint_of(url, token, project, env, home)
        if notice := in_clear(found.url):
            log.warning("%s", notice)
        self.core = Core(found.url, found.token, found.project, retries, env, home)
        self._open(
            {
                "base_url": found.url,
                "headers": {"Authorization": f"Bearer {found.token}", "X-API-VERSION": API_VERSION},
                "timeout": httpx.Timeout(timeout, connect=CONNECT_TIMEOUT),
                "limits": httpx.Limits(max_connections=POOL, max_keepalive_connections=POOL),
                "transport": transport,
                "verify": certificates(found.url),
                "trust_env": not is_loopback(found.url),  # no proxy gets what stays here
            }
        )
        self.runs: Runs[Mode] = Runs(self)
        self.fleets: Fleets[Mode] = Fleets(self)
        self.instances: Instances[Mode] = Instances(self)
        self.volumes: Volumes[Mode] = Volumes(self)
        self.gateways: Gateways[Mode] = Gateways(self)
        self.offers: Offers[Mode] = Offers(self)
        self.events: Events[Mode] = Events(self)
        self.secrets: Secrets[Mode] = Secrets(self)
        self.projects: Projects[Mode] = Projects(self)
        self.users: Users[Mode] = Users(self)

    def _open(self, settings: dict[str, Any]) -> None:
        """Makes httpx's client, of the kind that this one needs."""
        raise NotImplementedError

    def run_flow(self, flow: Flow[Any]) -> Any:
        raise NotImplementedError

    def iterate(self, flow: Flow[None]) -> Any:
        raise NotImplementedError


class Client(Nouns[Sync]):
    """Calls a control plane and waits for its answers. Threads may share one."""

    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def _open(self, settings: dict[str, Any]) -> None:
        self._http = httpx.Client(**settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, request: Request[T]) -> T:
        """The answer to a call that a function of `dstack_serverless.api` describes."""
        answer: T = self.run_flow(self.core.ask(request))
        return answer

    def run_flow(self, flow: Flow[Any]) -> Any:
        send, value = flow.send, None
        while True:
            try:
                step = send(value)
            except StopIteration as end:
                return end.value
            send, value = self._done(flow, step)

    def iterate(self, flow: Flow[None]) -> Iterator[Any]:
        send, value = flow.send, None
        while True:
            try:
                step = send(value)
            except StopIteration:
                return
            if isinstance(step, Item):
                yield step.value
                send, value = flow.send, None
            else:
                send, value = self._done(flow, step)

    def _done(self, flow: Flow[Any], step: Any) -> tuple[Callable[[Any], Any], Any]:
        """How the flow goes on after a step, and with what."""
        try:
            return flow.send, self._do(step)
        except Exception as error:  # noqa: BLE001 - the flow decides what it means
            return flow.throw, error

    def _do(self, step: Any) -> Any:
        if isinstance(step, Exchange):
            try:
                return reply_of(self._http.request(**arguments_of(step, self._http.timeout)))
            except httpx.RequestError as error:
                raise translation_of(error) from error
        if isinstance(step, Pause):
            return self.sleep(step.seconds)
        if isinstance(step, Together):
            threads = ThreadPoolExecutor(max(min(step.at_once, len(step.flows)), 1))
            try:
                return list(threads.map(self._result, step.flows))
            finally:
                threads.shutdown(cancel_futures=True)  # on Ctrl-C, those that haven't begun
        assert isinstance(step, Work), step
        return step.do()

    def _result(self, flow: Flow[Any]) -> Any:
        try:
            return self.run_flow(flow)
        except DstackError as error:
            return error


UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


def arguments_of(exchange: Exchange, usual: httpx.Timeout) -> dict[str, Any]:
    request = exchange.request
    arguments: dict[str, Any] = {"method": request.method, "url": request.path, "headers": {**request.headers}}
    if request.query:
        arguments["params"] = {name: value for name, value in request.query.items() if value is not None}
    if (within := exchange.within) is not None:
        limits = {phase: within if limit is None else min(limit, within) for phase, limit in usual.as_dict().items()}
        arguments["timeout"] = httpx.Timeout(**limits)
    if request.file is not None:
        arguments["files"] = {"file": (request.file_name, request.file)}
    elif (body := encoded(request)) is not None:
        arguments["content"] = body
        arguments["headers"]["Content-Type"] = "application/json"
    return arguments


def reply_of(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.headers, response.content)


def translation_of(error: httpx.RequestError) -> NotSent | Lost:
    why = "it took too long" if isinstance(error, httpx.TimeoutException) else str(error) or type(error).__name__
    return NotSent(why) if isinstance(error, UNSENT) else Lost(why)
