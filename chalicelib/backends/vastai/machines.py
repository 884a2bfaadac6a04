"""Instances: created, described, destroyed and listed. Their label, the name of their machine, says whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.regions import outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import CREATED, first_shown, is_fresh, stamp
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.backends.vastai import requests
from chalicelib.backends.vastai.catalog import region_of
from chalicelib.backends.vastai.client import Body, VastAIClient
from chalicelib.backends.vastai.errors import NO_OFFER
from chalicelib.backends.vastai.facts import FACTS, LISTS_LAST
from chalicelib.backends.vastai.states import described
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.errors import BackendError, Bug, Gone, InsufficientCapacity, Transient

INSTANCE = "vm"  # the kind of their handles


class VastAIInstances:
    def __init__(self, client: VastAIClient, now: Now, forget_offers: Callable[[], None]) -> None:
        """`forget_offers`: an offer is no longer there, as a creation has shown."""
        self._client, self._now, self._forget_offers = client, now, forget_offers

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        """Adopts what an earlier call created, found by its label; the oldest if there are two."""
        body = requests.instance(request)
        known = sorted(self._client.labelled(request.name), key=lambda each: int(each["id"]))
        if known:
            yield _handle(known[0])
            return
        answer = self._created(request, body)
        created = datetime.fromtimestamp(self._now() / SECOND, UTC)
        yield Handle(kind=INSTANCE, id=str(answer["new_contract"]), data={CREATED: stamp(created)})
        if not answer.get("success", True):  # it is there, stopped, and its disk is billed
            name = request.offer.instance.name
            raise InsufficientCapacity(
                f"The bid for {name} at Vast.ai was lost at once: {answer.get('msg') or 'too low'}."
            )

    def _created(self, request: CreateRequest, body: Body) -> Body:
        listing, name = request.offer.terms.listing, request.offer.instance.name
        if not listing:
            raise Bug(f"{request.name} has no offer of Vast.ai's")
        try:
            return self._client.create(listing, body, request.offer.region, secrets_of(request))
        except InsufficientCapacity as error:
            self._forget_offers()
            why = "somebody has rented it" if error.provider_code == NO_OFFER else error.message
            raise InsufficientCapacity(f"The offer {listing} of {name} at Vast.ai is gone: {why}.") from None

    # --- describe -----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        known = {str(body["id"]): body for body in self._client.instances()}  # one list for all
        return outcomes(machines, lambda handles: self._machine(handles, known))

    def _machine(self, handles: Sequence[Handle], known: Mapping[str, Body]) -> Machine:
        found = first_shown(handles, known, self._find, self._now(), FACTS.visibility_lag, "Vast.ai")
        if found is not None:
            return described(found[1], self._now())
        names = " or ".join(handle.id for handle in handles) or "of this job"
        raise Gone(f"There is no instance {names}: somebody has destroyed it, or its host has left Vast.ai.")

    def _find(self, handle: Handle) -> Body | None:
        return self._client.instance(handle.id)

    # --- terminate ----------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        """Raises Gone only for what two answers lack: an error about an instance doesn't prove that it is gone."""
        listed = any(str(body["id"]) == handle.id for body in self._client.instances(LISTS_LAST))
        settled = not is_fresh(handle, self._now(), FACTS.visibility_lag)
        if not listed and settled and self._client.instance(handle.id) is None:
            raise Gone(f"There is no instance {handle.id}.")
        try:
            self._client.destroy(handle.id)
        except Gone as error:
            if listed:
                raise Transient(f"{error.message}; the list will show whether it is gone.") from None
            # Neither knows it, and it is too new for that to be proof: it is asked for again.

    # --- what is ours -------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """Instances that end at the same time share a list."""
        one = instance_id is not None
        bodies = self._client.instances(LISTS_LAST) if one else self._client.instances_for_sweep()
        for body in bodies:
            if not region or region_of(body) in ("", region):
                yield from owned(_handle(body), {}, str(body.get("label") or ""), only=instance_id)


def _handle(body: Body) -> Handle:
    """Vast.ai doesn't say of every instance when it began."""
    begun = body.get("start_date")
    data = {CREATED: stamp(datetime.fromtimestamp(float(begun), UTC))} if begun else {}
    return Handle(kind=INSTANCE, id=str(body["id"]), data=data)
