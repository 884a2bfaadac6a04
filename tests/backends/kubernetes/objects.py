"""Objects of tests, as their authors write them."""

from __future__ import annotations

from typing import Any


def pod(name: str, *, image: str = "busybox:1", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of one container; `limits` and `requests` are its container's."""
    resources = {each: spec.pop(each) for each in ("limits", "requests") if each in spec}
    container = {"name": "main", "image": image, **({"resources": resources} if resources else {})}
    container |= spec.pop("container", {})
    meta = {"name": name, **({"labels": labels} if labels else {})}
    own = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": own}


def claim(name: str, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    own = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": own}


def secret(name: str, **texts: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": texts}


def service(name: str, port: int = 80, **spec: Any) -> dict[str, Any]:
    own = {"selector": {"app": name}, "ports": [{"port": port}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": own}
