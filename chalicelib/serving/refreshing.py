"""Follows the services that a door has looked up, and reports replicas and services that are gone.

Everything here is used on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from chalicelib.domain.serving import Served

log = logging.getLogger(__name__)


class ServiceFollower:
    """`find` reads a run's service, or None if it isn't one any more. `gone` is called for each job that isn't a
    replica any more; `ended`, before that, for each run that isn't a service any more."""

    def __init__(
        self,
        find: Callable[[str], Awaitable[Served | None]],
        gone: Callable[[str], None],
        ended: Callable[[str], None],
    ) -> None:
        self._find, self._gone, self._ended = find, gone, ended
        self._replicas: dict[str, frozenset[str]] = {}  # the jobs of each run that was looked up
        self._reading: dict[str, asyncio.Task[None]] = {}  # by run
        self._read_again: set[str] = set()  # runs that changed meanwhile

    def changed(self, run_ids: Iterable[str], refresh: Iterable[str]) -> None:
        """These runs have changed: read those of `refresh`, and those that were looked up before."""
        for run_id in {*refresh, *(run_id for run_id in run_ids if run_id in self._replicas)}:
            self.refresh(run_id)

    def refresh(self, run_id: str) -> None:
        """Read the run's service. Only one read at a time: another one follows if it changes meanwhile."""
        if run_id in self._reading:
            self._read_again.add(run_id)
            return
        self._reading[run_id] = task = asyncio.ensure_future(self._read(run_id))
        task.add_done_callback(lambda _: self._over(run_id))

    def looked_up(self, service: Served) -> None:
        now = frozenset(each.job_id for each in service.replicas)
        self._are_gone(self._replicas.get(service.run_id, frozenset()) - now)
        self._replicas[service.run_id] = now

    def _over(self, run_id: str) -> None:
        del self._reading[run_id]
        if run_id in self._read_again:
            self._read_again.discard(run_id)
            self.refresh(run_id)

    async def _read(self, run_id: str) -> None:
        try:
            if await self._find(run_id) is None:
                self._ended(run_id)
                self._are_gone(self._replicas.pop(run_id, frozenset()))
        except Exception:
            log.exception("reading the service %s failed; the next request reads it again", run_id)

    def _are_gone(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._gone(job_id)
