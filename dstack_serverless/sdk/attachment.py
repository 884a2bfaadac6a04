"""An attachment to a job while a block of a program runs: its ports are ports of this machine.

The command line's attachment does the work. A thread tends it, so that a connection that is lost is made again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Self

from chalicelib.errors import Refused
from cli.connection.polling import PollPauses
from dstack_serverless.sdk.configurations import session_of
from dstack_serverless.sdk.core import Core
from dstack_serverless.sdk.errors import FINISHED, RunEnded, WaitedTooLong


class Attachment:
    """`with client.runs.attach("web") as attached:`, or `async with`. Meanwhile `ssh RUN` logs in to the job, too."""

    def __init__(
        self,
        core: Core,
        name: str,
        ports: Mapping[int, int],
        *,
        replica: int | None,
        job: int,
        identity: str | None,
        timeout: float | None,
    ) -> None:
        self._core, self._name, self._job, self._timeout = core, name, (replica, job), timeout
        self._maps = tuple(f"{local}:{remote}" for remote, local in ports.items())
        self._identity = identity
        self._changed, self._leaving = threading.Condition(), threading.Event()
        self._thread: threading.Thread | None = None
        self._forwarded: dict[int, int] | None = None
        self._failure: BaseException | None = None

    @property
    def ports(self) -> dict[int, int]:
        """The local port of each port of the job. Raises what ended the attachment, if something has."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            assert self._forwarded is not None, "only inside of the block"
            return self._forwarded

    def __enter__(self) -> Self:
        """Returns once the ports are forwarded, which takes until the job runs."""
        self._thread = threading.Thread(target=self._tend, name=f"attachment to {self._name}", daemon=True)
        self._thread.start()
        try:
            with self._changed:
                in_time = self._changed.wait_for(self._decided, self._timeout)
        except BaseException:  # such as Ctrl-C
            self.close()
            raise
        if self._forwarded is not None and self._failure is None and not self._leaving.is_set():
            return self
        self.close()
        if self._failure is not None:
            raise self._failure
        if in_time:
            raise Refused(f"The attachment to the run {self._name} was closed before it was made.")
        raise WaitedTooLong(f"The run {self._name} could not be attached to in {self._timeout:g} s.")

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            return await asyncio.to_thread(self.__enter__)
        except BaseException:  # the caller gave up: the thread that waits is to end, too
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        self._leave()
        if self._thread is not None:
            self._thread.join()

    def _decided(self) -> bool:
        return self._forwarded is not None or self._failure is not None or self._leaving.is_set()

    def _leave(self) -> None:
        self._leaving.set()
        with self._changed:
            self._changed.notify_all()

    def _tend(self) -> None:
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            self._tell(failure=error)

    def _keep(self) -> None:
        from cli.applying.follow import job_of
        from cli.ssh.attachment import AttachOptions, JobAttachment

        session, pauses = session_of(self._core), PollPauses()
        wishes = AttachOptions(self._identity, maps=self._maps)
        attachment = JobAttachment(session, self._name, wishes, needed=True)
        try:
            while not self._leaving.is_set():
                run: Any = session.get_run(self._name)
                if run["status"] in FINISHED:
                    raise RunEnded(f"The run {self._name} {run['status']}.", run)
                attachment.tend(run, job_of(run, *self._job))
                if (forwarded := attachment.forwarded) is not None:
                    self._tell(forwarded=forwarded)
                self._leaving.wait(pauses.after((run["status"], forwarded)))
        finally:
            attachment.close()
            session.client.close()

    def _tell(self, *, forwarded: dict[int, int] | None = None, failure: BaseException | None = None) -> None:
        with self._changed:
            self._forwarded = self._forwarded if forwarded is None else forwarded  # a job may have no ports
            self._failure = failure
            self._changed.notify_all()
