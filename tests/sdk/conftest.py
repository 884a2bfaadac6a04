"""Both clients, against `dstack server` on the world's time: waiting costs none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from dstack_serverless import AsyncClient, Client
from tests.world.embedded import EmbeddedSite
from tests.world.site import ADMIN

KINDS: dict[str, type[Any]] = {"sync": Client, "async": AsyncClient}


class User:
    """Somebody who uses one of the clients. Calls and iterators of both look alike here."""

    def __init__(self, kind: str, site: EmbeddedSite, home: Path, **settings: Any) -> None:
        self.kind, self.site, self.home = kind, site, home
        self.env = {"DSTACK_SERVER_URL": site.url, "DSTACK_TOKEN": ADMIN, "DSTACK_PROJECT": "main"}
        handler = self._handle if kind == "sync" else self._handle_elsewhere
        self.client = KINDS[kind](transport=httpx.MockTransport(handler), env=self.env, home=home, **settings)
        self.client.core = replace(self.client.core, clock=site.time.seconds, dial=site.via)
        self.client.sleep = site.time.pass_ if kind == "sync" else self._sleep

    def __getattr__(self, name: str) -> Any:
        return Calls(getattr(self.client, name))

    def _handle(self, request: httpx.Request) -> httpx.Response:
        headers = dict(request.headers)
        status, body = self.site.request(request.method, request.url.raw_path.decode(), headers, request.read())
        return httpx.Response(status, content=body)

    async def _handle_elsewhere(self, request: httpx.Request) -> httpx.Response:
        """The site has a loop of its own."""
        return await asyncio.to_thread(self._handle, request)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.to_thread(self.site.time.pass_, seconds)


class Calls:
    def __init__(self, noun: Any) -> None:
        self._noun = noun

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._noun, name)
        return lambda *arguments, **named: waited(method(*arguments, **named))


def waited(found: Any) -> Any:
    if inspect.iscoroutine(found):
        return asyncio.run(found)
    if inspect.isasyncgen(found):
        return asyncio.run(_collected(found))
    return list(found) if inspect.isgenerator(found) else found


async def _collected(found: Any) -> list[Any]:
    return [each async for each in found]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[EmbeddedSite]:
    with contextlib.closing(EmbeddedSite("main", tmp_path / "server", "aws")) as site:
        yield site


@pytest.fixture(params=KINDS)
def user(request: pytest.FixtureRequest, site: EmbeddedSite, tmp_path: Path) -> User:
    home = tmp_path / "home"
    home.mkdir()
    fleet = {"configuration": {"type": "fleet", "name": "cloud", "nodes": "0..2"}}
    site.call("/api/project/main/fleets/apply", {"plan": {"spec": fleet}, "force": False})
    return User(request.param, site, home)
