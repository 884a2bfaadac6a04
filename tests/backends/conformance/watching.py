"""Watches: whoever has them reports what a description would show."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, Machine, MachineChange, Watches
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import INSTALL
from tests.backends.conformance.suite import Suite
from tests.harness.conformance import needs

PATIENCE = 120.0  # seconds of a thread that waits for another


class Watching(Suite):
    @needs("watches")
    def test_a_watch_reports_that_a_machine_runs_and_that_it_is_gone(
        self,
        backend: Backend,
        provider: Provider,
        request_one: CreateRequest,
        run: Callable[[Sequence[Handle]], Machine],
        let_time_pass: LetPass,
    ) -> None:
        assert isinstance(backend, Watches)
        reported: queue.Queue[MachineChange] = queue.Queue()
        end = backend.watch(lambda changes: [reported.put(each) for each in changes] and None, INSTALL)
        handles = list(backend.create(request_one))
        let_time_pass(60.0)
        assert reported.get(timeout=PATIENCE) == MachineChange(request_one.instance_id)
        assert backend.describe(handles).state == "running"
        provider.lost(handles)
        while not (change := reported.get(timeout=PATIENCE)).gone:
            pass
        assert change.instance_id == request_one.instance_id
        with pytest.raises(Gone):
            backend.describe(handles)
        end()
        end()
        again = list(backend.create(request_one))
        assert run(again).state == "running", "without a watch it is asked for"
        end = backend.watch(lambda changes: [reported.put(each) for each in changes] and None, INSTALL)
        assert list(backend.list_owned()), "where a watch that begins learns what is there, unless it knows"
        assert reported.get(timeout=PATIENCE) == MachineChange(request_one.instance_id)
        provider.lost(again)
        while not reported.get(timeout=PATIENCE).gone:
            pass
        end()
