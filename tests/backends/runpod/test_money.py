"""What goes on costing money on Runpod: each trap with the mistake that walks into it, which the check must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.runpod.client import Body, Client
from chalicelib.backends.spi import CreateRequest, RegistryLogin
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import member_for, request_for, volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Cut, Fault
from tests.backends.fakes.transport import sender
from tests.backends.runpod.fake import KEY, Runpod
from tests.backends.runpod.provider import CONFIG

GPUS = ResourcesSpec.model_validate({"gpu": "H100:2"})


class Account:
    def __init__(self, mistake: type[Client]) -> None:
        self.clock = Clock()
        self.fake = Runpod(self.clock.now)
        send = sender(self.fake)
        client = mistake(KEY, self.clock.now, send=send, listen=send, burst=10_000)
        self.backend = RunpodBackend(CONFIG, client, self.clock.now)

    def request(self, *, spot: bool = False) -> CreateRequest:
        """For a pod with a login."""
        found = request_for(self.backend.offers_for(OfferRequest(resources=GPUS, spot=spot))[0])
        assert found.container is not None
        return replace(found, container=replace(found.container, login=RegistryLogin("team", "pa55-of-the-registry")))

    def stopped(self, *, spot: bool = False) -> list[Handle]:
        """A pod that somebody has stopped, or Runpod."""
        made = list(self.backend.create(self.request(spot=spot)))
        self.clock.passes(60)
        next(self.fake.books.existing("vm")).goes(self.clock.now(), (0, "EXITED"))
        with pytest.raises(Gone):
            self.backend.describe(made)
        return made

    def cluster(self) -> list[list[Handle]]:
        """The handles of each of its nodes, which run."""
        eight = ResourcesSpec.model_validate({"gpu": "H100:8"})
        offer = self.backend.offers_for(OfferRequest(resources=eight, nodes=2))[0]
        made = [list(self.backend.create(member_for(offer, "train", rank, 2))) for rank in range(2)]
        self.clock.passes(60)
        assert [self.backend.describe(each).state for each in made] == ["running"] * 2
        return made

    def swept(self) -> None:
        """By what is listed alone, as if nobody knew any handle."""
        end_all(self.backend, self.clock.passes, [each.handle for each in self.backend.list_owned()])
        self.clock.passes(self.fake.end / SECOND)
        assert not list(self.fake.books.existing())


# --- the checks -------------------------------------------------------------------------------------------------------


def a_stopped_pod_is_removed(account: Account) -> None:
    end_all(account.backend, account.clock.passes, account.stopped())
    assert not list(account.fake.books.existing())


def a_stopped_pod_is_swept(account: Account) -> None:
    account.stopped()
    account.swept()


def a_stopped_spot_pod_is_swept(account: Account) -> None:
    account.stopped(spot=True)
    account.swept()


def a_stopped_pod_costs_nothing(account: Account) -> None:
    """Before it is removed."""
    for spot in (False, True):
        account.stopped(spot=spot)
        assert account.fake.billed() == 0.0
        account.swept()


def a_pod_whose_end_was_lost_is_ended(account: Account) -> None:
    request = account.request()
    made = list(account.backend.create(request_for(request.offer)))
    account.clock.passes(60)
    account.fake.script.faults.append(Fault("deletePod", Cut))
    end_all(account.backend, account.clock.passes, made)
    assert account.fake.billed() == 0.0 and not list(account.fake.books.existing("vm"))


def a_pod_whose_creation_was_lost_is_swept(account: Account) -> None:
    account.fake.script.faults.append(Fault("createPod", Cut, "after"))
    with pytest.raises(Transient):
        list(account.backend.create(account.request()))
    account.clock.passes(60)
    assert account.fake.billed() > 0
    account.swept()


def a_pod_that_costs_more_than_its_offer_is_no_machine(account: Account) -> None:
    account.fake.dearer = 2.0
    making = account.backend.create(account.request())
    made = [next(making), next(making)]
    with pytest.raises(InsufficientCapacity, match=r"bills \$10.76 an hour .* \$5.38"):
        next(making, None)
    account.clock.passes(10)
    with pytest.raises(Gone) as gone:
        account.backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    account.clock.passes(60)
    assert account.backend.describe(made).state == "running", "once it runs, its price may rise"


def a_cluster_ends_with_its_last_node(account: Account) -> None:
    nodes = account.cluster()
    for handles in nodes:
        end_all(account.backend, account.clock.passes, handles)
    assert not list(account.fake.books.existing()) and account.fake.billed() == 0.0


def a_cluster_is_swept(account: Account) -> None:
    account.cluster()
    account.swept()


def a_cluster_that_no_node_is_known_of_is_swept(account: Account) -> None:
    account.cluster()
    for template in list(account.fake.books.existing("template")):
        template.goes(account.clock.now(), (0, None))
    account.swept()


def a_deleted_volume_is_gone(account: Account) -> None:
    """It is billed with or without pods."""
    made = account.backend.create_volume(volume_request("US-KS-2"))
    with pytest.raises(Gone):
        for _ in range(3):
            account.backend.delete_volume(made)
    assert not list(account.fake.books.existing())


# --- the mistakes -----------------------------------------------------------------------------------------------------


class Mistake(Client):
    """Calls that are sent as they are, but for what a mistake gets wrong."""

    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, body

    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        method, path_now, body = self.changed(method, path, body)
        return super().call(method, *path_now, body=body, **more)


class StopsPods(Mistake):
    """And doesn't delete them."""

    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        if (method, path[0]) == ("DELETE", "pods"):
            return "POST", (*path, "action"), {"action": "stop"}
        return method, path, body


class ListsOnlyWhatRuns(Mistake):
    def listed(self, path: str, name: str, **query: str) -> Iterator[Body]:
        return (each for each in super().listed(path, name, **query) if each.get("status") != "EXITED")


class ListsNoClusters(Mistake):
    def listed(self, path: str, name: str, **query: str) -> Iterator[Body]:
        return iter(()) if name == "clusters" else super().listed(path, name, **query)


class StopsClusters(Mistake):
    """Pod by pod, and doesn't delete them."""

    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        return None if (method, path[0]) == ("DELETE", "clusters") else super().call(method, *path, body=body, **more)


class NamesClustersAnew(Mistake):
    """So that nothing says whose they are. Nor do their pods' names."""

    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, {**body, "name": "cluster"} if (method, path) == ("POST", ("clusters",)) else body


class ListsNoLogins(Mistake):
    def listed(self, path: str, name: str, **query: str) -> Iterator[Body]:
        return iter(()) if name == "registries" else super().listed(path, name, **query)


class GivesPodsAVolume(Mistake):
    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        if (method, path) == ("POST", ("pods",)):
            body = {**body, "mounts": {"persistent": {"size": 20, "path": "/workspace"}}}
        return method, path, body


class GivesSpotPodsAVolume(Mistake):
    def graphql(self, query: str, variables: Any = None, **more: Any) -> Body:
        if "podRentInterruptable" in query:
            variables = {"input": {**variables["input"], "volumeInGb": 20, "volumeMountPath": "/workspace"}}
        return super().graphql(query, variables, **more)


class TakesNoAnswerForTheEnd(Mistake):
    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        try:
            return super().call(method, *path, body=body, **more)
        except Transient as error:
            raise Gone(str(error)) if method == "DELETE" else error from None


class NamesPodsAnew(Mistake):
    """So that nothing says whose they are."""

    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, {**body, "name": "pod"} if (method, path) == ("POST", ("pods",)) else body


class IgnoresWhatIsBilled(Mistake):
    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        found = super().call(method, *path, body=body, **more)
        return {**found, "cost": 0.0} if (method, path) == ("POST", ("pods",)) else found


class LeavesVolumes(Mistake):
    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        if (method, path[0]) == ("DELETE", "network-volumes"):
            raise Gone("so it believes")
        return super().call(method, *path, body=body, **more)


TRAPS: Sequence[tuple[Callable[[Account], None], type[Client]]] = [
    (a_stopped_pod_is_removed, StopsPods),
    (a_stopped_pod_is_swept, ListsOnlyWhatRuns),
    (a_stopped_pod_is_swept, ListsNoLogins),
    (a_stopped_spot_pod_is_swept, ListsOnlyWhatRuns),
    (a_stopped_pod_costs_nothing, GivesPodsAVolume),
    (a_stopped_pod_costs_nothing, GivesSpotPodsAVolume),
    (a_pod_whose_end_was_lost_is_ended, TakesNoAnswerForTheEnd),
    (a_pod_whose_creation_was_lost_is_swept, NamesPodsAnew),
    (a_pod_that_costs_more_than_its_offer_is_no_machine, IgnoresWhatIsBilled),
    (a_cluster_ends_with_its_last_node, StopsClusters),
    (a_cluster_is_swept, StopsClusters),
    (a_cluster_that_no_node_is_known_of_is_swept, ListsNoClusters),
    (a_cluster_that_no_node_is_known_of_is_swept, NamesClustersAnew),
    (a_deleted_volume_is_gone, LeavesVolumes),
]


@pytest.mark.parametrize("check", list(dict.fromkeys(check for check, _ in TRAPS)))
def test_nothing_goes_on_costing_money(check: Callable[[Account], None]) -> None:
    check(Account(Client))


@pytest.mark.parametrize(("check", "mistake"), TRAPS)
def test_the_mistake_is_noticed(check: Callable[[Account], None], mistake: type[Client]) -> None:
    with pytest.raises((AssertionError, BackendError, pytest.fail.Exception)):
        check(Account(mistake))
