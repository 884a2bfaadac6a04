"""Pods, and the logins with which their private images are pulled: created, described, deleted and listed.

Both bear the name of their instance, which says whose they are. A login belongs to one pod and ends with it: Runpod
never shows its password again, so nobody could tell whether an older one is still right, and it can't be deleted while
a pod uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.regions import outcomes
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import CREATED, check_settled, is_fresh, stamp
from chalicelib.backends.runpod import pods, spot
from chalicelib.backends.runpod.catalog import COMMUNITY
from chalicelib.backends.runpod.client import Body, Client, Line
from chalicelib.backends.runpod.clusters import CLAIM, CLUSTER, Made, RunpodClusters, id_of, is_node, node_of
from chalicelib.backends.runpod.facts import FACTS, LISTS_LAST
from chalicelib.backends.runpod.states import LookUps, described, other_than_bought
from chalicelib.backends.spi import CreateRequest, CreateResult, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, Micros, from_iso, iso
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, NotYet, QuotaExceeded, Transient, Unfit

log = logging.getLogger(__name__)

POD, LOGIN = "vm", "registry"  # kinds of handles
ENDED = "TERMINATED"
AWAITED = 10 * MINUTE  # in which a node's pod shows, or not at all
ABOUT_ONE = (InsufficientCapacity, QuotaExceeded, Unfit)  # of several requests, whose offers may differ
MOST_LOGS = 3  # that one call reads: each takes a moment, because a log has no end


class RunpodPods:
    def __init__(self, client: Client, now: Now, forget_offers: Callable[[], None]) -> None:
        """`forget_offers`: they were others, as a creation has shown."""
        self._client, self._now, self._forget_offers = client, now, forget_offers
        self._clusters = RunpodClusters(client, now, forget_offers)
        self._lists = LookupCache[Sequence[Body]](now, LISTS_LAST)
        self._changes = LookupCache[Mapping[str, str]](now, LISTS_LAST)
        self._logs: dict[str, tuple[Micros, Sequence[Line]]] = {}  # when each pod's was read

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        """Adopts what an earlier call created, found by its name; the oldest if there are two."""
        if pods.container_of(request).gang is not None:
            yield from self._create_node(request)
            return
        login = ""
        if pods.container_of(request).login is not None:
            login = self._login(request)
            yield Handle(kind=LOGIN, id=login)
        made = self._named(request.name)
        pod = made[0] if made else self._created(request, login)
        yield _handle(pod)
        if difference := other_than_bought(pod):  # what isn't known yet, its description judges
            raise InsufficientCapacity(difference)

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        """One after the other, so that the last of a gang finds all others: no two calls create its cluster."""
        last = {gang.token: each.token for each in requests if (gang := pods.container_of(each).gang) is not None}
        made: Made = {}
        none = True
        for request in requests:
            gang = pods.container_of(request).gang
            try:
                for handle in (
                    self.create(request)
                    if gang is None
                    else self._create_node(request, made, is_last=last[gang.token] == request.token)
                ):
                    none = False
                    yield CreateResult(request.token, handle)
            except BackendError as error:
                if none and not isinstance(error, ABOUT_ONE):  # the others are no better off
                    raise
                yield CreateResult(request.token, error=error)

    def _create_node(
        self, request: CreateRequest, made: Made | None = None, *, is_last: bool = True
    ) -> Iterator[Handle]:
        try:
            yield from self._clusters.create(request, made, is_last=is_last)
        finally:
            self._lists.clear()

    def _named(self, name: str) -> Sequence[Body]:
        """The oldest first."""
        return sorted(
            (body for body in self._listed() if _is_single(body) and body["name"] == name),
            key=lambda body: (str(body["createdAt"]), str(body["id"])),
        )

    def _login(self, request: CreateRequest) -> str:
        login = pods.container_of(request).login
        assert login is not None
        known = sorted(str(each["id"]) for each in self._logins() if each["name"] == request.name)
        if known:
            return known[0]
        body = {"name": request.name, "username": login.username, "password": login.password}
        try:
            made = self._client.call("POST", "registries", body=body, secrets=secrets_of(request))
        finally:
            self._lists.clear()
        return str(made["id"])

    def _created(self, request: CreateRequest, login: str) -> Body:
        name, has = request.offer.instance.name, request.offer.instance.resources
        try:
            return self._rented(request, login) if has.spot else self._bought(request, login)
        except InsufficientCapacity as error:
            self._forget_offers()
            what = f"{name} for this bid" if has.spot else name
            raise InsufficientCapacity(f"Runpod has no {what} left: {error.message}") from None
        finally:  # it may have been made, although the answer was lost
            self._lists.clear()

    def _bought(self, request: CreateRequest, login: str) -> Body:
        made: Body = self._client.call(
            "POST",
            "pods",
            body=pods.pod(request, login),
            region=request.offer.region,
            secrets=secrets_of(request),
            meanings={404: Unfit},
        )
        return made

    def _rented(self, request: CreateRequest, login: str) -> Body:
        body = pods.spot_pod(request, login)
        made = spot.rent(self._client, body, region=request.offer.region, secrets=secrets_of(request))
        if made:
            return {"id": made, "createdAt": iso(self._now())}
        if found := self._named(request.name):
            return found[0]
        raise InsufficientCapacity("its answer names no pod")

    # --- describe -----------------------------------------------------------------------------------------------------

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        known = {id_of(body): body for body in self._listed() if body["status"] != ENDED}  # one list for all
        there = {str(body["id"]) for body in known.values()}
        self._logs = {pod: read for pod, read in self._logs.items() if pod in there}
        unread = iter(range(MOST_LOGS))
        return outcomes(machines, lambda handles: self._machine(handles, known, unread))

    def _machine(self, handles: Sequence[Handle], known: Mapping[str, Body], unread: Iterator[int]) -> Machine:
        wanted = [handle for handle in handles if handle.kind == POD]
        for handle in wanted:
            if (body := known.get(handle.id)) is not None:
                return described(body, self._now(), self._look_ups(str(body["id"]), unread))
        if any(is_node(handle) and handle.id in self._awaited() for handle in wanted):
            return Machine("pending")
        check_settled(wanted, self._now(), FACTS.visibility_lag, "Runpod")
        for handle in wanted:  # a list may lack some
            if not is_node(handle) and (body := self._found(handle.id)) is not None:
                return described(body, self._now(), self._look_ups(handle.id, unread))
        names = " or ".join(handle.id for handle in wanted) or "of this job"
        raise Gone(f"There is no pod {names}: somebody has terminated it, or Runpod has taken it back.")

    def _awaited(self) -> set[str]:
        """The nodes of tasks whose pods may be still to come."""
        known = (node for body in self._templates() if (node := node_of(body)) is not None)
        return {node.id for node in known if self._now() - from_iso(node.made_at) < AWAITED}

    def _templates(self) -> Sequence[Body]:
        return self._lists.get("templates", lambda: list(self._clusters.templates()))

    def _found(self, pod: str) -> Body | None:
        try:
            found: Body = self._client.call("GET", "pods", pod)
        except Gone:
            return None
        return None if found["status"] == ENDED else found

    def _look_ups(self, pod: str, unread: Iterator[int]) -> LookUps:
        return LookUps(partial(self._log, pod, unread), partial(self._change, pod))

    def _change(self, pod: str) -> str:
        """One list says it of all pods. Empty if the older API doesn't answer."""
        try:
            return self._changes.get("", lambda: spot.changes(self._client)).get(pod, "")
        except BackendError as error:
            log.warning("nothing says who has stopped the pod %s: %s", pod, error)
            return ""

    def _log(self, pod: str, unread: Iterator[int]) -> Sequence[Line] | None:
        """Read once a minute, as long as `unread` lasts; None: not yet. One that can't be read proves nothing."""
        at, lines = self._logs.get(pod, (None, None))
        if (at is not None and self._now() - at < MINUTE) or next(unread, None) is None:
            return lines
        try:
            lines = self._client.log(pod)
        except BackendError as error:
            log.warning("the log of the pod %s can't be read: %s", pod, error)
            lines = ()
        self._logs[pod] = self._now(), lines
        return lines

    # --- terminate ----------------------------------------------------------------------------------------------------

    def terminate(self, handle: Handle) -> None:
        if handle.kind == LOGIN:
            self._client.call("DELETE", "registries", handle.id, meanings={400: NotYet, 409: NotYet})
            return
        if handle.kind == CLAIM:
            self._clusters.terminate_claim(handle)
            return
        if is_node(handle) or handle.kind == CLUSTER:
            every = self._lists.get("every pod", lambda: list(self._listed()))
            end = self._clusters.terminate_node if is_node(handle) else self._clusters.terminate_cluster
            try:
                end(handle, every)
            finally:
                self._lists.clear()
            return
        try:
            self._client.call("DELETE", "pods", handle.id, meanings={409: NotYet})
        except Gone:
            if is_fresh(handle, self._now(), FACTS.visibility_lag):
                raise Transient(f"Runpod doesn't show {handle.id} yet.") from None
            raise

    # --- what is ours -------------------------------------------------------------------------------------------------

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        def look_up(name: str, listed: Callable[[], Iterable[Body]]) -> Sequence[Body]:
            """Many instances may end at the same time, and the calls of an account are few."""
            return list(listed()) if instance_id is None else self._lists.get(name, lambda: list(listed()))

        all_pods = (body for body in look_up("every pod", self._listed) if _is_single(body))
        logins = look_up("logins", self._logins)
        templates = look_up("templates", self._clusters.templates)
        clusters = look_up("clusters", self._clusters.clusters)
        found = [
            *(each for body in all_pods if _is_in(body, region) for each in owned(_handle(body), {}, body["name"])),
            *(each for body in logins for each in owned(_login_handle(body), {}, body["name"])),
            *self._clusters.owned(templates, clusters, region),
        ]
        yield from (each for each in found if instance_id in (None, each.instance_id))

    def _listed(self) -> Iterator[Body]:
        return self._client.listed("pods", "pods", includeClusterPods="true")

    def _logins(self) -> Iterator[Body]:
        return self._client.listed("registries", "registries")


def _is_single(body: Body) -> bool:
    """Is it there, and in no cluster?"""
    return body["status"] != ENDED and "cluster" not in body


def _is_in(body: Body, region: str) -> bool:
    """A pod counts where it was requested, wherever Runpod has placed it. One of unknown place may be in any region."""
    place = pods.bought(body).region or (COMMUNITY if body["cloud"] == "COMMUNITY" else body["dataCenterId"])
    return not region or not place or place == region


def _handle(body: Body) -> Handle:
    return Handle(kind=POD, id=str(body["id"]), data={CREATED: stamp(datetime.fromisoformat(body["createdAt"]))})


def _login_handle(body: Body) -> Handle:
    return Handle(kind=LOGIN, id=str(body["id"]))
