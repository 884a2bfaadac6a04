"""Faults of containers that are bought in place of machines."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.backends.spi import Container, CreateRequest, Machine, RegistryLogin
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone, Transient
from tests.backends.planted.port import PortFault, case, noticed_by


@noticed_by("offers_are_containers_where_the_facts_say_so")
class ClaimsTheContraryOfContainers(PortFault):
    @property
    def facts(self) -> BackendFacts:
        facts: BackendFacts = self.inner.facts
        return facts.with_(containers=not facts.containers)


class OtherContainers(PortFault):
    def changed(self, container: Container) -> Container:
        raise NotImplementedError

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        container = request.container and self.changed(request.container)
        yield from self.inner.create(replace(request, container=container))


@noticed_by("a_container_is_as_requested")
class RunsTheImagesOwnCommand(OtherContainers):
    def changed(self, container: Container) -> Container:
        return replace(container, command=())


@noticed_by("a_container_is_as_requested")
class PullsWithoutTheLogin(OtherContainers):
    def changed(self, container: Container) -> Container:
        return replace(container, login=None)


@noticed_by("a_container_is_as_requested")
class PassesItsSettingsAsArguments(OtherContainers):
    def changed(self, container: Container) -> Container:
        return replace(container, command=(*container.command, *container.env.values()), env={})


@noticed_by("a_container_without_a_login_has_none")
class RemembersTheLastLogin(OtherContainers):
    last: RegistryLogin | None = None

    def changed(self, container: Container) -> Container:
        self.last = container.login or self.last
        return replace(container, login=self.last)


TOGETHER = "the_containers_of_a_gang_start_once_the_last_is_created"


@noticed_by(TOGETHER)
class StartsEachOfAGangAlone(OtherContainers):
    def changed(self, container: Container) -> Container:
        return replace(container, gang=container.gang and replace(container.gang, nodes=1))


@noticed_by(TOGETHER)
class TakesAllForOneGang(OtherContainers):
    def changed(self, container: Container) -> Container:
        return replace(container, gang=container.gang and replace(container.gang, token="one"))


ENDED = "a_container_that_has_ended_says_why_and_is_there_until_it_is_terminated"


@noticed_by(case(ENDED, how="exits"), case(ENDED, how="image"))
class DoesntSayWhyItEnded(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        try:
            machine: Machine = self.inner.describe(handles)
        except Gone as gone:
            raise Gone(str(gone)) from None
        return machine


@noticed_by(case(ENDED, how="exits"))
class ShowsNoneThatEnded(PortFault):
    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Any]:
        bodies = {body["id"]: body for body in self.inner.machines()}
        listed = self.inner.list_owned(instance_id, region)
        return (owned for owned in listed if not bodies.get(owned.handle.id, {}).get("exited"))


@noticed_by("nothing_shows_a_registrys_password")
class ShowsTheLogin(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        try:
            yield from self.inner.create(request)
        except Transient as error:
            login = request.container and request.container.login
            raise Transient(f"{error} {login and vars(login)}") from None


@noticed_by("nothing_shows_a_registrys_password")
class ShowsTheEncodedLogin(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        try:
            yield from self.inner.create(request)
        except Transient as error:
            login = request.container and request.container.login
            pair = login and base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
            raise Transient(f"{error} {pair}") from None
