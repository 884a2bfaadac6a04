"""The volumes that a run names: whether they exist, and whether its jobs can mount them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.errors import NotFound, Refused
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.volumes.mounts import named_volumes
from chalicelib.planning.volumes.sites import Names, Volumes, active, current_use, free, site_of, sites, why_none
from chalicelib.usecases.ports import RecordPorts


def volumes_of(plane: RecordPorts, project: Project, job_specs: Sequence[JobSpec]) -> Volumes:
    names = names_of(job_specs)
    return plane.read.volumes_named(project.id, names) if names else {}


def names_of(job_specs: Sequence[JobSpec]) -> set[str]:
    return {name for spec in job_specs for each in named_volumes(spec.volumes) for name in each}


def exclusive(job_specs: Sequence[JobSpec], volumes: Volumes) -> str:
    """The name of a volume that these jobs need and that only one of them can mount; empty if there is none."""
    needed = [each[0] for spec in job_specs for each in named_volumes(spec.volumes) if len(each) == 1]
    return next((name for name in needed if name in volumes and not _shared(volumes[name])), "")


def _shared(volume: Volume) -> bool:
    """Can several machines mount the volume at a time?"""
    return volume.multi_attach and volume.read_only


def refuse_missing(job_specs: Sequence[JobSpec], volumes: Volumes) -> None:
    for spec in job_specs:
        for names in named_volumes(spec.volumes):
            if not any(name in volumes for name in names):
                raise NotFound(f"Volume {list(names)} not found.", hint="`dstack volume` lists those of the project.")


def refuse(job_specs: Sequence[JobSpec], volumes: Volumes) -> None:
    """Refuse mounts that no node of the run could have, with the volumes as they are."""
    refuse_missing(job_specs, volumes)
    refuse_never(job_specs, volumes)
    for spec in job_specs:
        names = named_volumes(spec.volumes)
        _refuse_inactive(names, volumes)
        _refuse_apart(names, volumes)


def refuse_never(job_specs: Sequence[JobSpec], volumes: Volumes) -> None:
    """Refuse what waiting wouldn't help: one volume for two mounts, or for two jobs that can't share it."""
    nodes: Counter[str] = Counter()
    for spec in job_specs:
        names = named_volumes(spec.volumes)
        _refuse_twice(names)
        nodes.update(each[0] for each in names if len(each) == 1 and each[0] in volumes)
    for name, count in nodes.items():
        if count > 1 and not _shared(volumes[name]):
            nodes_of = "nodes" if job_specs[0].service_port is None else "replicas"
            hint = f"Give each node its own: `{name}-${{{{ dstack.node_rank }}}}`."
            raise Refused(
                f"The volume {name} can be used by one machine at a time, and {count} {nodes_of} name it.",
                hint=hint if nodes_of == "nodes" else "Run one replica, or mount a folder that the hosts share.",
            )


def _refuse_inactive(names: Names, volumes: Volumes) -> None:
    for each in names:
        existing = [volumes[name] for name in each if name in volumes]
        if not any(map(active, existing)):
            first = existing[0]
            why = f": {first.message}" if first.message and first.status is VolumeStatus.failed else ""
            raise Refused(f"The volume {first.name} is {first.status.value}{why}.", hint="Runs need it to be active.")


def _refuse_twice(names: Names) -> None:
    single = [each[0] for each in names if len(each) == 1]
    twice = next((name for name in single if single.count(name) > 1), None)
    if twice is not None:
        raise Refused(f"The volume {twice} is mounted twice.", hint="Mount it once, and link to its folders.")


def _refuse_apart(names: Names, volumes: Volumes) -> None:
    """Refuse mounts whose volumes are in no common backend and region. If zones differ, there are no offers."""
    places = [{site_of(volumes[name])[:2] for name in each if name in volumes} for each in names]
    if places and not set.intersection(*places):
        where = ", ".join(f"{each[0]} in {site_of(volumes[each[0]])}" for each in names if each[0] in volumes)
        raise Refused(
            f"The run's volumes are in different places, and no machine can have them all: {where}.",
            hint="Use volumes in one region.",
        )


def notes(job_specs: Sequence[JobSpec], volumes: Volumes) -> Iterator[Note]:
    """Notes for a plan: why volumes prevent the run from starting, and what it would wait for."""
    for spec in job_specs:
        names = named_volumes(spec.volumes)
        if names and not sites(names, volumes):
            yield Note("the run", f"can't have its volumes: {why_none(names, volumes)}")
        for each in names:
            existing = [volumes[name] for name in each if name in volumes and active(volumes[name])]
            if existing and not any(map(free, existing)):
                yield Note(
                    f"volume `{existing[0].name}`", f"isn't free, {current_use(existing[0])}; the run would wait for it"
                )
