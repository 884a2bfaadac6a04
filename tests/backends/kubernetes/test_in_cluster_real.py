"""A server in a pod: the account that its cluster has given it is all that it needs."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.backends.kubernetes.account import NAMESPACE, TOKEN, add_account
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.harness.server import ROOT

pytestmark = pytest.mark.slow

# What the kubelet mounts into each pod, here in mounts that no other process sees.
IN_A_POD = """
mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io &&
ln -s "$ACCOUNT" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
"""
PROGRAM = """
from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import offers_of

written = {"type": "kubernetes", "kubeconfig": {"in_cluster": True}}
backend = KubernetesBackend(KubernetesBackendConfig.model_validate(written))
backend.check()
handles = list(backend.create(request_for(offers_of(backend)[0])))
print(handles[0].data["region"], handles[0].data["namespace"], backend.describe(handles).state)
backend.terminate(handles[0])
"""


def test_the_pods_own_account_is_used(cluster: Cluster, tmp_path: Path) -> None:
    separate = ["unshare", "--mount", "sh", "-c", IN_A_POD, "sh"]
    if subprocess.run([*separate, "true"], env={**os.environ, "ACCOUNT": "/"}, capture_output=True).returncode:
        pytest.skip("the kernel gives us no mounts of our own")
    add_account(cluster)
    given = cluster.kubeconfig()["clusters"][0]["cluster"]
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "namespace").write_text(NAMESPACE)
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(given["certificate-authority-data"]))
    url = urlsplit(given["server"])
    where = {"KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}
    env = {**os.environ, **where, "ACCOUNT": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*separate, sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"in-cluster {NAMESPACE} running\n"
    asked = {call.operation.name for call in cluster.calls}
    assert {"create selfsubjectaccessreviews", "list nodes", "create pods", "delete pods"} <= asked
