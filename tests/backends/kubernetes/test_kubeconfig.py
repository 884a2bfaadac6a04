"""Which clusters a configuration means, and what a kubeconfig mustn't have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from chalicelib.backends.kubernetes.kubeconfig import Cluster, clusters
from chalicelib.configuration.server import parse_backend
from chalicelib.errors import Invalid, InvalidCredentials

Raw = dict[str, Any]
TOKEN = "a-token-of-a-service-account"


def kubeconfig(**changes: Any) -> Raw:
    """With two contexts. `changes`: of the user and the cluster of the first."""
    user = {"token": TOKEN, **changes.get("user", {})}
    cluster = {"server": "https://east.example:6443", **changes.get("cluster", {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "east",
        "contexts": [
            {"name": "east", "context": {"cluster": "c-east", "user": "u", "namespace": "ml"}},
            {"name": "west", "context": {"cluster": "c-west", "user": "other"}},
        ],
        "clusters": [
            {"name": "c-east", "cluster": cluster},
            {"name": "c-west", "cluster": {"server": "https://west.example"}},
        ],
        "users": [{"name": "u", "user": user}, {"name": "other", "user": {"token": "other"}}],
    }


def found(text: str | Raw, **more: Any) -> tuple[Cluster, ...]:
    data = text if isinstance(text, str) else yaml.safe_dump(text)
    raw = {"type": "kubernetes", "kubeconfig": {"data": data}, **more}
    return clusters(KubernetesBackendConfig.model_validate(raw))


def test_the_current_context_is_used_unless_others_are_named() -> None:
    (one,) = found(kubeconfig())
    assert (one.region, one.namespace, one.secrets) == ("east", "ml", (TOKEN,))
    assert TOKEN not in repr(one)
    assert one.kubeconfig is not None and "other" not in str(one.kubeconfig)
    (one,) = found(kubeconfig(), namespace="older")
    assert one.namespace == "older"
    two = found(kubeconfig(), contexts=["west", {"name": "east", "namespace": "jobs"}])
    assert [(each.region, each.namespace) for each in two] == [("west", "default"), ("east", "jobs")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"user": {"exec": {"command": "aws"}}},
            r"has `exec`, which runs a program\. The control plane runs no programs from a",
        ),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "has `auth-provider`, which uses an authentication plugin"),
        ({"user": {"tokenFile": "/var/run/token"}}, "names a file with `tokenFile`"),
        ({"user": {"client-certificate": "me.crt"}}, "names a file with `client-certificate`"),
        ({"user": {"client-key": "me.key"}}, "names a file with `client-key`"),
        ({"cluster": {"certificate-authority": "/ca.crt"}}, "names a file with `certificate-authority`"),
        ({"user": {"as": "admin"}}, "acts as another one"),
        ({"cluster": {"server": "unix:///run/api"}}, "has no `server` with an http"),
    ],
)
def test_what_would_run_programs_or_read_files_of_the_server_is_refused(changes: Raw, text: str) -> None:
    with pytest.raises(InvalidCredentials, match=text) as refused:
        found(kubeconfig(**changes))
    assert TOKEN not in str(refused.value)
    assert found(kubeconfig(**changes), contexts=["west"]), "another context doesn't have it"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "isn't YAML"),
        ("- a", "no kubeconfig"),
        ("kind: Pod", "no kubeconfig"),
        ("kind: Config", "no current context"),
        ({**kubeconfig(), "current-context": "south"}, "no context `south`. It has: east, west"),
        ({**kubeconfig(), "users": None}, "no user `u`"),
        ({**kubeconfig(), "clusters": ["x"]}, "no cluster `c-east`"),
    ],
)
def test_a_kubeconfig_that_lacks_something_says_what(text: str | Raw, why: str) -> None:
    with pytest.raises(InvalidCredentials, match=why):
        found(text)


def test_an_empty_file_name_beside_the_text_is_none() -> None:
    """As some clients send it."""
    given = {"filename": "", "data": yaml.safe_dump(kubeconfig())}
    config = KubernetesBackendConfig.model_validate({"type": "kubernetes", "kubeconfig": given})
    assert [each.region for each in clusters(config)] == ["east"]


def test_a_file_is_read_where_the_server_runs(tmp_path: Path) -> None:
    path = tmp_path / "config"
    config = KubernetesBackendConfig.model_validate({"type": "kubernetes", "kubeconfig": {"filename": str(path)}})
    with pytest.raises(InvalidCredentials, match="No such file"):
        clusters(config)
    path.write_text(yaml.safe_dump(kubeconfig()))
    assert [each.region for each in clusters(config)] == ["east"]
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidCredentials, match="isn't UTF-8"):
        clusters(config)
    path.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(InvalidCredentials, match="larger than"):
        clusters(config)


@pytest.mark.parametrize(
    ("cluster", "field"),
    [
        ({"server": "http://127.0.0.1:8080"}, "kubeconfig.data"),
        ({"server": "https://localhost:6443"}, "kubeconfig.data"),
        ({"server": "https://127.0.0.1\\@east.example"}, "kubeconfig.data"),
        ({"server": "https://127.1"}, "kubeconfig.data"),
        ({"server": "https://[::1]:6443"}, "kubeconfig.data"),
        ({"server": "https://[::ffff:127.0.0.1]"}, "kubeconfig.data"),
        ({"server": "http://169.254.169.254"}, "kubeconfig.data"),
        ({"server": "https://[fe80::1]"}, "kubeconfig.data"),
        ({"proxy-url": "http://0.0.0.0:3128"}, "kubeconfig.data"),
        ({"server": "https://10.0.0.7:6443", "proxy-url": "http://proxy.example:3128"}, ""),
        ({"server": "https://203.0.113.7"}, ""),
    ],
)
def test_addresses_of_the_servers_own_machine_are_its_own(cluster: Raw, field: str) -> None:
    data = yaml.safe_dump(kubeconfig(cluster=cluster))
    raw = {"type": "kubernetes", "kubeconfig": {"data": data}}
    assert KubernetesBackendConfig.model_validate(raw).servers_own() == field
    assert KubernetesBackendConfig.model_validate({**raw, "contexts": ["west"]}).servers_own() == "", "it isn't used"
    assert KubernetesBackendConfig.model_validate({**raw, "contexts": ["nowhere"]}).servers_own() == ""


def test_one_namespace_under_two_names_is_refused() -> None:
    both = kubeconfig()
    both["contexts"][1]["context"] = {"cluster": "c-east", "user": "other"}
    with pytest.raises(InvalidCredentials, match="are the same namespace"):
        found(both, contexts=["east", {"name": "west", "namespace": "ml"}])
    assert len(found(both, contexts=["east", "west"])) == 2


def test_outside_of_a_cluster_there_is_no_account_of_its_own() -> None:
    with pytest.raises(InvalidCredentials, match="doesn't run in a Kubernetes cluster"):
        found_in_cluster()
    (one,) = found_in_cluster(contexts=[{"name": "here", "namespace": "jobs"}])
    assert (one.region, one.namespace, one.kubeconfig) == ("here", "jobs", None)


def found_in_cluster(**more: Any) -> tuple[Cluster, ...]:
    raw = {"type": "kubernetes", "kubeconfig": {"in_cluster": True}, **more}
    return clusters(KubernetesBackendConfig.model_validate(raw))


GOOD = "type: kubernetes\nkubeconfig: {data: x}\n"


@pytest.mark.parametrize(
    ("text", "path", "why"),
    [
        ("type: kubernetes\nkubeconfig: {}\n", "kubeconfig", "is needed"),
        ("type: kubernetes\nkubeconfig: {data: x, in_cluster: true}\n", "kubeconfig.in_cluster", "not both"),
        (GOOD + "contexts: [a, a]\n", "contexts.1", "appears twice"),
        (GOOD + "contexts: [a]\nnamespace: b\n", "namespace", "can't go together with `contexts`"),
        (GOOD + "contexts: [{name: a, namespace: A_b}]\n", "contexts.0.namespace", "isn't a name"),
        (GOOD + "contexts: [{name: a, node_selector: {a b: c}}]\n", "contexts.0.node_selector.a b", "isn't a label"),
        (GOOD + "contexts: [{name: a, tolerations: [{value: x}]}]\n", "contexts.0.tolerations.0.key", "needs a `key`"),
        (
            GOOD + "contexts: [{name: a, tolerations: [{operator: Exists, value: x}]}]\n",
            "contexts.0.tolerations.0.value",
            "compares no value",
        ),
        *(
            (
                GOOD + f"contexts: [{{name: a, node_affinity: [{{{fields}}}]}}]\n",
                f"contexts.0.node_affinity.0.{at}",
                why,
            )
            for fields, at, why in (
                ("key: a b, values: [c]", "key", "isn't the key of a label"),
                ("key: a", "values", "needs `values`"),
                ("key: a, values: [b c]", "values", "isn't a label's value"),
                ("key: a, operator: Exists, values: [b]", "values", "compares no values"),
                ("key: a, operator: Gt, values: [b]", "values", "needs one whole number"),
                ("key: a, operator: Near, values: [b]", "operator", "isn't possible here"),
            )
        ),
        (
            GOOD + "contexts: [{name: a, gpu_resources: {ib: 1}}]\n",
            "contexts.0.gpu_resources.ib.[key]",
            "isn't the name",
        ),
        (GOOD + "contexts: [{name: a, host_network: true}]\n", "contexts.0.host_network", "isn't"),
        ("type: kubernetes\nkubeconfig: {in_cluster: true}\ncontexts: [a, b]\n", "contexts.1", "there is one context"),
    ],
)
def test_a_wrong_configuration_says_where(text: str, path: str, why: str) -> None:
    with pytest.raises(Invalid) as wrong:
        parse_backend(text)
    assert any(problem.path == path and why in problem.render() for problem in wrong.value.problems), wrong.value
