"""Containers that are bought in place of machines. What holds for machines holds for them, so every other case is
asked of them, too, where a provider sells nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import pytest

from chalicelib.backends.spi import Backend, Container, CreateRequest, Machine, RegistryLogin
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import ContainerFailed, Gone
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import BOOT_TOKEN, member_for, request_for
from tests.backends.conformance.suite import ENOUGH, Suite, cut_short, offers_of
from tests.harness.conformance import needs

USER, PASSWORD = "team", "pa55-of-the-registry"
SECRETS = PASSWORD, base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(), BOOT_TOKEN


class ContainerConformance(Suite):
    @pytest.fixture
    def contained(self, offers: Sequence[Offer]) -> CreateRequest:
        """With a login, and with all that its offer grants, but for volumes."""
        found = [offer for offer in offers if offer.is_container and not offer.instance.resources.spot]
        request = request_for(min(found, key=lambda offer: offer.price))
        grants = request.offer.terms.grants
        container = replace(
            _of(request),
            login=RegistryLogin(USER, PASSWORD),
            user="1000:7" if "user" in grants else "",
            privileged="privileged" in grants,
            shm_mib=2048 if "shm_size" in grants else 0,
        )
        return replace(request, container=container)

    @needs("containers")
    def test_a_container_is_as_requested(
        self,
        backend: Backend,
        contained: CreateRequest,
        provider: Provider,
        run: Callable[[Sequence[Handle]], Machine],
    ) -> None:
        handles = list(backend.create(contained))
        run(handles)
        got, wanted = provider.container(handles), _of(contained)
        assert got.login is not None and vars(got.login) == vars(wanted.login)
        assert replace(got, login=None) == replace(wanted, login=None)

    @needs("containers")
    def test_a_container_without_a_login_has_none(
        self, backend: Backend, contained: CreateRequest, provider: Provider
    ) -> None:
        """Nor that of the one before it."""
        list(backend.create(contained))
        other = request_for(contained.offer, "other")
        assert provider.container(list(backend.create(other))).login is None

    @needs("containers")
    @pytest.mark.parametrize("how", ["image", "exits"])
    def test_a_container_that_has_ended_says_why_and_is_there_until_it_is_terminated(
        self,
        backend: Backend,
        contained: CreateRequest,
        provider: Provider,
        let_time_pass: LetPass,
        end: Callable[[Sequence[Handle]], None],
        pass_lag: Callable[[], None],
        how: Literal["image", "exits"],
    ) -> None:
        handles = list(backend.create(contained))
        pass_lag()
        provider.container_ends(handles, how)
        for _ in range(ENOUGH):
            try:
                backend.describe(handles)
            except Gone as gone:
                assert gone.refused is ContainerFailed and str(gone)
                break
            let_time_pass(5.0)
        else:
            pytest.fail("nobody hears that the container has ended")
        assert {owned.handle.id for owned in backend.list_owned(contained.instance_id)} == provider.existing()
        end(handles)
        assert provider.existing() == set()

    @needs("containers", "multinode")
    def test_the_containers_of_a_gang_start_once_the_last_is_created(
        self,
        backend: Backend,
        provider: Provider,
        let_time_pass: LetPass,
        run: Callable[[Sequence[Handle]], Machine],
        end: Callable[[Sequence[Handle]], None],
    ) -> None:
        """However often its creation is cut short, and whatever other gangs there are. They have addresses then."""
        offer = next(each for each in offers_of(backend, 3) if "multinode" in each.terms.grants)
        first, second, last = (member_for(offer, "train", rank) for rank in range(3))
        other = member_for(offer, "other", 2)
        made = [list(backend.create(each)) for each in (other, first, second)]
        cut_short(backend, last, 1)
        let_time_pass(120.0)
        assert [backend.describe(handles).state for handles in made] == ["pending"] * 3, "one is still missing"
        assert list(backend.create(first)) == made[1]
        made.append(list(backend.create(last)))
        assert all({run(handles).internal_ip for handles in made[1:]})
        assert len({run(handles).internal_ip for handles in made[1:]}) == 3
        assert backend.describe(made[0]).state == "pending"
        for handles in made:
            end(handles)
        assert provider.existing() == set()

    @needs("containers")
    def test_nothing_shows_a_registrys_password(
        self,
        backend: Backend,
        contained: CreateRequest,
        provider: Provider,
        pass_lag: Callable[[], None],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        shown = [handle.model_dump_json() for handle in backend.create(contained)]
        pass_lag()
        shown += [repr(owned) for owned in backend.list_owned()] + [repr(contained), caplog.text]
        provider.fail("create", "Transient")
        with pytest.raises(Exception) as failed:  # whatever it is, it shows none
            list(backend.create(replace(contained, token="another", name=f"{contained.name}-2")))
        shown += [str(failed.value), repr(failed.value)]
        assert not [text for text in shown for secret in SECRETS if secret in text]


def _of(request: CreateRequest) -> Container:
    assert request.container is not None
    return request.container
