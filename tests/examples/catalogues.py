"""What each backend sells, as its test's fake of the provider does, and what is known of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.simulated import catalog
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.spi import Backend, facts_of
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.offers import Offer
from tests.backends import (
    test_aws,
    test_azure,
    test_crusoe,
    test_gcp,
    test_gcp_tpu,
    test_lambda_cloud,
    test_nebius,
    test_runpod,
    test_tensordock,
    test_vastai,
)
from tests.backends.clock import Clock
from tests.backends.conformance.suite import offers_of
from tests.backends.kubernetes import provider as kubernetes
from tests.backends.kubernetes.fake.cluster import Cluster

Sold = tuple[Sequence[Offer], BackendFacts]


@cache
def catalogues() -> dict[str, Sold]:
    """By name; those of the marketplaces are what they answer to a request without conditions."""
    clock = Clock()
    lists: dict[str, Sold] = {
        "aws": (test_aws.usual_offers(), facts_of(test_aws.AwsBackend)),
        "azure": (test_azure.usual_offers(), facts_of(test_azure.AzureBackend)),
        "gcp": ([*test_gcp.usual_offers(), *test_gcp_tpu.usual_offers()], facts_of(test_gcp.GcpBackend)),
        "nebius": (test_nebius.all_offers(), facts_of(test_nebius.NebiusBackend)),
        "simulated": (tuple(catalog.offers()), facts_of(FakeCloud)),
    }
    lists |= {name: _asked(backend) for name, backend in _made(clock)}
    lists["kubernetes"] = _of_a_cluster(clock)
    return dict(sorted(lists.items()))


def _asked(backend: Backend) -> Sold:
    """Of one that sells several machines in one piece, those pieces as well."""
    facts = facts_of(backend)
    several = offers_of(backend, 2) if facts.live_offers and facts.multinode else ()
    return [*offers_of(backend), *several], facts


def _made(clock: Clock) -> Iterator[tuple[str, Backend]]:
    of = test_crusoe
    with tempfile.TemporaryDirectory() as folder:
        prices = of.prices(Path(folder))
        yield "crusoe", of.CrusoeBackend(of.CONFIG, of.client(of.Crusoe(clock.now), clock), clock.now, prices)
    there = test_lambda_cloud
    fake = there.LambdaApi(clock.now)
    yield "lambda", there.LambdaBackend(there.CONFIG, there.client(fake, clock), clock.now)
    pods = test_runpod
    yield "runpod", pods.RunpodBackend(pods.CONFIG, pods.client(pods.Runpod(clock.now), clock), clock.now)
    dock = test_tensordock
    yield "tensordock", dock.TensorDockBackend(dock.CONFIG, dock.client(dock.TensorDock(clock.now), clock), clock.now)
    vast = test_vastai
    yield "vastai", vast.VastAIBackend(vast.CONFIG, vast.client(vast.Vast(clock.now), clock), clock.now)


def _of_a_cluster(clock: Clock) -> Sold:
    """With four GPUs."""
    cluster = Cluster(clock.now, kubernetes.REGIONS[0])
    kubernetes.populate(cluster)
    with cluster.serving():
        backend = KubernetesBackend(kubernetes.config_of([cluster]), now=clock.now)
        found = _asked(backend)
        backend.close()
    return found
