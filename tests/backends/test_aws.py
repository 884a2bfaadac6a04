"""Amazon Web Services: the whole suite, over an AWS that lies as AWS does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pytest

from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.spi import Backend
from chalicelib.domain.offers import Offer
from tests.backends.aws.account import Account, Fault, Script
from tests.backends.aws.provider import AwsProvider, clients, config
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import Provider
from tests.backends.conformance.suite import Suite
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults


@cache
def usual_offers() -> Sequence[Offer]:
    account = Account(Clock().now)
    found = AwsBackend(config(), clients(account), Clock().now).offers()
    account.close()
    return found


class Aws(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def account(self, clock: Clock) -> Iterator[Account]:
        account = Account(clock.now)
        yield account
        account.close()

    @pytest.fixture
    def backend(self, account: Account, clock: Clock) -> Backend:
        return AwsBackend(config(), clients(account), clock.now)

    @pytest.fixture
    def provider(self, account: Account) -> Provider:
        return AwsProvider(account)

    @pytest.fixture
    def broken(self, clock: Clock) -> Iterator[Backend]:
        account = Account(clock.now, Script(faults=[Fault("*", "InternalError", times=1_000, status=500)]))
        yield AwsBackend(config(), clients(account), clock.now)
        account.close()

    @pytest.fixture
    def offers(self) -> Sequence[Offer]:
        return usual_offers()

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> Callable[[float], None]:
        return clock.passes


class TestAws(Aws, BackendConformance):
    backend_name = "aws"


class TestFaults(PlantedFaults, Aws):
    sound, sound_broken = Aws.backend, Aws.broken
    pairs = EACH_CASE_ONCE
