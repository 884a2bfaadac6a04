"""Exports and imports: who may share hosts and with whom, what the other side sees and may do, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import UnixUser
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.offers import Disk
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.tenants import Member, Project, ProjectRole
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.engine.reconcile import Reconciler
from chalicelib.errors import Contended, NotFound
from chalicelib.planning.jobs.jobs import agent_task
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases import specs
from chalicelib.usecases.machines import exports
from chalicelib.usecases.people import quotas, users
from tests.api.rig import ADMIN, Rig, fleet, task
from tests.api.test_fleets import create
from tests.api.test_races import contended
from tests.world import nouns as b

LAB = "/api/project/lab"
GPUS = "lab/gpus"


class Center:
    """`main`, which has no hosts, and `lab`, which has two, with an admin and a user each."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.store = rig, rig.world.plane.store
        self.lab = rig.another_project("lab")
        for project in (rig.project, self.lab):
            for role in (ProjectRole.admin, ProjectRole.user):
                rig.user(f"{project.name}-{role.value}", role, project)
        self.gpus = self.fleet(self.lab, "gpus")

    def fleet(self, project: Project, name: str, *, hosts: int = 2, **host: Any) -> list[Instance]:
        made = b.fleet(name).with_(project_id=project.id, next_instance_num=hosts)
        spec = {
            "configuration": {"type": "fleet", "name": name, "ssh_config": {"hosts": ["10.0.0.1"]}},
            "profile": {"name": "default"},
        }
        self.store.commit([nouns.pointer(keys.fleet_name(project.id, name), made.id)])
        self.rig.save(made, FleetBody(fleet_id=made.id, spec=specs.text_of(spec)))
        now, has = self.rig.world.now(), b.resources(8, 64, disk=Disk(size_mib=200_000), cpu_arch="x86")
        since = {"created_at": now, "last_processed_at": now, "started_at": now, "idle_since": now}
        filled = {"runtimes": ("docker",), "isolation": "container", "has": has, **since, **host}
        instances = [b.host(n, made, **filled).with_(project_id=project.id) for n in range(hosts)]
        for each in instances:
            self.rig.save(each, b.presence_of(each, last=now, promise=b.MINUTE, facts=b.host_facts(64, 512)))
        return instances

    def share(self, token: str = ADMIN, **body: Any) -> Any:
        filled = {"name": "hosts", "importer_projects": ["main"], "exported_fleets": ["gpus"], **body}
        return self.rig.call(f"{LAB}/exports/create", filled, token=token)

    def submit(self, name: str = "train", token: str = "main-admin-token", **more: Any) -> Job:
        run = self.rig.ok("P/runs/apply", {"plan": {"run_spec": task(name, **more)}}, token=token)
        return self.job(run["id"])

    def job(self, run_id: str) -> Job:
        found = nouns.find(self.store, Job, keys.job(run_id, 0, 0, 0))
        assert found is not None
        return found

    def passes(self, *units: str) -> None:
        plane = self.rig.world.plane
        read = Reader(self.store)
        done = Reconciler(
            self.store,
            self.rig.world.clock,
            wake=self.rig.world.woken.extend,
            notify_agents=plane.notify_agents,
            effects=_Undone(),
            catalog=plane.catalog,
            backends=plane.backends,
            load=Loader(read, plane.catalog, plane.backends),
        ).run([*self.rig.world.take_woken(), *units])
        assert not done.failed, done.failed


class _Undone:
    """Nothing is bought here."""

    def submit(self, effect: Effect) -> None:
        raise AssertionError(effect)


@pytest.fixture
def center(rig: Rig) -> Center:
    return Center(rig)


def names(found: Sequence[Any], key: str = "name") -> list[str]:
    return [each[key] for each in found]


# --- who may ---------------------------------------------------------------------------------------------------------


def test_what_is_shared_is_listed_on_either_side(center: Center) -> None:
    made = center.share().json
    fleets = [{"id": center.gpus[0].fleet_id, "name": "gpus"}]
    shared = {"id": made["id"], "name": "hosts", "exported_fleets": fleets, "exported_gateways": []}
    assert made == {**shared, "is_global": False, "imports": [{"project_name": "main"}]}
    assert center.rig.ok(f"{LAB}/exports/list", token="lab-admin-token") == [made]
    (found,) = center.rig.ok("P/imports/list", token="main-user-token")
    assert found["export"] == {**shared, "project_name": "lab"}
    assert center.rig.ok("P/exports/list") == center.rig.ok(f"{LAB}/imports/list") == []


@pytest.mark.parametrize("token", ["lab-user-token", "main-admin-token", "main-user-token"])
def test_only_admins_of_the_project_share_its_hosts(center: Center, token: str) -> None:
    assert center.share(token).status == 403


def test_an_admin_of_one_side_only_cant_share_with_the_other(center: Center) -> None:
    refused = center.share("lab-admin-token")
    assert refused.status == 400
    assert "no project 'main' of which you are an admin" in refused.body.decode()
    nowhere = center.share("lab-admin-token", importer_projects=["nowhere"])
    assert nowhere.body == refused.body.replace(b"main", b"nowhere"), "nobody can probe for names"
    both = center.rig.user("both", ProjectRole.admin)
    member = nouns.find_target(center.store, keys.user_name("both"))
    assert member is not None
    center.rig.save(Member(project_id=center.lab.id, user_id=member[0], role=ProjectRole.admin))
    assert center.share(both).status == 200


def test_only_global_admins_share_with_everybody(center: Center) -> None:
    wanted = {"importer_projects": [], "is_global": True}
    assert center.share("lab-admin-token", **wanted).status == 403
    assert center.share(**wanted).status == 200
    center.rig.another_project("third")
    assert names(center.rig.ok("/api/project/third/fleets/list", {"include_imported": True})) == ["gpus"]
    assert "A global admin may end that" in center.rig.refused(
        "P/imports/delete", {"export_name": "hosts", "export_project_name": "lab"}
    )
    center.fleet(center.lab, "more")
    more = {"name": "hosts", "add_exported_fleets": ["more"]}
    assert center.rig.call(f"{LAB}/exports/update", more, token="lab-admin-token").status == 403
    less = {"name": "hosts", "remove_exported_fleets": ["gpus"]}
    center.rig.ok(f"{LAB}/exports/update", less, token="lab-admin-token")
    center.rig.ok(f"{LAB}/exports/update", {"name": "hosts", "unset_global": True}, token="lab-admin-token")
    assert center.rig.ok("P/imports/list") == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "Bad Name"}, "can't be the name of an export"),
        ({"exported_fleets": ["nothing"]}, "no fleet 'nothing' in project lab"),
        ({"exported_fleets": ["cloud"]}, "are bought, and only SSH fleets can be shared"),
        ({"importer_projects": ["lab"]}, "own hosts needn't be shared"),
        ({"exported_gateways": ["gate"]}, "Gateways can't be shared"),
    ],
)
def test_what_cant_be_shared_is_refused(center: Center, body: dict[str, Any], message: str) -> None:
    center.rig.ok(f"{LAB}/fleets/apply", {"plan": {"spec": fleet("cloud")}, "force": False})
    refused = center.share(**body)
    assert refused.status == 400 and message in refused.body.decode()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"remove_importer_projects": ["man"]}, "has no importer 'man'. Its importers are main."),
        ({"remove_exported_fleets": ["gpu"]}, "has no fleet 'gpu'. Its fleets are gpus."),
    ],
)
def test_what_isnt_shared_cant_be_taken_back(center: Center, body: dict[str, Any], message: str) -> None:
    center.share()
    assert message in center.rig.refused(f"{LAB}/exports/update", {"name": "hosts", **body})
    assert names(center.rig.ok("P/imports/list")[0]["export"]["exported_fleets"]) == ["gpus"]


def test_a_token_for_a_project_shares_with_no_other(center: Center) -> None:
    """Whatever its user may: hosts that it adds there would run that project's jobs."""
    create, body = "/api/users/access_tokens/create", {"verbs": ["project"], "name": "ci"}
    narrow = center.rig.ok(create, {**body, "projects": ["lab"]})["token"]
    both = center.rig.ok(create, {**body, "name": "both", "projects": ["lab", "main"]})["token"]
    wide = center.rig.ok(create, {**body, "name": "wide"})["token"]
    reply = center.share(narrow)
    assert reply.status == 403 and b"The access token ci isn't for the project main" in reply.body
    for token in (narrow, both):
        reply = center.share(token, importer_projects=[], is_global=True)
        assert reply.status == 403 and b"can't share with every one" in reply.body
    assert center.share(narrow, importer_projects=[]).status == 200
    reply = center.rig.call(f"{LAB}/exports/update", {"name": "hosts", "add_importer_projects": ["main"]}, token=narrow)
    assert reply.status == 403 and b"isn't for the project main" in reply.body
    reply = center.rig.call(f"{LAB}/exports/update", {"name": "hosts", "set_global": True}, token=narrow)
    assert reply.status == 403 and b"can't share with every one" in reply.body
    assert center.rig.ok("P/imports/list") == []
    assert center.share(both, name="more").status == 200
    assert center.share(wide, name="all", importer_projects=[], is_global=True).status == 200


def test_a_name_is_taken_once(center: Center) -> None:
    assert center.share().status == 200
    assert center.share().json["detail"][0]["code"] == "resource_exists"


# --- what the other side sees and may do -----------------------------------------------------------------------------


def test_a_run_uses_a_shared_host_like_one_of_its_own(center: Center) -> None:
    center.share()
    body = {"run_spec": task("train", fleets=[GPUS])}
    plan = center.rig.ok("P/runs/get_plan", body, token="main-user-token")
    assert plan["job_plans"][0]["total_offers"] == 2
    job = center.submit(token="main-user-token", fleets=[GPUS])
    center.passes()
    job = center.job(job.run_id)
    assert job.status is JobStatus.provisioning and job.assignment is not None
    host = nouns.find(center.store, Instance, keys.instance(job.assignment.instance_id))
    assert host is not None and host.project_id == center.lab.id
    spec = Reader(center.store).job_spec(job)
    assert agent_task(job, spec, host, "main")["isolated"] is True


@pytest.mark.parametrize("within", ["configuration", "profile"])
def test_a_fleet_of_its_own_may_be_written_with_its_project(center: Center, within: str) -> None:
    center.fleet(center.rig.project, "own")
    spec = task("train", **({"fleets": ["main/own"]} if within == "configuration" else {}))
    spec |= {"profile": {"name": "here", "fleets": ["main/own"]}} if within == "profile" else {}
    plan = center.rig.ok("P/runs/get_plan", {"run_spec": spec})
    assert (plan["notes"], plan["job_plans"][0]["total_offers"]) == ([], 2)
    run = center.rig.ok("P/runs/apply", {"plan": {"run_spec": spec}})
    center.passes()
    assert center.job(run["id"]).status is JobStatus.provisioning
    again = center.rig.ok("P/runs/get_plan", {"run_spec": spec})
    assert again["action"] == "update", "it is what it was"


def test_the_fleet_is_shown_as_its_own_project_knows_it(center: Center) -> None:
    center.share()
    create(center.rig, fleet("own"))
    assert names(center.rig.ok("P/fleets/list")) == ["own"]
    found = center.rig.ok("P/fleets/list", {"include_imported": True}, token="main-user-token")
    assert [(each["project_name"], each["name"]) for each in found] == [("main", "own"), ("lab", "gpus")]
    body = {"project_name": "main", "include_imported": True}
    for path, more in (("/api/fleets/list", body), ("/api/instances/list", {"project_names": ["main"], **body})):
        assert "lab" in names(center.rig.ok(path, more, token="main-user-token"), "project_name")
    assert center.rig.ok("P/fleets/get", {"name": GPUS}, token="main-user-token")["project_name"] == "lab"
    for ascending in (False, True):
        page = {**body, "ascending": ascending, "limit": 1}
        seen: list[str] = []
        for _ in range(3):
            for row in center.rig.ok("/api/fleets/list", page, token="main-user-token"):
                seen.append(row["name"])
                page |= {"prev_created_at": row["created_at"], "prev_id": row["id"]}
        assert sorted(seen) == ["gpus", "own"], "each on a page of its own, and then none"


def test_without_an_import_nothing_of_it_is_seen_or_used(center: Center) -> None:
    create(center.rig, fleet("own"))
    for path in ("P/fleets/list", "/api/fleets/list"):
        assert names(center.rig.ok(path, {"include_imported": True}, token="main-user-token")) == ["own"]
    assert "No project shares a fleet" in center.rig.refused("P/fleets/get", {"name": GPUS}, token="main-user-token")
    job = center.submit(fleets=[GPUS])
    center.passes()
    assert center.job(job.run_id).status is JobStatus.failed


def test_who_imports_hosts_neither_changes_nor_deletes_nor_shares_them(center: Center) -> None:
    center.share()
    token = "main-admin-token"
    for verb, body in (("delete", {"names": ["gpus"]}), ("delete_instances", {"name": "gpus", "instance_nums": [0]})):
        assert "no fleet gpus in project main" in center.rig.refused(f"P/fleets/{verb}", body, token=token)
        assert center.rig.call(f"{LAB}/fleets/{verb}", body, token=token).status == 403
    again = {"name": "again", "importer_projects": [], "exported_fleets": ["gpus"]}
    assert "no fleet 'gpus' in project main" in center.rig.refused("P/exports/create", again, token=token)
    for verb in ("list", "update", "delete"):
        assert center.rig.call(f"{LAB}/exports/{verb}", {"name": "hosts"}, token=token).status == 403


@pytest.mark.parametrize(
    ("privileges", "why"),
    [
        ({"privileged": True, "image": "ubuntu"}, "takes no run with `privileged` or `docker`"),
        ({"volumes": [{"instance_path": "/data", "path": "/data"}]}, "takes no run with folders of its hosts"),
    ],
)
def test_jobs_of_others_get_no_privileges(center: Center, privileges: dict[str, Any], why: str) -> None:
    center.share()
    notes = center.rig.ok("P/runs/get_plan", {"run_spec": task("train", fleets=[GPUS], **privileges)})["notes"]
    assert [(note["subject"], why in note["text"]) for note in notes] == [(f"fleet `{GPUS}`", True)]


@pytest.mark.parametrize(("fleets", "folders"), [([GPUS], []), (["own"], ["/"])])
def test_not_even_folders_of_hosts_that_a_job_could_do_without(
    center: Center, fleets: list[str], folders: list[str]
) -> None:
    center.share()
    center.fleet(center.rig.project, "own")
    job = center.submit(fleets=fleets, volumes=[{"instance_path": "/", "path": "/host", "optional": True}])
    center.passes()
    job = center.job(job.run_id)
    assert job.assignment is not None
    host = nouns.find(center.store, Instance, keys.instance(job.assignment.instance_id))
    assert host is not None
    task = agent_task(job, Reader(center.store).job_spec(job), host, "main")
    assert [each["source"] for each in task["volumes"]] == folders


def test_no_job_is_a_user_of_another_projects_host(center: Center) -> None:
    center.fleet(center.lab, "plain", runtimes=("process",), isolation="user")
    center.share(exported_fleets=["plain"])
    run_spec = task("train", fleets=["lab/plain"], user="ann")
    plan = center.rig.ok("P/runs/get_plan", {"run_spec": run_spec})
    assert plan["job_plans"][0]["total_offers"] == 0
    assert "takes no run with `user`, because it has hosts that run plain processes" in str(plan["notes"])
    job = center.submit("other", fleets=["lab/plain"])
    center.passes()
    job = center.job(job.run_id)
    assert job.assignment is not None
    host = nouns.find(center.store, Instance, keys.instance(job.assignment.instance_id))
    assert host is not None
    spec = Reader(center.store).job_spec(job).with_(user=UnixUser(username="ann"), user_permitted=True)
    assert agent_task(job, spec, host, "main")["user_permitted"] is False
    assert agent_task(job.with_(project_id=host.project_id), spec, host, "lab")["user_permitted"] is True


def test_hosts_that_run_jobs_as_the_agents_own_user_arent_shared(center: Center) -> None:
    center.fleet(center.lab, "bare", runtimes=("process",), isolation="none")
    center.share(exported_fleets=["bare"])
    plan = center.rig.ok("P/runs/get_plan", {"run_spec": task("train", fleets=["lab/bare"])})
    assert plan["job_plans"][0]["total_offers"] == 0


# --- how it ends -----------------------------------------------------------------------------------------------------


def end_by_fleet(center: Center) -> None:
    center.rig.ok(f"{LAB}/exports/update", {"name": "hosts", "remove_exported_fleets": ["gpus"]})


def end_by_importer(center: Center) -> None:
    center.rig.ok(f"{LAB}/exports/update", {"name": "hosts", "remove_importer_projects": ["main"]})


def end_by_export(center: Center) -> None:
    center.rig.ok(f"{LAB}/exports/delete", {"name": "hosts"}, token="lab-admin-token")


def end_by_import(center: Center) -> None:
    body = {"export_name": "hosts", "export_project_name": "lab"}
    center.rig.ok("P/imports/delete", body, token="main-admin-token")


@pytest.mark.parametrize("end", [end_by_fleet, end_by_importer, end_by_export, end_by_import])
def test_jobs_end_with_what_let_them_run_there(center: Center, end: Any) -> None:
    center.share()
    job = center.submit(fleets=[GPUS])
    own = center.rig.call(f"{LAB}/runs/apply", {"plan": {"run_spec": task("own")}}).json["id"]
    center.passes()
    assert center.job(job.run_id).status is center.job(own).status is JobStatus.provisioning
    end(center)
    center.passes()
    ended = center.job(job.run_id)
    assert (ended.status, ended.reason) == (JobStatus.terminating, JobReason.instance_access_revoked)
    assert ended.message.endswith("is no longer shared with this project")
    assert center.job(own).status is JobStatus.provisioning
    assert center.rig.ok("P/fleets/list", {"include_imported": True}) == []


def test_a_fleet_in_use_by_others_isnt_deleted_and_names_no_run_of_theirs(center: Center) -> None:
    center.share()
    center.submit("secret-project", fleets=[GPUS])
    center.passes()
    refused = center.rig.call(f"{LAB}/fleets/delete", {"names": ["gpus"]})
    assert refused.status == 400
    assert "in use by runs of other projects" in refused.body.decode()
    assert "secret-project" not in refused.body.decode()


def test_an_import_counts_towards_the_quota_of_who_uses_it(center: Center) -> None:
    center.share()
    center.rig.ok("/api/projects/main/set_quota", {"jobs": 1})
    jobs = [center.submit(name, fleets=[GPUS]) for name in ("one", "two")]
    center.passes()
    assert sum(center.job(job.run_id).assignment is not None for job in jobs) == 1
    assert center.rig.ok("/api/projects/main/get_quota")["used"]["jobs"] == 1
    assert center.rig.ok("/api/projects/lab/get_quota")["used"]["jobs"] == 0


def test_either_side_reads_in_its_events_what_happened(center: Center) -> None:
    center.share()
    end_by_export(center)
    messages = {event["message"] for event in center.rig.ok("/api/events/list", {"limit": 100})}
    assert {
        "changed: export hosts created",
        "changed: import lab/hosts created",
        "changed: export hosts ended",
        "changed: import lab/hosts ended",
    } <= messages


def test_an_import_from_a_project_that_is_gone_isnt_ended_again(center: Center) -> None:
    assert center.share().status == 200
    plane, admin = center.rig.world.plane, users.named_user(center.store, "admin")
    center.store.commit([Delete(keys.project(center.lab.id))])
    with pytest.raises(NotFound, match="There is no project 'lab'"):
        exports.delete_import(plane, admin, center.rig.project, "lab", "hosts")


def test_what_changes_without_end_is_refused(center: Center) -> None:
    assert center.share().status == 200
    plane, admin, main = contended(center.rig), users.named_user(center.store, "admin"), center.rig.project
    with pytest.raises(Contended, match="The export hosts keeps changing"):
        exports.update(plane, admin, center.lab, "hosts", exports.ExportChange(no_fleets=["gpus"]))
    with pytest.raises(Contended, match="The export hosts keeps changing"):
        exports.delete(plane, admin, center.lab, "hosts")
    with pytest.raises(Contended, match="The import lab/hosts keeps changing"):
        exports.delete_import(plane, admin, main, "lab", "hosts")
    with pytest.raises(Contended, match="The quota of the project main keeps changing"):
        quotas.set_limits(plane, admin, main, None, {"gpus": 1})
    assert len(exports.list_imports(plane, main)) == 1
