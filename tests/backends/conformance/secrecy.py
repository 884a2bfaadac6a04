"""Credentials and boot tokens are shown nowhere."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.errors import BackendError
from tests.backends.conformance.failing import CALLS, KINDS
from tests.backends.conformance.provider import Call, Fails, Provider
from tests.backends.conformance.requests import BOOT_TOKEN, unsold
from tests.backends.conformance.suite import Suite


class Secrecy(Suite):
    def test_a_backend_doesnt_show_its_secrets(self, backend: Backend, provider: Provider) -> None:
        shown = repr(backend) + str(backend)
        assert not [secret for secret in provider.secrets if secret in shown]

    def test_handles_and_what_is_listed_have_none(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: Callable[[], None]
    ) -> None:
        shown = [handle.model_dump_json() for handle in backend.create(request_one)]
        pass_lag()
        shown += [repr(owned) for owned in backend.list_owned()]
        for secret in filter(None, (*provider.secrets, BOOT_TOKEN, request_one.user_data)):
            assert not [text for text in shown if secret in text]

    @pytest.mark.parametrize("error", KINDS)
    def test_failures_show_none(
        self,
        backend: Backend,
        request_one: CreateRequest,
        provider: Provider,
        pass_lag: Callable[[], None],
        error: Fails,
    ) -> None:
        made = list(backend.create(request_one))
        pass_lag()
        for call, make in CALLS.items():
            provider.fail(call, error)
            with pytest.raises(BackendError) as raised:
                make(backend, request_one, made)
            self._shows_none(raised.value, provider)

    def test_what_cant_be_sent_at_all_shows_none(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        wrong = "\x00 no such type" + "x" * 5000
        with pytest.raises(BackendError) as raised:
            list(backend.create(replace(request_one, offer=unsold(request_one.offer, wrong))))
        self._shows_none(raised.value, provider)

    def test_logs_have_none(
        self,
        backend: Backend,
        request_one: CreateRequest,
        provider: Provider,
        pass_lag: Callable[[], None],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """At the level that a server logs at."""
        calls: tuple[Call, ...] = ("create", "describe", "list", "terminate")
        with caplog.at_level(logging.INFO):
            made = list(backend.create(request_one))
            pass_lag()
            for call in calls:
                CALLS[call](backend, request_one, made)
        for secret in (*provider.secrets, BOOT_TOKEN):
            assert secret not in caplog.text

    @staticmethod
    def _shows_none(error: BackendError, provider: Provider) -> None:
        shown = f"{error} {error!r} {error.hint} {''.join(traceback.format_exception(error))}"
        assert not [secret for secret in (*provider.secrets, BOOT_TOKEN) if secret in shown]
