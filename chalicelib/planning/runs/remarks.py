"""Remarks that a plan shows beside its offers: rules that surprise people, and settings that they may miss later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.gpu_names import vendor_of
from chalicelib.domain.instants import SECOND, spoken
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.offers import Availability, Offer
from chalicelib.domain.specs.gateways import GatewayConfiguration
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.domain.specs.workloads import RunConfiguration
from chalicelib.domain.spending import DailyLimit
from chalicelib.machines.instance import RUN_IDLE
from chalicelib.planning.jobs.replica_groups import discovery, groups_of
from chalicelib.planning.matching.fitting import disk_wanted

WITH_USE = ("nvidia", "amd", "intel")  # vendors whose tools say how busy a GPU is

_DISK = (
    "`disk: {size}GB..`, the default, is asked only of machines that are bought; one that is there already is taken "
    "with the disk that it has."
)
_RETRY = (
    "Without `retry` the whole service ends as soon as one of its replicas fails; with `retry: true` it gets another."
)
_NO_GPU = "`utilization_policy` judges GPUs only: a job on a machine without one isn't ended by it."
_UNREPORTED = "`utilization_policy` has nothing to judge {vendor} GPUs by: nobody reports how busy they are."
_IDLE = "`idle_duration` has no effect on containers: each ends with its job."
_IDLE_LIMITED = (
    "`idle_duration` is at most {usual} in a fleet that sets none: the access token {token} has a limit of dollars a "
    "day, and idle machines aren't counted under it."
)
_NO_TAGS = "`tags` aren't set in {backends}, where nothing can have tags."

_COMING = "The reservation {name} begins at {at:%Y-%m-%d %H:%M} UTC, and has no machines until then."

_UNCERTIFIED = (
    "Without a `certificate`, callers on other machines can't send tokens: they reach only services with `auth: false`."
)
_NO_CERTIFICATE = (
    "The gateway {name} has no certificate, so callers on other machines can't send tokens: give it a `certificate`, "
    "or the service `auth: false`."
)
_NO_HTTPS = (
    "With `https: false`, callers on other machines can't send tokens: remove it, or give the service `auth: false`."
)


def remarks(
    config: RunConfiguration,
    jobs: Iterable[tuple[JobSpec, Sequence[Offer]]],
    gateway: Gateway | None = None,
    facts: Mapping[str, BackendFacts] = {},
    limit: DailyLimit | None = None,
) -> Iterator[str]:
    """The remarks on a run. `config` has its profile merged in. `jobs`: one of each kind, with its offers. `gateway`:
    the service's, if it has one. `facts`: of the project's backends. `limit`: of the token that submits it."""
    found = list[str]()
    idle, usual = config.idle_duration, RUN_IDLE // SECOND
    if limit is not None and idle is not None and not 0 <= idle <= usual:
        found.append(_IDLE_LIMITED.format(usual=spoken(RUN_IDLE), token=limit.token))
    for spec, offers in jobs:
        found += [
            *_disks(spec, offers),
            *_coming(offers),
            *_policy(spec, offers),
            *_without_effect(config, offers, facts),
        ]
    if isinstance(config, ServiceConfiguration):
        found += [_RETRY] if _ends_with_replica(config) else []
        found += _in_the_open(config, gateway) if gateway is not None and config.auth else []
    yield from dict.fromkeys(found)


def of_gateway(config: GatewayConfiguration) -> Iterator[str]:
    if config.certificate is None:
        yield _UNCERTIFIED


def _in_the_open(config: ServiceConfiguration, gateway: Gateway) -> Iterator[str]:
    """A gateway accepts no token over plain http, unless it comes from its own machine."""
    if gateway.https_port is None:
        yield _NO_CERTIFICATE.format(name=gateway.name)
    elif config.https is False:
        yield _NO_HTTPS


def _ends_with_replica(config: ServiceConfiguration) -> bool:
    """Does the failure of one replica end the others, although `retry` could prevent that? Not every router allows
    `retry`."""
    several = sum(count.max or 0 for count in groups_of(config).values()) > 1
    return several and config.retry is None and discovery(config) is None


def _disks(spec: JobSpec, offers: Iterable[Offer]) -> Iterator[str]:
    """Some of the offered machines have smaller disks than the requirements shown above them."""
    requested = spec.requirements.resources
    if requested.disk is None or disk_wanted(requested, provisioned=False) is not None:
        return
    there = (Availability.idle, Availability.busy)
    own = (offer.instance.resources.disk.size_mib / 1024 for offer in offers if offer.availability in there)
    if any(not requested.disk.size.holds(size) for size in own):
        yield _DISK.format(size=round(requested.disk.size.min or 0))


def _coming(offers: Iterable[Offer]) -> Iterator[str]:
    for offer in offers:
        if offer.terms.starts_at is not None:
            yield _COMING.format(name=offer.reservation, at=datetime.fromtimestamp(offer.terms.starts_at / SECOND, UTC))


def _without_effect(
    config: RunConfiguration, offers: Sequence[Offer], facts: Mapping[str, BackendFacts]
) -> Iterator[str]:
    """What the run sets, and some of the offered places can't have."""
    if config.idle_duration is not None and any(offer.is_container for offer in offers):
        yield _IDLE
    without = {offer.backend for offer in offers if offer.backend in facts and not facts[offer.backend].tags}
    if config.tags and without:
        yield _NO_TAGS.format(backends=" and ".join(sorted(without)))


def _policy(spec: JobSpec, offers: Sequence[Offer]) -> Iterator[str]:
    if spec.utilization_policy is None:
        return
    machines = [offer.instance.resources.gpus for offer in offers]
    if not all(machines):
        yield _NO_GPU
    vendors = {(gpus[0].vendor or vendor_of(gpus[0].name) or "") for gpus in machines if gpus}
    for vendor in sorted(vendors - {*WITH_USE, ""}):
        yield _UNREPORTED.format(vendor=vendor)
