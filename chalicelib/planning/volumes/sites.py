"""Where the volumes of a job can be mounted. A site is a backend, a region and, where volumes have one, a zone.

A mount may name several volumes, and the one in the right place is used. So a job has sites: the places where each of
its mounts has a volume of its own. The job's machine must be at one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import Offer
from chalicelib.domain.volumes import AttachmentState, Volume, VolumeStatus

Names = Sequence[Sequence[str]]  # of volumes, by mount
Volumes = Mapping[str, Volume]  # by name


class Site(NamedTuple):
    """A place where volumes are. Names are lower case; without a zone it is the whole region."""

    backend: str
    region: str
    zone: str = ""

    def __str__(self) -> str:
        return f"{self.backend} in {self.zone or self.region or 'any region'}"

    def sells(self, offer: Offer, nodes: int = 0) -> bool:
        """Could a machine of this offer be created here? `nodes`: the size of its cluster; 0: it isn't in one."""
        return self._near(offer, nodes) and (
            not self.zone or offer.availability_zones is None or self.zone in _lower(offer.availability_zones)
        )

    def has(self, instance: Instance, nodes: int = 0) -> bool:
        """Is this machine at the site? One that is still starting counts only if it can't be anywhere else."""
        return self.surely(instance.offer, instance.zone, nodes)

    def surely(self, offer: Offer, zone: str = "", nodes: int = 0) -> bool:
        """Is a machine of this offer certainly at the site? `zone`: the machine's, if known."""
        zones = (zone,) if zone else offer.availability_zones
        return self._near(offer, nodes) and (not self.zone or zones is None or _lower(zones) == {self.zone})

    def meets(self, other: Site) -> bool:
        """Could one machine be at both sites?"""
        return self[:2] == other[:2] and (not self.zone or not other.zone or self.zone == other.zone)

    def _near(self, offer: Offer, nodes: int) -> bool:
        """Is the offer's machine in the region, and can it have volumes?"""
        if offer.terms.no_volumes or (nodes and self.zone and offer.terms.no_volumes_in_clusters):
            return False
        return self.backend == offer.backend.lower() and self.region in ("", offer.region.lower())


def _lower(zones: Sequence[str]) -> set[str]:
    return {zone.lower() for zone in zones}


def site_of(volume: Volume) -> Site:
    return Site(volume.backend.lower(), volume.region.lower(), volume.zone.lower())


def active(volume: Volume) -> bool:
    return volume.status is VolumeStatus.active


def free(volume: Volume) -> bool:
    """May another job have the volume now? Not while it is being detached."""
    if not active(volume) or any(each.state is AttachmentState.detaching for each in volume.attachments):
        return False
    return not volume.attachments or volume.shareable


def sites(names: Names, volumes: Volumes, allowed: Callable[[Volume], bool] = active) -> tuple[Site, ...]:
    """The sites where each mount has an allowed volume of its own, in the order in which volumes are named."""
    found = [[volumes[name] for name in each if name in volumes and allowed(volumes[name])] for each in names]
    places = dict.fromkeys(site_of(volume) for each in found for volume in each)
    zoned = {place[:2] for place in places if place.zone}
    exact = [place for place in places if place.zone or place[:2] not in zoned]
    return tuple(place for place in exact if choose(found, place) is not None)


def choose(found: Sequence[Sequence[Volume]], site: Site, taken: frozenset[str] = frozenset()) -> list[Volume] | None:
    """A different volume for each mount, all at this site; None if there aren't enough. Recursion is fine: jobs have
    few mounts, and mounts few candidates."""
    if not found:
        return []
    for volume in found[0]:
        if volume.id not in taken and site.meets(site_of(volume)):
            rest = choose(found[1:], site, taken | {volume.id})
            if rest is not None:
                return [volume, *rest]
    return None


def chosen_for(names: Names, volumes: Volumes, takes: Callable[[Site], bool]) -> list[Volume] | None:
    """Free volumes for a job, at a site that `takes` accepts; None if there are none."""
    found = [[volumes[name] for name in each if name in volumes and free(volumes[name])] for each in names]
    for site in sites(names, volumes, free):
        if takes(site) and (chosen := choose(found, site)) is not None:
            return chosen
    return None


def together(by_node: Sequence[tuple[Site, ...]]) -> list[tuple[Site, ...]]:
    """The sites of the nodes of one cluster: for each node, only those that meet a site of every other node."""
    kinds = set(by_node)
    return [tuple(site for site in own if all(any(map(site.meets, other)) for other in kinds)) for own in by_node]


def why_none(names: Names, volumes: Volumes) -> str:
    """Why a job has no sites at all while the volumes are in their current state."""
    for each in names:
        known = [volumes[name] for name in each if name in volumes]
        listed = " or ".join(f"`{name}`" for name in each)
        if not known:
            return f"there is no volume {listed}"
        if not any(map(active, known)):
            first = known[0]
            return f"volume `{first.name}` is {first.status.value}" + (f": {first.message}" if first.message else "")
    return "the volumes are in different places, so no machine can have all of them"


def busy(names: Names, volumes: Volumes) -> str:
    """What a job waits for: the first volume that isn't free, and who uses it."""
    return next(_busy(names, volumes), "for a volume")


def _busy(names: Names, volumes: Volumes) -> Iterator[str]:
    for each in names:
        known = [volumes[name] for name in each if name in volumes and active(volumes[name])]
        if known and not any(map(free, known)):
            yield f"for volume `{known[0].name}`, {current_use(known[0])}"
    for each in names:
        for volume in (volumes[name] for name in each if name in volumes and active(volumes[name])):
            if not free(volume):
                yield f"for volume `{volume.name}`, {current_use(volume)}"


def current_use(volume: Volume) -> str:
    leaving = next((each for each in volume.attachments if each.state is AttachmentState.detaching), None)
    if leaving is not None:
        return f"which is being detached from {leaving.instance_name}"
    return f"which run `{volume.attachments[0].run_name}` uses" if volume.attachments else "which isn't free"
