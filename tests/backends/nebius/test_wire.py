"""Calls over gRPC, and what comes of those that fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import distribution

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.nebius.client import DOMAIN, NebiusClient
from chalicelib.backends.nebius.messages import DESCRIPTORS, descriptors
from chalicelib.domain.instants import SECOND
from chalicelib.errors import BackendError, InvalidCredentials, MissingPermission, QuotaExceeded, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.fakes.procedures import serving_procedures
from tests.backends.fakes.script import Cut, Fault
from tests.backends.nebius.compute import refusal
from tests.backends.nebius.descriptors import messages
from tests.backends.nebius.fake import EXCHANGE, Nebius
from tests.backends.nebius.provider import INSTANCES, InProcess, NebiusProvider, config
from tests.backends.test_nebius import all_offers


@pytest.fixture
def fake() -> Nebius:
    return Nebius(Clock().now)


@pytest.fixture
def served(fake: Nebius) -> Iterator[NebiusBackend]:
    """A backend that finds the fake by its address, as the server's does."""
    with serving_procedures(fake) as address:
        backend = NebiusBackend(config(), now=fake.now, endpoint=f"http://{address}")
        yield backend
        backend.close()


def test_a_machine_is_created_and_described_over_grpc(served: NebiusBackend, fake: Nebius) -> None:
    offer = next(each for each in served.offers() if not each.instance.resources.spot)
    made = list(served.create(request_for(offer)))
    assert [each.id for each in made] == [each.id for each in fake.books.existing("vm")]
    assert served.describe(made).state == "pending"


def test_errors_come_with_their_details(served: NebiusBackend, fake: Nebius) -> None:
    offer = next(each for each in served.offers() if each.instance.name.startswith("gpu-h100-sxm 8"))
    NebiusProvider(fake).quota(offer, 0)
    with pytest.raises(QuotaExceeded, match=r"quota compute\.instance\.gpu\.h100: limit 0, requested 8"):
        list(served.create(request_for(offer)))
    fake.denied.add("compute.v1.InstanceService")
    with pytest.raises(MissingPermission, match=r"allow compute\.v1\.InstanceService\.List in eu-north1"):
        list(served.list_owned())


def test_no_answer_is_an_unknown_outcome(served: NebiusBackend, fake: Nebius) -> None:
    fake.script.faults.append(Fault(f"{INSTANCES}.List", Cut))
    with pytest.raises(Transient, match="UNAVAILABLE"):
        list(served.list_owned())
    fake.script.faults.append(Fault(f"{INSTANCES}.List", lambda body: {"items": [{"metadata": {"id": "x"}}]}))
    assert list(served.list_owned()) == []


@pytest.mark.slow
def test_the_descriptors_are_those_of_the_sdk() -> None:
    assert descriptors() == list(messages()), "run `python -m tests.backends.nebius.descriptors`"


def test_their_licence_goes_with_the_descriptors() -> None:
    licence = distribution("nebius").read_text("licenses/LICENSE") or ""
    assert "Permission is hereby granted" in licence
    assert all(f"# {line}".rstrip() in DESCRIPTORS.read_text().splitlines() for line in licence.strip().splitlines())


def test_nobody_there_is_an_unknown_outcome() -> None:
    backend = NebiusBackend(config(), endpoint="http://127.0.0.1:1")
    with pytest.raises(Transient, match="UNAVAILABLE"):
        backend.check()
    backend.close()


def test_each_service_has_its_host(fake: Nebius) -> None:
    wire = InProcess(fake)
    backend = NebiusBackend(config(), NebiusClient(config().creds, fake.now, wire), fake.now)
    backend.check()
    offer = next(each for each in backend.offers() if "fabrics" in each.backend_data)
    backend.terminate(next(backend.create(request_for(offer))))
    assert {
        service.removeprefix("nebius."): host.removesuffix(f".{DOMAIN}") for service, host in wire.hosts.items()
    } == {
        "billing.v1.CalculatorService": "api.calculator.billing-data-plane",
        "capacity.v1.CapacityBlockGroupService": "capacity-blocks.billing-cpl",
        "capacity.v1.ResourceAdviceService": "capacity-advisor.billing-cpl",
        "compute.v1.DiskService": "compute",
        "compute.v1.GpuClusterService": "compute",
        "compute.v1.InstanceService": "compute",
        "compute.v1.PlatformService": "compute",
        "iam.v1.ProjectService": "cpl.iam",
        "iam.v1.TenantService": "cpl.iam",
        "iam.v1.TokenExchangeService": "tokens.iam",
        "quotas.v1.QuotaAllowanceService": "quota-dispatcher.billing-cpl",
        "vpc.v1.SecurityGroupService": "vpc",
        "vpc.v1.SecurityRuleService": "vpc",
        "vpc.v1.SubnetService": "vpc",
    }


def test_a_token_is_exchanged_once_and_anew_once_it_is_refused(fake: Nebius) -> None:
    clock = Clock()
    fake.now = clock.now
    backend = NebiusBackend(config(), NebiusClient(config().creds, clock.now, InProcess(fake)), clock.now)
    backend.check()
    backend.offers()
    assert len(fake.calls_of(EXCHANGE)) == 1
    clock.passes(11 * 3600)  # 0.9 of its life are over
    backend.check()
    assert len(fake.calls_of(EXCHANGE)) == 2
    fake.tokens.clear()  # taken back
    with pytest.raises(InvalidCredentials, match="refused the credentials"):
        backend.check()
    backend.check()
    assert len(fake.calls_of(EXCHANGE)) == 3


def test_a_key_that_was_removed_is_asked_about_once(fake: Nebius) -> None:
    """Nebius's SDK would go on for a quarter of an hour."""
    fake.public_keys.clear()
    backend = NebiusBackend(config(), NebiusClient(config().creds, fake.now, InProcess(fake)), fake.now)
    with pytest.raises(InvalidCredentials):
        backend.check()
    assert len(fake.calls_of(EXCHANGE)) == 1


def test_a_signature_is_hidden_where_nebius_repeats_it() -> None:
    clock = Clock()
    fake = _Repeating(clock.now)
    backend = NebiusBackend(config(), NebiusClient(config().creds, clock.now, InProcess(fake)), clock.now)
    with pytest.raises(BackendError, match="malformed") as raised:
        backend.check()
    assert fake.seen and fake.seen[0] not in str(raised.value)


class _Repeating(Nebius):
    def _check_signature(self, token: str) -> None:
        self.seen = [token]
        raise refusal("INVALID_ARGUMENT", f"malformed: {token}", "bad_request")


class _Adding(InProcess):
    """Adds up how long the calls may take."""

    total = 0.0

    def __call__(
        self, host: str, path: str, content: bytes, metadata: Sequence[tuple[str, str]], deadline: float
    ) -> bytes:
        self.total += deadline
        return super().__call__(host, path, content, metadata, deadline)


def test_a_first_creation_takes_no_longer_than_half_of_its_time(fake: Nebius) -> None:
    """A gateway's, which makes two security groups."""
    wire = _Adding(fake)
    backend = NebiusBackend(config(), NebiusClient(config().creds, fake.now, wire), fake.now)
    offer = next(each for each in all_offers() if not each.instance.resources.spot)
    list(backend.create(replace(request_for(offer), open_ports=(80, 443))))
    assert wire.total <= backend.facts.create_timeout / SECOND / 2
