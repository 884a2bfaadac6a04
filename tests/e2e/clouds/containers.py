"""Clouds that sell containers alone: accounts of them, whose containers start nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import yaml

from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.runpod.fake import KEY as RUNPOD_KEY
from tests.backends.runpod.fake import Runpod
from tests.backends.vastai.fake import KEY as VAST_KEY
from tests.backends.vastai.fake import Vast
from tests.e2e.clouds.cloud import Cloud, now
from tests.e2e.onprem.lab import SMALL

ONE_GPU = {**SMALL, "gpu": "1"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}


class RunpodAccount(Cloud):
    config: ClassVar = {"type": "runpod", "creds": {"type": "api_key", "api_key": RUNPOD_KEY}}
    fleet: ClassVar = {"resources": ONE_GPU}

    def __init__(self) -> None:
        self.fake = Runpod(now)


class VastAccount(Cloud):
    config: ClassVar = {"type": "vastai", "creds": {"type": "api_key", "api_key": VAST_KEY}}
    fleet: ClassVar = {"resources": ONE_GPU}

    def __init__(self) -> None:
        self.fake = Vast(now)


class KubernetesCluster(Cloud):
    fleet: ClassVar = {"resources": SMALL}

    def __init__(self) -> None:
        self.fake = Cluster(now, "home")
        self.fake.add_node("one", labels=A100, cpu="16", memory="64Gi", **{"nvidia.com/gpu": "1"})

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[str]:
        with self.fake.serving(port) as url:
            yield url

    @property
    def config(self) -> Any:  # type: ignore[override]
        """Once it is served: its address is in there."""
        return {"type": "kubernetes", "kubeconfig": {"data": yaml.safe_dump(self.fake.kubeconfig())}}


CONTAINERS: Mapping[str, Callable[[], Cloud]] = {
    "kubernetes": KubernetesCluster,
    "runpod": RunpodAccount,
    "vastai": VastAccount,
}
