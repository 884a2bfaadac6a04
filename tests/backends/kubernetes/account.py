"""The account of the documentation, with the smallest role that does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.backends.kubernetes.fake.cluster import Cluster

ROLE = (Path(__file__).parents[3] / "docs/examples/kubernetes/role.yml").read_text()
NAMESPACE, USER, TOKEN = "dstack-jobs", "system:serviceaccount:dstack-jobs:dstack", "token-of-the-account"


def add_account(cluster: Cluster, role: str = ROLE) -> None:
    cluster.add_namespace(NAMESPACE)
    cluster.users.user(TOKEN, USER)
    cluster.users.grant(USER, role)


def of_account(kubeconfig: dict[str, Any]) -> dict[str, Any]:
    """The account's own, from an administrator's."""
    (user,), (context,) = kubeconfig["users"], kubeconfig["contexts"]
    inside = {**context, "context": {**context["context"], "namespace": NAMESPACE}}
    return {**kubeconfig, "users": [{**user, "user": {"token": TOKEN}}], "contexts": [inside]}
