"""What a namespace allows, said before anything is created: the API server says the same then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.permissions import Rule
from chalicelib.backends.kubernetes.quotas import Allowance, PodAmounts
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import BackendError, InsufficientCapacity
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.kubernetes.account import NAMESPACE, USER, add_account
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.test_permissions import backend, without

GIB = 1 << 30
JOB = PodAmounts({"cpu": 4000, "memory": 8 * GIB, "nvidia.com/gpu": 2}, {"nvidia.com/gpu": 2})


def allowance(*quotas: dict[str, Any], limits: list[dict[str, Any]] | None = None, **more: Any) -> Allowance:
    ranges = [{"metadata": {"name": "small"}, "spec": {"limits": limits}}] if limits else []
    return Allowance("jobs", quotas, ranges, **more)


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"hard": hard, "used": used} if used is not None else {}
    return {"metadata": {"name": "team"}, "spec": {"hard": hard, **spec}, "status": status}


@pytest.mark.parametrize(
    ("hard", "used", "says"),
    [
        ({"requests.cpu": "10"}, {"requests.cpu": "6"}, ""),
        ({"requests.cpu": "10"}, {"requests.cpu": "6500m"}, "the quota team leaves 3.5 of 10 CPUs"),
        ({"memory": "20Gi"}, {"memory": "16Gi"}, "the quota team leaves 4 of 20 GB of memory"),
        ({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "3"}, "leaves 1 of 4 nvidia.com/gpu"),
        ({"pods": "5"}, {"pods": "5"}, "the quota team leaves 0 of 5 pods"),
        ({"count/secrets": "5"}, {"count/secrets": "9"}, "the quota team leaves 0 of 5 secrets"),
        ({"cpu": "1"}, None, "the quota team leaves 1 of 1 CPUs"),
        (
            {"limits.memory": "64Gi"},
            {},
            "the quota team demands a limit: write an upper end, such as `memory: 8GB..16GB`",
        ),
        ({"services": "0", "requests.storage": "0", "limits.ephemeral-storage": "0"}, {}, ""),
    ],
)
def test_what_a_quota_leaves(hard: dict[str, str], used: dict[str, str] | None, says: str) -> None:
    found = allowance(quota(hard, used)).refusal(JOB, 1)
    assert says in found and bool(says) is bool(found)


def test_pods_that_come_together_count_together() -> None:
    found = allowance(quota({"requests.cpu": "10"}, {}))
    assert (found.refusal(JOB, 2), found.refusal(JOB, 3)) == ("", "the quota team leaves 10 of 10 CPUs")


def test_limits_count_with_what_the_agents_container_has() -> None:
    small = PodAmounts({"cpu": 500, "memory": GIB}, {"cpu": 500, "memory": GIB})
    found = allowance(quota({"limits.cpu": "900m"}, {}))
    assert found.refusal(small, 1) == "the quota team leaves 0.9 of 0.9 CPUs of limits"


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, True),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, True),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, False),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["b"]}]
                }
            },
            True,
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["b"]}]
                }
            },
            False,
        ),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}]}},
            False,
        ),
    ],
)
def test_a_quota_for_other_pods_doesnt_count(spec: dict[str, Any], counts: bool) -> None:
    assert bool(allowance(quota({"pods": "0"}, {}, **spec), priority_class="b").refusal(JOB, 1)) is counts


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"type": "Container", "max": {"cpu": "2"}}, "the limit range small allows a container at most 2 CPUs"),
        ({"type": "Container", "max": {"cpu": "4"}}, ""),
        ({"type": "Container", "max": {"cpu": "0"}}, "the limit range small allows a container at most 0 CPUs"),
        ({"type": "Container", "min": {"memory": "9Gi"}}, "demands at least 9 GB of memory of a container"),
        ({"type": "Container", "default": {"cpu": "1"}}, "limits a container to 1 CPUs unless it has a limit itself"),
        (
            {"type": "Container", "max": {"cpu": "64"}, "default": {"cpu": "16"}, "maxLimitRequestRatio": {"cpu": "2"}},
            "allows limits of at most 2 times the request of cpu",
        ),
        ({"type": "Pod", "max": {"cpu": "2"}}, "allows a pod at most 2 CPUs"),
        ({"type": "Pod", "max": {"memory": "64Gi"}}, ""),
        ({"type": "Pod", "max": {"ephemeral-storage": "64Gi"}}, ""),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, ""),
    ],
)
def test_what_a_limit_range_allows(item: dict[str, Any], says: str) -> None:
    found = allowance(limits=[item]).refusal(JOB, 1)
    assert says in found and bool(says) is bool(found)


# --- beside the API server's own word ---------------------------------------------------------------------------------


@pytest.fixture
def home(clock: Clock) -> Iterator[Cluster]:
    found = Cluster(clock.now, "home")
    found.add_node("one", cpu="16", memory="64Gi", ephemeral_storage="1000Gi")
    add_account(found)
    with found.serving():
        yield found


def wanted(**resources: str) -> OfferRequest:
    return OfferRequest(resources=ResourcesSpec.model_validate({"disk": None, **resources}))


Put = Callable[[Cluster], object]


def put_quota(**hard: str) -> Put:
    return lambda home: home.add("ResourceQuota", "most", NAMESPACE, spec={"hard": hard})


def put_scoped(*scopes: str) -> Put:
    spec = {"hard": {"pods": "0"}, "scopes": scopes}
    return lambda home: home.add("ResourceQuota", "scoped", NAMESPACE, spec=spec)


def put_range(**item: Any) -> Put:
    return lambda home: home.add("LimitRange", "each", NAMESPACE, spec={"limits": [{"type": "Container", **item}]})


@pytest.mark.parametrize(
    ("put", "resources", "why"),
    [
        (put_quota(cpu="3"), {"cpu": "4.."}, "the quota most leaves 3 of 3 CPUs"),
        (put_quota(**{"limits.cpu": "8"}), {"cpu": "4.."}, "the quota most demands a limit"),
        (put_quota(**{"limits.cpu": "6"}), {"cpu": "4..8"}, "the quota most leaves 6 of 6 CPUs of limits"),
        (put_scoped("Terminating"), {}, ""),
        (put_scoped("BestEffort"), {}, ""),
        (put_scoped("NotTerminating", "NotBestEffort"), {}, "the quota scoped leaves 0 of 0 pods"),
        (put_quota(pods="0"), {}, "the quota most leaves 0 of 0 pods"),
        (put_range(max={"cpu": "3"}), {"cpu": "4..4"}, "the limit range each allows a container at most 3 CPUs"),
        (put_range(min={"memory": "12Gi"}), {"memory": "8GB"}, "the limit range each demands at least 12 GB"),
        (put_quota(cpu="4", memory="8Gi", pods="1", secrets="1"), {"cpu": "4..", "memory": "8GB"}, ""),
        (put_range(max={"cpu": "4", "memory": "8Gi"}), {"cpu": "4..4", "memory": "8GB"}, ""),
        (put_range(min={"cpu": "2", "memory": "1Gi"}), {"cpu": "4..", "memory": "8GB"}, ""),
        (put_range(default={"cpu": "8"}, maxLimitRequestRatio={"cpu": "2"}), {"cpu": "4..", "memory": "8GB"}, ""),
        (put_range(max={"cpu": "8"}, maxLimitRequestRatio={"cpu": "3"}), {"cpu": "2..8"}, "limits of at most 3 times"),
        (put_range(type="Pod", max={"cpu": "3"}), {"cpu": "4..4"}, "the limit range each allows a pod at most 3 CPUs"),
    ],
)
def test_the_plan_says_what_the_server_would(
    home: Cluster, clock: Clock, put: Put, resources: dict[str, str], why: str
) -> None:
    found, request = backend(home, clock), wanted(**resources)
    (offer,) = found.offers_for(request)
    put(home)
    home.settle()
    if not why:
        (again,) = found.offers_for(request)
        assert again.key == offer.key
        list(found.create(request_for(again)))
        return
    with pytest.raises(InsufficientCapacity) as lacking:
        found.offers_for(request)
    assert f"home: namespace {NAMESPACE} (" in str(lacking.value) and why in str(lacking.value)
    with pytest.raises(BackendError):
        list(found.create(request_for(offer)))
    found.close()


def test_without_the_permission_quotas_show_when_a_pod_is_created(home: Cluster, clock: Clock) -> None:
    home.users.grants.clear()
    home.users.grant(USER, without(Rule("resourcequotas", ("list",)), "list"))
    put_quota(pods="0")(home)
    home.settle()
    found: KubernetesBackend = backend(home, clock)
    (offer,) = found.offers_for(wanted())
    found.offers_for(wanted())
    with pytest.raises(BackendError, match="exceeded quota: most"):
        list(found.create(request_for(offer)))
    found.close()
