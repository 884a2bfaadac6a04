"""A run's repository on its way from the store to the agent: whose credentials, which code, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.runtimes.git import check_url
from chalicelib.domain import keys
from chalicelib.domain.jobs import Job
from chalicelib.domain.tenants import Project, ProjectRole, Repo, User
from chalicelib.errors import Forbidden, Refused
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.agents.downloads import archive_content
from chalicelib.usecases.runs.repos import save_code, save_repo
from tests.api.rig import Rig, task
from tests.api.uploads import message, tar
from tests.usecases.cluster import INSTANCE, PROJECT, Cluster
from tests.world.plane import World

INFO = {"repo_type": "remote", "repo_name": "app"}
URL = "https://example.org/app.git"
PATCH = b"diff --git a/a.txt b/a.txt\n"
DATA = {**INFO, "repo_branch": "main", "repo_hash": "abcd", "repo_config_name": "Ann", "repo_config_email": "a@b"}


def creds(token: str) -> dict[str, Any]:
    return {"clone_url": URL, "oauth_token": token, "private_key": None}


def user(name: str) -> User:
    return User(id=name, name=name, created_at=0, token_hash="")


class Site:
    """A host, and the user whose runs come to it (the one of every run here is `u`)."""

    def __init__(self, world: World) -> None:
        self.cluster = Cluster.of(world)
        self.cluster.agent.join()
        self.plane = world.plane
        project = nouns.find(world.plane.store, Project, keys.project(PROJECT))
        assert project is not None
        self.project = project

    def init(self, who: str, token: str, repo_id: str = "app-1", info: dict[str, Any] = INFO) -> None:
        save_repo(self.plane, user(who), self.project, repo_id, info, creds(token))

    def code(self, content: bytes, repo_id: str = "app-1") -> str:
        digest = hashlib.sha256(content).hexdigest()
        save_code(self.plane, user("u"), self.project, repo_id, digest, content)
        return digest

    def task(self, **spec: Any) -> tuple[Job, dict[str, Any]]:
        """A run with this in its job's spec, and what its host is sent."""
        job = self.cluster.place(spec={"repo_id": "app-1", "repo_dir": "~/app", "repo_data": DATA, **spec})
        answer = self.cluster.agent.sync()
        return job, next((each["spec"] for each in answer["tasks"]), {})


@pytest.fixture
def site(world: World) -> Site:
    return Site(world)


def test_a_host_gets_what_the_runs_own_user_has_stored(site: Site, world: World) -> None:
    site.init("u", "t0ken-of-u")
    site.init("v", "t0ken-of-v")
    _, sent = site.task(repo_exists_action="skip", single_branch=False)
    assert sent["repo"] == {
        **{"path": "~/app", "if_exists": "skip", "name": "app", "branch": "main", "hash": "abcd"},
        **{"single_branch": False, "user_name": "Ann", "user_email": "a@b", "code": None},
        **{"url": URL, "oauth_token": "t0ken-of-u", "private_key": None},
    }
    assert b"t0ken" not in orjson.dumps({**sent, "repo": None})
    stored = b"".join(path.read_bytes() for path in world.folder.rglob("*") if path.is_file())
    assert b"t0ken" not in stored


@pytest.mark.parametrize("who", ["v", None])
def test_without_an_address_of_its_users_own_a_job_ends_and_says_so(site: Site, who: str | None) -> None:
    if who:
        site.init(who, "t0ken")
    job, sent = site.task()
    after = site.cluster.job(job)
    assert sent == {} and after.finished and "registered no repository 'app-1' any more" in after.message
    assert "dstack init" in after.message


def test_a_patch_is_sent_as_it_came_and_only_to_the_host_of_its_job(site: Site) -> None:
    site.init("u", "t0ken")
    _, sent = site.task(repo_code_hash=site.code(PATCH))
    code = sent["repo"]["code"]
    assert code["url"] == f"/agent/files/{code['id']}" and sent["files"] == []
    assert archive_content(site.plane, site.cluster.agent.credential, code["id"]) == PATCH


LINK = {
    "moved": b"index 1234567..89abcde 160000\n--- a/li b\n+++ b/li b\n@@ -1 +1 @@\n-Subproject commit 12\n",
    "dirty": b"--- a/li b\n+++ b/li b\n@@ -1 +1 @@\n-Subproject commit 12\n+Subproject commit 12-dirty",
    "added": b"new file mode 160000\nindex 0000000..89abcde\n",
    "removed": b"deleted file mode 160000\nindex 89abcde..0000000\n",
}


@pytest.mark.parametrize("change", LINK)
def test_a_patch_that_only_says_that_a_submodule_has_changed_is_refused_by_its_name(site: Site, change: str) -> None:
    """As plain `git diff` writes it: a job would run the old code."""
    site.init("u", "t0ken")
    with pytest.raises(Refused, match="the submodule li b has changed"):
        site.code(
            PATCH + b"index 1..2 100644\n--- a/a.txt\n+++ b/a.txt\ndiff --git a/li b b/li b\n" + LINK[change] + b"\n"
        )
    site.code(
        PATCH
        + b"index 1..2\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-index 1234567..89abcde 160000\n+new file mode 160000\n"
    )


def test_a_patch_of_nothing_is_none(site: Site) -> None:
    site.init("u", "t0ken")
    assert site.task(repo_code_hash=site.code(b""))[1]["repo"]["code"] is None


def test_a_patch_that_was_never_uploaded_ends_the_job(site: Site) -> None:
    site.init("u", "t0ken")
    job, _ = site.task(repo_code_hash="0" * 64)
    assert "never uploaded" in site.cluster.job(job).message


def test_a_local_folder_goes_where_a_repository_would(site: Site) -> None:
    site.init("u", "", info={"repo_type": "local", "repo_dir": "/src"})
    digest = site.code(tar(("a.txt", b"a")))
    _, sent = site.task(repo_code_hash=digest, repo_data={"repo_type": "local", "repo_dir": "/src"})
    assert set(sent["repo"]) == {"path", "if_exists", "code"} and sent["repo"]["path"] == "~/app"
    assert b"./a.txt" in archive_content(site.plane, site.cluster.agent.credential, sent["repo"]["code"]["id"])


def test_an_empty_local_folder_is_nothing_to_bring(site: Site) -> None:
    site.init("u", "", info={"repo_type": "local", "repo_dir": "/src"})
    _, sent = site.task(repo_code_hash=site.code(tar()), repo_data={"repo_type": "local", "repo_dir": "/src"})
    assert sent["repo"] is None and sent["files"] == []


@pytest.mark.parametrize(("folder", "path"), [("/workflow", "."), ("sub", "sub")])
def test_code_without_a_repository_is_files(site: Site, folder: str, path: str) -> None:
    """`/workflow` is what older jobs were stored with: the default, which clients know by this name."""
    site.init("u", "", info={"repo_type": "virtual"})
    virtual = {"repo_data": {"repo_type": "virtual"}, "repo_dir": folder}
    _, sent = site.task(repo_code_hash=site.code(tar(("a.txt", b"a"))), **virtual)
    assert sent["repo"] is None and [each["path"] for each in sent["files"]] == [path]


def test_what_is_stored_already_isnt_written_again(site: Site) -> None:
    def stored() -> Repo:
        found = nouns.find(site.plane.store, Repo, keys.repo(PROJECT, "app-1"))
        assert found is not None
        return found

    site.init("u", "t0ken")
    site.init("u", "t0ken")
    assert stored().version == 1
    site.init("u", "t0ken", info={**INFO, "repo_name": "other"})
    assert (stored().version, orjson.loads(stored().info)["repo_name"]) == (2, "other")
    site.init("u", "another", info={**INFO, "repo_name": "other"})
    assert stored().version == 3


@pytest.mark.parametrize("lost", [keys.instance, keys.presence])
def test_nobody_downloads_for_an_instance_of_which_nothing_is_left(site: Site, lost: Any) -> None:
    site.init("u", "t0ken")
    _, sent = site.task(repo_code_hash=site.code(PATCH))
    site.plane.store.commit([Delete(lost(INSTANCE))])
    with pytest.raises(Forbidden, match="doesn't belong to an instance"):
        archive_content(site.plane, site.cluster.agent.credential, sent["repo"]["code"]["id"])


# What a plan says -----------------------------------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.at(tmp_path)


REMOTE = {"repo_id": "app-1", "repo_info": INFO, "repo_creds": creds("t0ken")}


def spec(**data: Any) -> dict[str, Any]:
    return {**task("train"), "repo_id": "app-1", "repo_data": {**DATA, **data}}


def test_a_run_with_a_repository_is_planned(rig: Rig) -> None:
    rig.ok("P/repos/init", REMOTE)
    plan = rig.ok("P/runs/get_plan", {"run_spec": {**spec(), "repo_dir": "~/app"}})
    job = plan["job_plans"][0]["job_spec"]
    assert (job["repo_data"]["repo_branch"], job["repo_dir"], job["repo_exists_action"]) == ("main", "~/app", None)
    assert b"t0ken" not in orjson.dumps(plan)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"repo_branch": "--upload-pack=x"}, "`--upload-pack=x` can't be the name of a branch"),
        ({"repo_branch": "a b"}, "`a b` can't be the name of a branch"),
        ({"repo_hash": "HEAD"}, "`HEAD` isn't the hash of a commit"),
        ({"repo_hash": "-abcd"}, "`-abcd` isn't the hash of a commit"),
        ({"repo_diff": "x"}, "repos/upload_code"),
    ],
)
def test_what_git_would_misread_is_refused(rig: Rig, data: dict[str, Any], message: str) -> None:
    rig.ok("P/repos/init", REMOTE)
    assert message in rig.refused("P/runs/get_plan", {"run_spec": spec(**data)})


def test_a_path_in_somebody_elses_home_is_refused(rig: Rig) -> None:
    rig.ok("P/repos/init", REMOTE)
    error = rig.refused("P/runs/get_plan", {"run_spec": {**spec(), "repo_dir": "~ann/x"}})
    assert error.startswith("run_spec.repo_dir: `~ann/x` isn't a path")


ODD = [
    *("http://h/a", "file:///etc", "ext::sh", "https://me:pw@h/a", "ssh://git:pw@h/a", "-oProxyCommand=x", "/etc"),
    *("https://h/a b", "https:///a", "https://h", "ssh://git@-oX/a", 'https://h"]helper=!id#/a', "https://h/a\x07"),
    *("https://h:x/a", "https://[::1/a", "git@h:-x", "git@h:", "-x@h:a"),
]
FINE = [
    *(URL, "https://h:8443/a", "https://me@h/a", "ssh://git@h:22/a", "git@h.example:me/app.git", "ssh://h/a"),
    *("https://[::1]:80/a", "git@[::1]:a", "https://h/a?b=c", "https://bücher.example/a"),
]


def test_the_agent_judges_addresses_alike() -> None:
    for url in FINE:
        check_url(url)
    for url in ODD:
        with pytest.raises(TaskError):
            check_url(url)


@pytest.mark.parametrize("url", ODD)
def test_an_address_that_no_job_can_clone_is_refused(rig: Rig, url: str) -> None:
    rig.ok("P/repos/init", {**REMOTE, "repo_creds": {"clone_url": url}})
    error = rig.refused("P/runs/get_plan", {"run_spec": spec()})
    assert error.startswith("run_spec.repo_id: the registered address of the repository isn't one of https or ssh")
    assert "pw" not in error


@pytest.mark.parametrize("url", FINE)
def test_an_address_that_a_job_can_clone_is_taken(rig: Rig, url: str) -> None:
    rig.ok("P/repos/init", {**REMOTE, "repo_creds": {"clone_url": url}})
    rig.ok("P/runs/get_plan", {"run_spec": spec()})


def test_nobody_runs_with_the_credentials_of_another(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.user)
    rig.ok("P/repos/init", REMOTE)
    reply = rig.call(f"/api/project/{rig.project.name}/runs/get_plan", {"run_spec": spec()}, token=token)
    assert "you have registered no repository `app-1`" in message(reply)
    assert reply.json["detail"][0]["fields"] == ["run_spec.repo_id"]
