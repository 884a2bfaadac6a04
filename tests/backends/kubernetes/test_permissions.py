"""The role of the documentation is the smallest that does, and `check` names what a smaller one lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.checking import check_version
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from chalicelib.backends.kubernetes.permissions import GATEWAYS, OPTIONAL, RULES, Rule, verbs
from chalicelib.errors import Gone, InvalidCredentials, MissingPermission, Unfit
from tests.backends.clock import Clock
from tests.backends.conformance.requests import member_for, request_for
from tests.backends.conformance.suite import offers_of
from tests.backends.kubernetes.account import NAMESPACE, ROLE, TOKEN, USER
from tests.backends.kubernetes.fake.cluster import Cluster


def granted(documents: str) -> set[tuple[str, str, bool]]:
    """Resource, verb, and whether in all namespaces."""
    return {
        (resource, verb, role["kind"] == "ClusterRole")
        for role in yaml.safe_load_all(documents)
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(rule: Rule, verb: str) -> str:
    """The role without one of the things that it grants."""
    documents = list(yaml.safe_load_all(ROLE))
    for role in documents:
        if role["kind"] == ("ClusterRole" if rule.cluster else "Role"):
            role["rules"] = [
                {**each, "resources": [name], "verbs": [one]}
                for each in role["rules"]
                for name in each["resources"]
                for one in each["verbs"]
                if (name, one) != (rule.resource, verb)
            ]
    return yaml.safe_dump_all(documents)


@pytest.fixture
def home(clock: Clock) -> Iterator[Cluster]:
    found = Cluster(clock.now, "home")
    found.add_namespace(NAMESPACE)
    found.add_node("one", cpu="16", memory="64Gi", ephemeral_storage="1000Gi")
    found.users.user(TOKEN, USER)
    with found.serving():
        yield found


def backend(
    cluster: Cluster, clock: Clock, token: str = TOKEN, namespace: str = NAMESPACE, **context: Any
) -> KubernetesBackend:
    data = yaml.safe_dump(cluster.kubeconfig(token=token, namespace=namespace))
    contexts = {"contexts": [{"name": "home", **context}]} if context else {}
    config = KubernetesBackendConfig.model_validate({"type": "kubernetes", "kubeconfig": {"data": data}, **contexts})
    return KubernetesBackend(config, now=clock.now)


def test_the_documented_role_is_the_list() -> None:
    assert granted(ROLE) == {
        (rule.resource, verb, rule.cluster) for rule, verb in verbs((*RULES, *GATEWAYS, *OPTIONAL))
    }


def test_the_role_is_enough_for_everything(home: Cluster, clock: Clock) -> None:
    home.users.grant(USER, ROLE)
    found = backend(home, clock)
    found.check()
    (offer,) = offers_of(found)
    handles = list(found.create(request_for(offer)))
    clock.passes(1.0)
    assert found.describe(handles).state == "running"
    assert [each.handle for each in found.list_owned()] == handles
    found.terminate(handles[0])
    with pytest.raises(Gone):
        for _ in range(5):
            clock.passes(10.0)
            found.terminate(handles[0])
    assert home.store.all("secrets", NAMESPACE) == []
    members = [list(found.create(member_for(offer, "train", rank))) for rank in range(3)]
    clock.passes(1.0)
    assert [found.describe(each).state for each in members] == ["running"] * 3
    assert len(home.store.all("services", NAMESPACE)) == 1


def test_gateways_need_services_where_they_may_be(home: Cluster, clock: Clock) -> None:
    home.users.grant(USER, ROLE)
    found = backend(home, clock, gateways={})
    found.check()
    (offer,) = offers_of(found)
    handles = list(found.create_gateway(replace(request_for(offer), open_ports=(80, 443))))
    assert [each.handle for each in found.list_owned()] == handles
    found.terminate(handles[1])
    with pytest.raises(Gone):
        found.terminate(handles[1])
    for rule, verb in verbs(GATEWAYS):
        home.users.grants.clear()
        home.users.grant(USER, without(rule, verb))
        backend(home, clock).check()
        backend(home, clock, gateways={"expose": "HostPort"}).check()
        with pytest.raises(MissingPermission, match=f"{verb} services in the namespace {NAMESPACE} .gateways."):
            backend(home, clock, gateways={}).check()


def test_jobs_end_where_services_can_no_longer_be_listed(home: Cluster, clock: Clock) -> None:
    home.users.grant(USER, ROLE)
    found = backend(home, clock, gateways={})
    handles = list(found.create(request_for(offers_of(found)[0])))
    home.users.grants.clear()
    home.users.grant(USER, without(GATEWAYS[0], "list"))
    assert [each.handle for each in found.list_owned()] == handles
    with pytest.raises(Gone):
        for _ in range(5):
            found.terminate(handles[0])
            clock.passes(10.0)


@pytest.mark.parametrize(("rule", "verb"), verbs(RULES), ids=lambda each: getattr(each, "resource", each))
def test_each_missing_permission_is_named(home: Cluster, clock: Clock, rule: Rule, verb: str) -> None:
    home.users.grant(USER, without(rule, verb))
    place = "in all namespaces" if rule.cluster else f"in the namespace {NAMESPACE}"
    with pytest.raises(MissingPermission) as denied:
        backend(home, clock).check()
    assert f" home: {verb} {rule.resource} {place} ({rule.what_for}). The role is in docs/" in str(denied.value)


def test_all_that_is_missing_is_named_at_once(home: Cluster, clock: Clock) -> None:
    home.users.grant(USER, "kind: ClusterRole\nmetadata: {name: none}\nrules: []\n")
    with pytest.raises(MissingPermission) as denied:
        backend(home, clock).check()
    assert all(f"{rule.resource} in" in str(denied.value) for rule in RULES)


@pytest.mark.parametrize(("rule", "verb"), verbs(OPTIONAL), ids=lambda each: getattr(each, "resource", each))
def test_nothing_fails_without_what_is_only_useful(home: Cluster, clock: Clock, rule: Rule, verb: str) -> None:
    home.users.grant(USER, without(rule, verb))
    found = backend(home, clock)
    found.check()
    handles = list(found.create(request_for(offers_of(found)[0])))
    clock.passes(1.0)
    assert found.describe(handles).state == "running"


def test_a_token_that_nobody_knows_is_refused(home: Cluster, clock: Clock) -> None:
    with pytest.raises(InvalidCredentials) as refused:
        backend(home, clock, token="another-token").check()
    assert "another-token" not in str(refused.value)


def test_a_namespace_that_isnt_there_is_named(home: Cluster, clock: Clock) -> None:
    with pytest.raises(
        Unfit, match=r"home has no namespace nowhere\. Create it with `kubectl create namespace nowhere`"
    ):
        backend(home, clock, token="admin-token", namespace="nowhere").check()


@pytest.mark.parametrize(
    ("major", "minor", "old"),
    [("1", "26+", True), ("1", "27", False), ("1", "9", True), ("2", "0", False), ("", "", False)],
)
def test_an_old_cluster_is_refused(major: str, minor: str, old: bool) -> None:
    found = {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}"}
    if not old:
        check_version("home", found)
        return
    with pytest.raises(Unfit, match=r"home has Kubernetes v1\..*, and 1\.27 is the oldest"):
        check_version("home", found)
