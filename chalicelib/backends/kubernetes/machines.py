"""Pods: created, described, deleted and listed.

A pod's name follows from the request's token, so a repeated call finds the pod that the first one created. A handle has
the pod's `uid`, so nothing is done to another pod that got the same name later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.regions import by_region, everywhere, outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kubernetes import pods
from chalicelib.backends.kubernetes.client import MERGE, Clusters
from chalicelib.backends.kubernetes.gangs import Gangs, explained
from chalicelib.backends.kubernetes.gateways import LOAD_BALANCER, SERVICE, Services, gateways_of, has_services
from chalicelib.backends.kubernetes.identities import Identities
from chalicelib.backends.kubernetes.labels import tags_of
from chalicelib.backends.kubernetes.objects import POD, Objects
from chalicelib.backends.kubernetes.room import Room
from chalicelib.backends.kubernetes.states import described
from chalicelib.backends.kubernetes.watches import INSTANCE, ContextWatches
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InvalidCredentials,
    MissingPermission,
    Throttled,
    Transient,
    Unfit,
)

log = logging.getLogger(__name__)

Body = dict[str, Any]
SINGLY = 3  # pods that are described one by one; for more of them the namespace is listed
LEVEL = "pod-security.kubernetes.io/enforce"


class Pods(Objects):
    def __init__(self, clusters: Clusters, now: Now, watches: ContextWatches, identities: Identities) -> None:
        super().__init__(clusters)
        self._now, self._watches, self._identities = now, watches, identities
        self._gangs, self._services = Gangs(clusters, now), Services(clusters, now, identities)
        self._levels = LookupCache[str](now)

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        region = request.offer.region
        found = self._placed(request)
        yield self._identities.handle(found, region, POD)
        self._open(request, found)
        gang = request.container and request.container.gang
        if gang and pods.waits(found, pods.GANG_GATE):
            yield self._identities.handle(found, region, POD)  # each of these steps has its own time
            if gang.rank == 0:
                self._gangs.add_service(request, gang, found)
                yield self._identities.handle(found, region, POD)
            self._gangs.start(region, gang)

    def create_gateway(self, request: CreateRequest) -> Iterator[Handle]:
        """The Service is there before the pod may start, so its address is being made meanwhile."""
        region = request.offer.region
        gateways = gateways_of(self._clusters.cluster(region), self.level(region))
        if request.container is not None and gateways.image is not None:
            request = replace(request, container=replace(request.container, image=gateways.image))
        found = self._placed(request)
        yield self._identities.handle(found, region, POD)
        if found["metadata"]["annotations"].get(pods.EXPOSED) == LOAD_BALANCER:  # as it was when it was created
            yield self._services.create(request, found)
        self._open(request, found)

    def _placed(self, request: CreateRequest) -> Body:
        """The pod, behind its gate if it is new."""
        self._watches.pods(request.offer.region)  # begins, if it hasn't
        self._identities.data(request.offer.region)  # before anything exists that no handle could be given for
        return self._created(request)

    def _open(self, request: CreateRequest, found: Body) -> None:
        """Opens the pod's gate, once its secret is there."""
        if pods.waits(found):
            self._add_secret(request, found)
            gate = {"spec": {"schedulingGates": [{"name": pods.GATE, "$patch": "delete"}]}}
            self._call(request.offer.region, "PATCH", "pods", _named(found), body=gate, content_type=MERGE)

    def _adopted(self, request: CreateRequest) -> Body | None:
        """What an earlier call created."""
        try:
            found = self._call(request.offer.region, "GET", "pods", pods.pod_name(request))
        except Gone:
            return None
        if not pods.is_of(found, request):
            raise AlreadyThere(
                f"The name {_named(found)} is taken in {request.offer.region} by a pod that dstack didn't create."
            )
        return found

    def _created(self, request: CreateRequest) -> Body:
        region = request.offer.region
        body = pods.pod(request, self._clusters.cluster(region), self.level(region))
        try:
            return self._call(region, "POST", "pods", body=body, meanings={"NotFound": Unfit})
        except (InvalidCredentials, Throttled, Transient):
            raise
        except BackendError:  # also for a quota, which is checked before the name: an earlier call's pod may be there
            found = self._adopted(request)
            if found is None:
                raise
            return found

    def _add_secret(self, request: CreateRequest, owner: Body) -> None:
        """An earlier one may belong to an earlier pod, and go with that. As long as the gate is closed, nobody needs
        it, so it can be replaced."""
        region, body, hidden = request.offer.region, pods.secret(request, owner), secrets_of(request)
        for attempt in ("first", "second"):
            try:
                self._call(region, "POST", "secrets", body=body, secrets=(*hidden, *body["data"].values()))
                return
            except AlreadyThere:
                if attempt == "second":
                    raise
                now = self._adopted(request)
                if now is None or not pods.waits(now):  # a call at the same time has opened it
                    return
                self._delete(region, "secrets", _named(body), None)

    def level(self, region: str) -> str:
        """What the namespace demands of pods; empty if it doesn't say, or mustn't be asked."""

        def ask() -> str:
            namespace = self._clusters.cluster(region).namespace
            try:
                body = self._clusters.call(region, "GET", ("api", "v1", "namespaces", namespace))
            except (MissingPermission, Gone):
                return ""
            return str(body["metadata"].get("labels", {}).get(LEVEL, ""))

        return self._levels.get(region, ask)

    # --- describe -----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return by_region(machines, self._region_of, self._in_region)

    def _in_region(self, region: str, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        """As a watch has it, which may be late: so the server is asked about what seems to be gone, and about what it
        hasn't shown."""
        seen = self._watches.pods(region)
        found = None if seen is None else outcomes(machines, lambda handles: self._machine(region, handles, seen))
        if found is None:
            return self._described_now(region, machines)
        unsure = [number for number, each in enumerate(found) if isinstance(each, Gone)]
        for number, answer in zip(
            unsure, self._described_now(region, [machines[each] for each in unsure]), strict=True
        ):
            found[number] = answer
        return found

    def _described_now(self, region: str, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        namespace, known = self._clusters.cluster(region).namespace, dict[str, Body]()
        room = cache(lambda: self._gangs.room(region))
        if len(machines) > SINGLY:
            known = {body["metadata"]["name"]: body for body in self._listed(region, INSTANCE)}

        def ask(handles: Sequence[Handle]) -> Machine:
            is_listed = all(handle.data.get("namespace") == namespace for handle in handles)
            listed = known if len(machines) > SINGLY and is_listed else self._found(region, handles)
            return self._machine(region, handles, listed, room)

        return outcomes(machines, ask)

    def _found(self, region: str, handles: Sequence[Handle]) -> Mapping[str, Body]:
        found = {}
        for handle in handles:
            if handle.kind != POD:
                continue
            try:
                found[handle.id] = self._call(region, "GET", "pods", handle.id, namespace=handle.data.get("namespace"))
            except Gone:
                continue
        return found

    def _machine(
        self, region: str, handles: Sequence[Handle], known: Mapping[str, Body], room: Callable[[], Room] | None = None
    ) -> Machine:
        """`room`: to say why there is none for a node of a task; None: that isn't needed."""
        for handle in handles:
            body = known.get(handle.id)
            if body is not None and body["metadata"]["uid"] == handle.data.get("uid"):
                try:
                    machine = described(body, self._now(), partial(self._events, region, body))
                except Gone as gone:
                    raise (gone if room is None else explained(body, gone, room)) from None
                return self._services.with_public_address(region, body, handles, machine)
        for handle in handles:
            self._identities.check(region, handle)
        names = " or ".join(handle.id for handle in handles) or "without a handle"
        raise Gone(f"There is no pod {names} in {region}: somebody has deleted it, or its node is gone.")

    # --- terminate ----------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        region = handle.data.get("region") or self._clusters.regions[0]
        kind = "services" if handle.kind == SERVICE else "pods"
        with self._identities.checked(region, handle):
            self._delete(region, kind, handle.id, handle.data.get("uid"), handle.data.get("namespace"))

    # --- what is ours -------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        wanted = INSTANCE if instance_id is None else f"{INSTANCE}={instance_id}"
        regions = (region,) if region else self._clusters.regions
        for found in everywhere(regions, lambda there: [*self._handles(there, wanted)]):
            for handle, body in found:
                yield from owned(handle, tags_of(body))

    def _handles(self, region: str, selector: str) -> Iterator[tuple[Handle, Body]]:
        for body in self._listed(region, selector):
            self._watches.pods(region)  # begins, if it hasn't
            yield self._identities.handle(body, region, POD), body
        if not has_services(self._clusters.cluster(region)):
            return
        try:
            services = list(self._listed(region, selector, "services"))
        except MissingPermission as error:  # they belong to their pods and go with them, if later
            log.warning("the services of gateways in %s can't be listed: %s", region, error)
            return
        for body in services:
            if body["spec"]["type"] == LOAD_BALANCER:  # others go with their pods at once
                yield self._identities.handle(body, region, SERVICE), body

    def _region_of(self, handles: Sequence[Handle]) -> str:
        return next((handle.data["region"] for handle in handles if "region" in handle.data), self._clusters.regions[0])


def _named(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["name"])
