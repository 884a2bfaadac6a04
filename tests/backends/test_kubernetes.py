"""Kubernetes: the whole suite, over two clusters with API servers that answer as real ones do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import ClassVar

import pytest

from chalicelib.backends.kubernetes import kubeconfig
from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.spi import Backend
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.kubernetes.fake import faults
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.provider import REGIONS, KubernetesProvider, config_of, populate
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults


class Kubernetes(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def clusters(self, clock: Clock) -> Iterator[Sequence[Cluster]]:
        found = [Cluster(clock.now, name) for name in REGIONS]
        with ExitStack() as serving:
            for cluster in found:
                populate(cluster)
                serving.enter_context(cluster.serving())
            yield found

    @pytest.fixture
    def calls(self, clusters: Sequence[Cluster], clock: Clock) -> Iterator[Clusters]:
        found = Clusters(kubeconfig.clusters(config_of(clusters, privileged=True, gateways={})), clock.now)
        yield found
        found.close()

    @pytest.fixture
    def backend(self, clusters: Sequence[Cluster], calls: Clusters, clock: Clock, provider: Provider) -> Backend:
        """Its pods take their time, as the provider has arranged it."""
        return KubernetesBackend(config_of(clusters), calls, clock.now)

    @pytest.fixture
    def provider(self, clusters: Sequence[Cluster], calls: Clusters) -> Provider:
        return KubernetesProvider(clusters, calls)

    @pytest.fixture
    def broken(self, clock: Clock) -> Iterator[Backend]:
        cluster = Cluster(clock.now, REGIONS[0])
        cluster.faults.script.faults.append(Fault("*", faults.broken(), times=1_000))
        with cluster.serving():
            found = KubernetesBackend(config_of([cluster]), now=clock.now)
            yield found
            found.close()

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestKubernetes(Kubernetes, BackendConformance):
    backend_name = "kubernetes"


class TestFaults(PlantedFaults, Kubernetes):
    sound, sound_broken = Kubernetes.backend, Kubernetes.broken
    pairs = EACH_CASE_ONCE
    unnoticed: ClassVar = {
        "RoundsPrices": "nothing has a price",
        "IgnoresTheZones": "its offers have no zones unless they are requested",
        "TakesEveryMachineForOne": "a pod's name has that of its machine in it",
    }
