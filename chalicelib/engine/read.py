"""Reading runs with their specs and fleets with their machines, for the engine and the API alike.

An index may lag, a read by key doesn't. So an index is used only to find keys; everything that a decision may change is
read again by its key, and records named by a hint are read even when no index shows them yet. A stale read that slips
through costs a conflict at commit, never a wrong write.

Caches make reads cheap. Specs are immutable: they are parsed once, and small ones are also read only once. Status items
are parsed once per version: nouns are frozen, so the same bytes mean the same noun. A finished run never changes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from chalicelib.domain import keys
from chalicelib.domain.exports import Export
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, InstanceStatus, instance_id
from chalicelib.domain.job_specs import JobSpec, own_of, spec_of
from chalicelib.domain.jobs import Job
from chalicelib.domain.keys import Key
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume
from chalicelib.errors import Bug
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.isolation import unisolated
from chalicelib.planning.matching.requirements import as_placed
from chalicelib.store import nouns
from chalicelib.store.cache import Lru
from chalicelib.store.listing import all_of, every
from chalicelib.store.port import Record, Store

N = TypeVar("N", bound=Noun)

SMALL = 16_384  # characters of a run's specs that are cached as text for lists: most have a tenth of that
SPECS = 1024  # runs whose parsed specs are cached, some 15 KB each: a pass over more runs parses them every time
FEW_JOBS = 8  # of a finished run that is cached: a thousand with hundreds of nodes each would fill the memory
YOUNG = 128  # a fleet's newest instances, which are also read by key: more than it orders while an index may lag


@dataclass(frozen=True)
class RunRow:
    """A run with the text of its specs and all its jobs, in order of replica, node and submission."""

    run: Run
    run_spec: str
    job_specs: tuple[str, ...]
    jobs: tuple[Job, ...]

    def histories(self) -> list[list[Job]]:
        """The submissions of each job, oldest first, in the order of `job_specs`; none while nothing was submitted."""
        found: dict[tuple[int, int], list[Job]] = {}
        for job in self.jobs:
            found.setdefault(job.slot, []).append(job)
        return list(found.values())


@dataclass(frozen=True)
class FleetRow:
    """A fleet, its spec as it was sent, and its live instances."""

    fleet: Fleet
    spec: str
    instances: tuple[Instance, ...]


class MachineRecords(NamedTuple):
    """The records of an instance, of its agent's presence, and of the streams that gateways request from it."""

    status: Record | None
    presence: Record | None
    streams: tuple[Record, ...]


def has_room(instance: Instance) -> bool:
    live = instance.status not in (InstanceStatus.terminating, InstanceStatus.terminated)
    return live and instance.free_blocks > 0 and not instance.unreachable


def _body_of(run: Run) -> Key:
    return keys.run_body(run.id, run.deployment_num)


def _live(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    staying = (i for i in instances if i.status is not InstanceStatus.terminated)
    return tuple(sorted(staying, key=lambda i: (i.num, i.epoch)))


def _as_imported(export: Export, view: FleetView) -> FleetView:
    """A shared fleet as the importing project sees it. Machines where jobs run as the agent's user are left out: a job
    could do everything there that the agent can."""
    fleet = view.fleet.with_(name=f"{export.project_name}/{view.fleet.name}")
    return FleetView(fleet, view.spec, tuple(i for i in view.instances if not unisolated(i)), imported=True)


def owners(store: Store, project_id: str) -> Iterator[str]:
    """The ids of a project's fleets and gateways, which may have machines."""
    for kind in ("fleet-name/", "gateway-name/"):
        for named in every(store, f"project/{project_id}", kind):
            yield nouns.pointed(named)


Again = Callable[[Instance], bool]


class Reader:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._run_specs: Lru[RunSpec] = Lru(SPECS)
        self._job_specs: Lru[tuple[JobSpec, ...]] = Lru(SPECS)
        self._finished: Lru[RunRow] = Lru(1000)
        self._bodies: Lru[RunBody] = Lru(512)
        self._fleet_specs: Lru[FleetSpec] = Lru(128)
        self._parsed: Lru[tuple[int, bytes, Noun]] = Lru(4096)
        self._terminated: Lru[bool] = Lru(4096)  # ids of terminated instances, which needn't be read again

    # --- nouns -------------------------------------------------------------------------------------------------------

    def find(self, kind: type[N], key: Key) -> N | None:
        record = self.store.get(key)
        return None if record is None else self.parse(kind, record)

    def find_many(self, kind: type[N], found: Sequence[Key]) -> list[N | None]:
        if not found:
            return []
        return [None if record is None else self.parse(kind, record) for record in self.store.get_many(found)]

    def machine(self, instance_id: str) -> MachineRecords:
        """The records of one machine. They are neighbours in the table, so this is one read."""
        instance, presence = keys.instance(instance_id), keys.presence(instance_id)
        orders = keys.stream_order(instance_id, "").sk
        found = {record.key: record for record in self.store.query("main", instance.pk).records}
        streams = tuple(record for key, record in found.items() if key.sk.startswith(orders))
        return MachineRecords(found.get(instance), found.get(presence), streams)

    def parse(self, kind: type[N], record: Record) -> N:
        cached = self._parsed.peek(record.key)
        if cached is not None:
            version, body, noun = cached
            if version == record.version and body == record.body and isinstance(noun, kind):
                return noun
        parsed = nouns.read(kind, record)
        self._parsed.put(record.key, (record.version, record.body, parsed))
        return parsed

    def wrote(self, noun: Noun, record: Record, version: int) -> None:
        """Cache a noun that was just committed as this version of its record, so that it needn't be parsed again."""
        if noun.kind:  # specs are large, and are cached in their own form
            self._parsed.put(record.key, (version, record.body, noun.with_(version=version)))

    # --- runs --------------------------------------------------------------------------------------------------------

    def run_rows(self, runs: Sequence[Run]) -> list[RunRow]:
        """`run_row` of each. Reading a run's partition takes a call to the table, so records whose keys are known are
        read together: while the first submission of the only job is live, there is no other, and where there is no
        second submission of it, there was none."""
        kept = {run.id: row for run in runs if run.finished and (row := self._finished.peek((run.id, run.version)))}
        likely = [run for run in runs if run.id not in kept and not run.scales]
        bodies = {key: body for run in likely if (body := self._bodies.peek(key := _body_of(run)))}
        unread = [key for run in likely if (key := _body_of(run)) not in bodies]
        firsts = [keys.job(run.id, 0, 0, 0) for run in likely]
        seconds = [keys.job(run.id, 0, 0, 1) for run in likely if run.finished]
        wanted = [*unread, *firsts, *seconds]
        found = {record.key: record for record in (self.store.get_many(wanted) if wanted else ()) if record}
        for key in unread:
            if key in found:
                bodies[key] = self._cache_if_small(nouns.read(RunBody, found[key]))
        rows = kept
        for run, first in zip(likely, firsts, strict=True):
            job = self.parse(Job, found[first]) if first in found else None
            texts = bodies[_body_of(run)].job_texts() if _body_of(run) in bodies else ()
            only = keys.job(run.id, 0, 0, 1) not in found if run.finished else job is not None and not job.finished
            if job is not None and only and len(texts) == 1:
                rows[run.id] = self._kept(RunRow(run, bodies[_body_of(run)].run_spec, texts, (job,)))
        return [rows.get(run.id) or self.run_row(run) for run in runs]

    def _kept(self, row: RunRow) -> RunRow:
        """The row, cached if it never changes again."""
        if row.run.finished and len(row.jobs) <= FEW_JOBS:
            self._finished.put((row.run.id, row.run.version), row)
        return row

    def _cache_if_small(self, body: RunBody) -> RunBody:
        if sum(map(len, (body.run_spec, *body.job_specs))) <= SMALL:
            self._bodies.put(keys.run_body(body.run_id, body.deployment_num), body)
        return body

    def run_row(self, run: Run) -> RunRow:
        """The run with the text of its specs and its jobs."""
        if not run.finished:
            return self._run_row(run)
        return self._finished.peek((run.id, run.version)) or self._kept(self._run_row(run))

    def _run_row(self, run: Run) -> RunRow:
        """Read by one query: everything of a run is in one partition."""
        low = keys.run_body(run.id, run.deployment_num).sk
        records = list(all_of(self.store, "main", f"run/{run.id}", low=low, high="job0"))
        if not records or records[0].key.sk != low:
            raise Bug(f"run {run.id} has no spec at deployment {run.deployment_num}")
        body = nouns.read(RunBody, records[0])
        jobs = tuple(self.parse(Job, record) for record in records if record.key.sk.startswith("job/"))
        return RunRow(run, body.run_spec, self._texts(run, body, jobs), jobs)

    def _texts(self, run: Run, body: RunBody, jobs: Iterable[Job]) -> tuple[str, ...]:
        """The specs of all jobs; for a service those of its replicas, each at the deployment of its last submission."""
        if not body.groups:
            return body.job_texts()
        latest = {job.slot: job for job in jobs}.values()
        bodies = {body.deployment_num: body}
        for num in {job.deployment_num for job in latest} - bodies.keys():
            bodies[num] = self.run_body(run.id, num)
        return tuple(bodies[job.deployment_num].replica_text(job.replica_group, job.replica_num) for job in latest)

    def run_and_jobs(self, run_id: str) -> tuple[Run | None, tuple[Job, ...]]:
        """The run and its jobs as of the last commit, without the specs."""
        run: Run | None = None
        jobs: list[Job] = []
        for record in all_of(self.store, "main", f"run/{run_id}", low="job/"):  # bodies sort before jobs: not read
            if record.key.sk == keys.STATUS:
                run = self.parse(Run, record)
            else:
                jobs.append(self.parse(Job, record))
        return run, tuple(jobs)

    def jobs(self, run_id: str) -> tuple[Job, ...]:
        return tuple(
            self.parse(Job, each) for each in all_of(self.store, "main", f"run/{run_id}", low="job/", high="job0")
        )

    def newest_job(self, run_id: str, replica_num: int, job_num: int) -> Job | None:
        """The last submission of this node."""
        first = keys.job(run_id, replica_num, job_num, 0)
        place = first.sk.rpartition("/")[0]
        found = self.store.query("main", first.pk, low=f"{place}/", high=f"{place}0", limit=1, reverse=True).records
        return self.parse(Job, found[0]) if found else None

    def run_and_body(self, run_id: str, deployment_num: int) -> tuple[Run | None, RunBody | None]:
        """The run and the text of its spec, in one read."""
        run, body = self.store.get_many([keys.run(run_id), keys.run_body(run_id, deployment_num)])
        return (
            None if run is None else self.parse(Run, run),
            None if body is None else nouns.read(RunBody, body),
        )

    def run_spec(self, run_id: str, deployment_num: int) -> RunSpec:
        """The run's spec, as it is used for placement."""

        def parse() -> RunSpec:
            spec = RunSpec.model_validate_json(self.run_body(run_id, deployment_num).run_spec)
            return as_placed(spec, lambda: self._project_name(run_id))

        return self._run_specs.get((run_id, deployment_num), parse)

    def _project_name(self, run_id: str) -> str:
        run = self.find(Run, keys.run(run_id))
        project = None if run is None else nouns.find(self.store, Project, keys.project(run.project_id))
        return "" if project is None else project.name

    def job_specs(self, run_id: str, deployment_num: int) -> tuple[JobSpec, ...]:
        """The spec of each job, in order of replica and node; for a service, of each of its replica groups."""

        def parse() -> tuple[JobSpec, ...]:
            body = self.run_body(run_id, deployment_num)
            firsts = [JobSpec.model_validate_json(text) for text in body.job_specs]
            groups = zip(firsts, body.nodes or (1,) * len(firsts), strict=True)
            return tuple(
                first.with_(**own_of(vars(first), n)) if n else first for first, nodes in groups for n in range(nodes)
            )

        return self._job_specs.get((run_id, deployment_num), parse)

    def job_spec(self, job: Job) -> JobSpec:
        spec = spec_of(self.job_specs(job.run_id, job.deployment_num), job)
        if spec is None:
            raise Bug(f"job {job.id} has no spec for replica {job.replica_num}, node {job.job_num}")
        return spec

    def run_body(self, run_id: str, deployment_num: int) -> RunBody:
        body = nouns.find(self.store, RunBody, keys.run_body(run_id, deployment_num))  # large: not cached
        if body is None:
            raise Bug(f"run {run_id} has no spec at deployment {deployment_num}")
        return body

    def run_bodies(self, run: Run, limit: int) -> list[RunBody]:
        """The latest specs of a run, newest first."""
        first, last = keys.run_body(run.id, 0), keys.run_body(run.id, run.deployment_num)
        page = self.store.query("main", first.pk, low=first.sk, high=f"{last.sk}!", limit=limit, reverse=True)
        return [nouns.read(RunBody, record) for record in page.records]

    def nodes(self, runs: Sequence[Run]) -> list[int]:
        """The number of nodes of each run; 1 for a service, and for a run whose record is gone."""
        bodies = self.store.get_many([_body_of(run) for run in runs])
        return [1 if body is None else sum(nouns.read(RunBody, body).nodes) or 1 for body in bodies]

    # --- fleets ------------------------------------------------------------------------------------------------------

    def fleets(self, project_id: str) -> list[Fleet]:
        """All fleets of a project that aren't deleted. They are found by their names, without an index and its lag."""
        named = every(self.store, f"project/{project_id}", "fleet-name/")
        found = self.find_many(Fleet, [keys.fleet(nouns.pointed(record)) for record in named])
        return [fleet for fleet in found if fleet and not fleet.deleted]

    def volumes(self, project_id: str) -> list[Volume]:
        """All volumes of a project that aren't deleted, found like its fleets."""
        named = every(self.store, f"project/{project_id}", "volume-name/")
        found = self.find_many(Volume, [keys.volume(nouns.pointed(record)) for record in named])
        return [volume for volume in found if volume and not volume.deleted]

    def gateways(self, project_id: str) -> list[Gateway]:
        """All gateways of a project that aren't deleted, found like its fleets."""
        named = every(self.store, f"project/{project_id}", "gateway-name/")
        found = self.find_many(Gateway, [keys.gateway(nouns.pointed(record)) for record in named])
        return [gateway for gateway in found if gateway and not gateway.deleted]

    def default_gateway(self, project_id: str) -> Gateway | None:
        """The gateway of services that name none."""
        pointer = nouns.find_target(self.store, keys.default_gateway(project_id))
        found = None if pointer is None else self.find(Gateway, keys.gateway(pointer[0]))
        return None if found is None or found.ending else found

    def volumes_named(self, project_id: str, names: Iterable[str]) -> dict[str, Volume]:
        """The project's volumes with these names, as far as they exist."""
        keys_to_read = [keys.volume_name(project_id, name) for name in sorted(set(names))]
        named = self.store.get_many(keys_to_read) if keys_to_read else []
        found = self.find_many(Volume, [keys.volume(nouns.pointed(record)) for record in named if record is not None])
        return {volume.name: volume for volume in found if volume is not None and not volume.deleted}

    def live_runs(self, project_id: str) -> list[Run]:
        """All runs of a project that haven't finished. They are found by their names, without an index and its lag."""
        named = every(self.store, f"project/{project_id}", "run-name/")
        found = self.find_many(Run, [keys.run(nouns.pointed(record)) for record in named])
        return [run for run in found if run and not run.finished]

    def fleet_spec(self, fleet_id: str, spec_num: int) -> FleetSpec:
        return self._fleet_specs.get(
            (fleet_id, spec_num), lambda: FleetSpec.model_validate_json(self.fleet_body(fleet_id, spec_num).spec)
        )

    def fleet_body(self, fleet_id: str, spec_num: int) -> FleetBody:
        body = nouns.find(self.store, FleetBody, keys.fleet_body(fleet_id, spec_num))  # large: not cached
        if body is None:
            raise Bug(f"fleet {fleet_id} has no spec number {spec_num}")
        return body

    def fleet_row(self, fleet: Fleet, *, sure: bool = False) -> FleetRow:
        """The fleet with its instances as its index shows them; `sure`: in their current state, for changing them."""
        return FleetRow(fleet, self.fleet_body(fleet.id, fleet.spec_num).spec, self._shown(fleet, sure=sure))

    def fleet_machines(self, fleet: Fleet) -> FleetRow:
        """The fleet with its instances, without its spec."""
        return FleetRow(fleet, "", self._shown(fleet))

    def _shown(self, fleet: Fleet, *, sure: bool = False) -> tuple[Instance, ...]:
        failed = self.find_many(Instance, [keys.instance(each) for each in fleet.failed])
        live = _live(self._listed(fleet, lambda _: True).values()) if sure else self.instances(fleet.id)
        shown = {each.id for each in live}
        return (*live, *(each for each in failed if each is not None and each.id not in shown))

    def instances(self, fleet_id: str) -> tuple[Instance, ...]:
        """A fleet's instances that aren't terminated, as its index shows them, ordered by number."""
        found = all_of(self.store, "gsi1", keys.instances_of(fleet_id))
        return tuple(self.parse(Instance, record) for record in found)

    def fleet_views(
        self, project_id: str, hinted: Iterable[str] = (), again: Again = has_room
    ) -> tuple[FleetView, ...]:
        """All fleets of a project, then those that other projects share with it. Hinted instances, and those with free
        blocks, are read by key."""
        known = [found for found in self.find_many(Instance, [keys.instance(i) for i in hinted]) if found]

        def view(fleet: Fleet) -> FleetView:
            return self.view(fleet, [i for i in known if i.fleet_id == fleet.id], again=again)

        own, shared = self.usable_fleets(project_id)
        return (*map(view, own), *(_as_imported(export, view(fleet)) for export, fleet in shared))

    def usable_fleets(self, project_id: str) -> tuple[list[Fleet], list[tuple[Export, Fleet]]]:
        """A project's own fleets, and those that other projects share with it. Their names are neighbours in the table,
        with only the names of gateways between them, so this is one query."""
        named = list(all_of(self.store, "main", f"project/{project_id}", low="fleet-name/", high="import0"))
        own = [nouns.pointed(each) for each in named if each.key.sk.startswith("fleet-name/")]
        exports = self._imports(project_id, [each for each in named if each.key.sk.startswith("import/")])
        shared = {fleet_id: export for export in exports for fleet_id in export.fleets}
        found = self.find_many(Fleet, [keys.fleet(fleet_id) for fleet_id in dict.fromkeys((*own, *shared))])
        there = {fleet.id: fleet for fleet in found if fleet and not fleet.deleted}
        imported = [(export, there[fleet_id]) for fleet_id, export in shared.items() if fleet_id in there]
        return [there[fleet_id] for fleet_id in own if fleet_id in there], imported

    def imported_fleets(self, project_id: str) -> list[tuple[Export, Fleet]]:
        """The fleets of other projects that this one may use, each once."""
        return self.usable_fleets(project_id)[1]

    def imports(self, project_id: str) -> list[Export]:
        """The exports of other projects to this one."""
        return self._imports(project_id, every(self.store, f"project/{project_id}", "import/"))

    def _imports(self, project_id: str, own: Iterable[Record]) -> list[Export]:
        """`own`: the pointers to exports for this project, as opposed to those for all projects."""
        targets = [nouns.pointed(each).partition("/") for each in (*own, *every(self.store, "exports", "all/"))]
        found = self.find_many(Export, [keys.export(exporter, name) for exporter, _, name in targets])
        return list({export.id: export for export in found if export and export.is_for(project_id)}.values())

    def view(
        self, fleet: Fleet, known: Sequence[Instance] = (), *, alone: bool = False, again: Again = has_room
    ) -> FleetView:
        """A fleet with its live instances. `known`: instances just read by key, which take precedence over the index;
        `alone`: only those. `again` selects the instances that are read again by key, because a decision may change
        them."""
        live = {} if alone else self._listed(fleet, again)
        live.update((instance.id, instance) for instance in known)
        return FleetView(fleet, self.fleet_spec(fleet.id, fleet.spec_num), _live(live.values()))

    def _listed(self, fleet: Fleet, again: Again) -> dict[str, Instance]:
        """The fleet's instances: those in the index, and the newest, which the index may not show yet, by the ids
        derived from their numbers."""
        listed = self.instances(fleet.id)
        shown = {i.id for i in listed}
        young = range(max(0, fleet.next_instance_num - YOUNG), fleet.next_instance_num)
        hidden = [i for num in young if (i := instance_id(fleet.id, num)) not in shown and not self._terminated.peek(i)]
        keys_to_read = [*(i.id for i in listed if again(i)), *hidden]
        current = {i.id: i for i in self.find_many(Instance, [keys.instance(i) for i in keys_to_read]) if i}
        for i in keys_to_read:  # an instance without a record was terminated long ago
            if i not in current or current[i].status is InstanceStatus.terminated:
                self._terminated.put(i, True)
        return {i.id: i for i in listed} | current
