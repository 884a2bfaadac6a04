"""Instances: launched, described, terminated and listed. Their tags say whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import REQUEST_TAG, owned
from chalicelib.backends.kit.regions import outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.kit.visibility import CREATED, Lag, adopted, if_there, stamp
from chalicelib.backends.lambda_cloud import requests
from chalicelib.backends.lambda_cloud.catalog import LambdaCatalog
from chalicelib.backends.lambda_cloud.client import Body, LambdaClient
from chalicelib.backends.lambda_cloud.facts import FACTS, LISTS_LAST
from chalicelib.backends.lambda_cloud.states import ENDED, ENDING, described, why_it_stays
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InsufficientCapacity,
    NotYet,
    Throttled,
    Transient,
    Unfit,
)

INSTANCE = "vm"  # the kind of their handles
# How old a list may be by which a creation knows that there is no instance yet. Longer than the pause after a launch
# that was too early, and much shorter than the time in which nobody else may create it.
ADOPTS_WITHIN = 20 * SECOND
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class LambdaInstances:
    def __init__(self, client: LambdaClient, now: Now, catalog: LambdaCatalog) -> None:
        self._client, self._now, self._catalog = client, now, catalog
        self._lag = Lag("Lambda", FACTS.visibility_lag, now)
        self._lists = LookupCache[Sequence[Body]](now, LISTS_LAST)
        self._before_launch = LookupCache[Sequence[Body]](now, ADOPTS_WITHIN)
        self._ends = LookupCache[None](now, LISTS_LAST)  # asked for since the list, perhaps
        self._keys = LookupCache[set[str]](now, HOUR)

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        """Adopts what an earlier call launched, found by its tag or name: the oldest, and ends any other."""
        launched = stamp(datetime.fromtimestamp(self._now() / SECOND, UTC))
        body = requests.launch(request, launched)
        known = self._known(request)
        if not known:
            self._catalog.check_capacity(request.offer)
            self._need_key()
            for id in self._launched(request, body):
                yield Handle(kind=INSTANCE, id=id, data={CREATED: launched})
            return
        yield from adopted([_handle(body) for body in known], self.terminate)

    def _known(self, request: CreateRequest) -> Sequence[Body]:
        """Those that haven't ended. The oldest first. A list may lack tags."""
        bodies = self._before_launch.get("", self._client.instances)
        alike = (
            each for each in bodies if request.token == _tags(each).get(REQUEST_TAG) or request.name == each.get("name")
        )
        found = [each for each in alike if each["status"] != ENDED]
        return sorted(found, key=lambda body: (_tags(body).get(requests.LAUNCHED, ""), str(body["id"])))

    def _need_key(self) -> None:
        if requests.KEY_NAME in self._keys.get("", self._client.key_names):
            return
        try:
            self._client.add_key(requests.KEY_NAME, NOBODYS_KEY)
        except AlreadyThere as error:  # another server has added it just now
            self._keys.clear()
            raise Transient(error.message) from None
        self._keys.clear()

    def _launched(self, request: CreateRequest, body: Body) -> Sequence[str]:
        name, region, may_exist = request.offer.instance.name, request.offer.region, True
        try:
            ids = self._client.launch(body, region, secrets_of(request))
        except Throttled:  # nothing was launched, so what is known of instances still holds
            may_exist = False
            raise
        except InsufficientCapacity as error:
            self._catalog.forget()
            raise InsufficientCapacity(f"Lambda has no {name} left in {region}: {error.message}") from None
        except Unfit:  # perhaps somebody has deleted the key
            self._keys.clear()
            raise
        finally:
            if may_exist:  # although the answer was lost
                self._lists.clear()
                self._before_launch.clear()
        if not ids:
            raise Transient(f"Lambda's answer to the launch of {request.name} names no instance.")
        return ids

    # --- describe -----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        known = {str(body["id"]): body for body in self._listed()}  # one list for all
        return outcomes(machines, lambda handles: self._machine(handles, known))

    def _machine(self, handles: Sequence[Handle], known: Mapping[str, Body]) -> Machine:
        if found := self._lag.first_shown(handles, known, self._found):
            return described(found[1])
        raise self._lag.gone("instance", handles)

    def _found(self, handle: Handle) -> Body | None:
        return if_there(lambda: self._client.instance(handle.id))

    # --- terminate ----------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        """One that is ending isn't asked to end again: Lambda answers that with an error of no meaning."""
        body = next((each for each in self._listed() if each["id"] == handle.id), None)
        if body is None and not self._lag.is_fresh(handle):
            body = self._client.instance(handle.id)
        if body is not None and body["status"] == ENDED:
            raise Gone(f"The instance {handle.id} is terminated.")
        if body is not None and body["status"] == ENDING:
            return
        if body is not None and (why := why_it_stays(body)):
            raise NotYet(f"Lambda doesn't let the instance {handle.id} be terminated now: {why}.")
        try:
            self._ends.get(handle.id, lambda: self._client.terminate(handle.id))
        except Gone:
            raise Transient(f"Lambda doesn't show {handle.id} yet, or no longer.") from None

    # --- what is ours -------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """Instances that end at the same time share a list. Nodes of clusters that people have booked are listed, too,
        and are nobody's here."""
        for body in list(self._client.instances() if instance_id is None else self._listed()):
            if body["status"] != ENDED and region in ("", body["region"]["name"]):
                yield from owned(_handle(body), _tags(body), str(body.get("name") or ""), only=instance_id)

    def _listed(self) -> Sequence[Body]:
        return self._lists.get("", self._client.instances)


def _tags(body: Body) -> Mapping[str, str]:
    return {str(each["key"]): str(each["value"]) for each in body.get("tags") or ()}


def _handle(body: Body) -> Handle:
    launched = _tags(body).get(requests.LAUNCHED, "")
    return Handle(kind=INSTANCE, id=str(body["id"]), data={CREATED: launched} if _TIME.fullmatch(launched) else {})
