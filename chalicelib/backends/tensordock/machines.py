"""Instances: created, described, deleted and listed. Their names say whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.dated_names import DatedName, dated, read
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.regions import outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import CREATED, Lag, adopted, if_there
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.backends.tensordock import requests
from chalicelib.backends.tensordock.catalog import TensorDockCatalog
from chalicelib.backends.tensordock.client import Body, TensorDockClient
from chalicelib.backends.tensordock.facts import LAG, LISTS_LAST
from chalicelib.backends.tensordock.states import ENDED, ENDING, UP, described
from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, Transient

INSTANCE = "vm"  # the kind of their handles


class TensorDockInstances:
    def __init__(self, client: TensorDockClient, now: Now, catalog: TensorDockCatalog) -> None:
        self._client, self._now, self._catalog = client, now, catalog
        self._lag = Lag("TensorDock", LAG, now)
        self._lists = LookupCache[Sequence[Body]](now, LISTS_LAST)
        self._ends = LookupCache[None](now, LISTS_LAST)  # asked for since the list, perhaps
        self._addresses: dict[str, str] = {}  # lists may lack them

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        """Adopts what an earlier call created, found by its name: the oldest, and ends any other."""
        there = [(body, name) for body, name in self._ours(self._client.instances()) if name.owner == request.name]
        known = sorted((_handle(body["id"], name) for body, name in there), key=lambda handle: handle.data[CREATED])
        if not known:
            yield self._created(request)
            return
        yield from adopted(known, self.terminate)

    def _created(self, request: CreateRequest) -> Handle:
        offer, now = request.offer, self._now()
        name = dated(request.name, now, offer.region)
        self._catalog.check_room(offer, requests.disk_gb(request))
        body = requests.instance(request, name)
        try:
            made = self._client.create(body, offer.region, secrets_of(request))
        except InsufficientCapacity as error:
            self._catalog.forget()
            kind = offer.instance.name
            raise InsufficientCapacity(f"TensorDock has no {kind} left in {offer.region}: {error.message}") from None
        finally:  # it may have been created, although the answer was lost
            self._lists.clear()
        found = read(name, now)
        assert found is not None
        return _handle(made, found)

    # --- describe -----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        known = {each["id"]: each for each in self._listed()}  # one list for all
        self._addresses = {id: address for id, address in self._addresses.items() if id in known}
        return outcomes(machines, lambda handles: self._machine(handles, known))

    def _machine(self, handles: Sequence[Handle], known: Mapping[str, Body]) -> Machine:
        if found := self._lag.first_shown(handles, known, self._found):
            return described(found[1], self._address(found[1]))
        raise self._lag.gone("instance", handles)

    def _address(self, body: Body) -> str:
        """Looked up by itself until it is known."""
        found = body["ip"] or self._addresses.get(body["id"], "")
        if not found and body["status"] in UP:
            with suppress(Gone):  # the list shows it, so it is there
                found = self._client.instance(body["id"])["ip"]
        if found:
            self._addresses[body["id"]] = found
        return str(found)

    def _found(self, handle: Handle) -> Body | None:
        return if_there(lambda: self._client.instance(handle.id))

    # --- terminate ----------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        """Raises Gone only for what two answers lack."""
        body = next((each for each in self._listed() if each["id"] == handle.id), None)
        if body is None and not self._lag.is_fresh(handle):
            body = self._client.instance(handle.id)
        if body is not None and body["status"] in ENDED:
            raise Gone(f"The instance {handle.id} is {body['status']}.")
        if body is not None and body["status"] == ENDING:
            return
        try:
            self._ends.get(handle.id, lambda: self._client.delete(handle.id))
        except Gone:
            raise Transient(f"TensorDock doesn't show {handle.id} yet, or no longer.") from None

    # --- what is ours -------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        bodies = self._client.instances() if instance_id is None else self._listed()
        for body, name in list(self._ours(bodies)):
            if name.may_be_in(region):
                yield from owned(_handle(body["id"], name), {}, name.owner, only=instance_id)

    def _ours(self, bodies: Sequence[Body]) -> Iterator[tuple[Body, DatedName]]:
        """Those with a name of ours that haven't ended."""
        named = ((body, read(body["name"], self._now())) for body in bodies if body["status"] not in ENDED)
        return ((body, name) for body, name in named if name is not None)

    def _listed(self) -> Sequence[Body]:
        return self._lists.get("", self._client.instances)


def _handle(id: str, name: DatedName) -> Handle:
    return Handle(kind=INSTANCE, id=id, data={CREATED: name.created})
