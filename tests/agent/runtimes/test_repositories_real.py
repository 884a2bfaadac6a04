"""Repositories of plain-process tasks: real git, real hosts behind https and ssh, and what a user reads when it fails.

Run by root, every task here has a user of its own, as on a machine that was bought.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import TaskContext, TaskError
from chalicelib.agent.runtimes import repositories
from chalicelib.agent.runtimes.accounts import TaskAccount
from chalicelib.agent.runtimes.git import OUTPUT_MOST, excerpt
from chalicelib.agent.runtimes.process import ProcessRuntime
from chalicelib.agent.volumes.volumes import TaskVolumes
from tests.agent import git_hosts
from tests.agent.git_hosts import Host, git
from tests.agent.runtime_conformance import Workshop, archive, kill_supervisor, sleepers
from tests.wire.far import CLOSED, OPEN, TOKEN


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with git_hosts.running() as host:
        yield host


@pytest.fixture
def workshop(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    for name, value in host.far.variables.items():
        monkeypatch.setenv(name, value)
    workshop = Workshop(tmp_path / "data", ProcessRuntime())
    yield workshop
    workshop.end()


def repo(url: str, **more: Any) -> dict[str, Any]:
    wanted = {"path": "app", "if_exists": "error", "name": "app", "branch": "main", "hash": None, "single_branch": True}
    return {**wanted, "url": url, "code": None, "oauth_token": None, "private_key": None, **more}


def output_of(workshop: Workshop, script: str, wanted: dict[str, Any], **spec: Any) -> str:
    task = workshop.start(script, repo=wanted, env={"TERM": "dumb", "PAGER": "cat"}, **spec)
    state = workshop.exited(task)
    assert state.get("exit_status") == 0, (state, workshop.log(task))
    return workshop.log(task).decode().replace("\r\n", "\n")


def refused(workshop: Workshop, wanted: dict[str, Any], **spec: Any) -> str:
    """The one line that the task's user reads."""
    task = workshop.start("echo started", repo=wanted, **spec)
    state = workshop.exited(task)
    assert (state["reason"], workshop.log(task)) == ("executor_error", b""), state
    assert "\n" not in state["message"] and "; " not in state["message"]  # which `apply` shows as two lines
    assert nothing_secret_is_left(workshop, task)
    return str(state["message"])


def nothing_secret_is_left(workshop: Workshop, task: str) -> bool:
    folder = workshop.data / "tasks" / task
    assert not (folder / "repository-credentials").exists()
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return not any(TOKEN.encode() in text or b"PRIVATE KEY" in text for text in texts)


# What the task gets ---------------------------------------------------------------------------------------------------


def test_a_branch_is_checked_out_and_belongs_to_the_task(workshop: Workshop, host: Host) -> None:
    script = (
        "cd app && cat a.txt dir/b.txt && git status -sb && git log --format=%s -1 && stat -c %u . .git a.txt; id -u"
    )
    lines = output_of(workshop, script, repo(host.open)).split("\n")
    assert lines[:6] == ["one", "two", "three", "b", "## main...origin/main", "second"]
    assert len(set(lines[6:10])) == 1


def test_the_default_branch_is_the_hosts(workshop: Workshop, host: Host) -> None:
    assert "main\n" in output_of(workshop, "git -C app branch --show-current", repo(host.open, branch=None))


def test_a_commit_is_checked_out_on_its_branch(workshop: Workshop, host: Host) -> None:
    script = "cd app && git rev-parse HEAD && ls && git branch -r"
    lines = output_of(workshop, script, repo(host.open, hash=host.commits["first"])).split("\n")
    assert lines[:2] == [host.commits["first"], "a.txt"] and "side" not in " ".join(lines)


def test_all_branches_come_if_one_isnt_enough(workshop: Workshop, host: Host) -> None:
    wanted = repo(host.open, single_branch=False, hash=host.commits["side"][:10])
    assert "side.txt" in output_of(workshop, "cd app && ls && git branch -r", wanted)


def test_a_commit_of_another_branch_is_found_by_its_whole_hash(workshop: Workshop, host: Host) -> None:
    git(host.bare, "config", "uploadpack.allowReachableSHA1InWant", "true")
    assert "side.txt" in output_of(workshop, "ls app", repo(host.open, hash=host.commits["side"]))


def test_uncommitted_changes_are_applied_and_stay_uncommitted(workshop: Workshop, host: Host, code: Any) -> None:
    wanted = repo(host.open, hash=host.commits["second"], code=code(host.patch("a.txt", "one\n2\nthree\n")))
    lines = output_of(workshop, "cd app && cat a.txt && git status -s; stat -c %u a.txt; id -u", wanted).split("\n")
    assert lines[:4] == ["one", "2", "three", " M a.txt"] and lines[4] == lines[5]


def test_who_commits_is_who_submitted(workshop: Workshop, host: Host) -> None:
    wanted = repo(host.open, user_name="-Ann\n x", user_email="ann@example.com")
    assert (
        output_of(workshop, "cd app; git config user.name; git config user.email", wanted)
        == "-Ann x\nann@example.com\n"
    )


def test_the_working_directory_itself_can_be_the_checkout(workshop: Workshop, host: Host) -> None:
    script = 'ls; test "$DSTACK_REPO_DIR" = "$PWD"'
    assert "a.txt" in output_of(workshop, script, repo(host.open, path="."))


@pytest.mark.parametrize(("path", "where"), [("~/x/y", "home/x/y"), ("sub", "home/w/sub")])
def test_a_task_is_told_where_its_code_is(workshop: Workshop, host: Host, path: str, where: str) -> None:
    script = 'echo "${DSTACK_REPO_DIR#$HOME}"; ls -1 "$DSTACK_REPO_DIR"'
    output = output_of(workshop, script, repo(host.open, path=path), working_dir="~/w")
    assert output.split("\n")[:2] == [where.removeprefix("home"), "a.txt"]


def test_files_come_after_it(workshop: Workshop, host: Host, tmp_path: Path) -> None:
    (tmp_path / "one.tar").write_bytes(archive({"a.txt": b"mine\n"}))
    given = [{"id": "1", "path": "app/a.txt", "url": str(tmp_path / "one.tar")}]
    assert output_of(workshop, "cat app/a.txt", repo(host.open), files=given) == "mine\n"


def test_a_submodule_comes_along_with_what_was_changed_in_it(workshop: Workshop, host: Host, code: Any) -> None:
    inner = host.root / "inner"
    git(host.root, "init", "-q", "-b", "main", str(inner))
    (inner / "i.txt").write_text("inner\n")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "i")
    with_submodule(host, "good", f"https://{OPEN}/inner/.git", git(inner, "rev-parse", "HEAD"))
    assert output_of(workshop, "cat app/sub/i.txt", repo(host.open, branch="good")) == "inner\n"
    patch = b"diff --git a/sub/i.txt b/sub/i.txt\n--- a/sub/i.txt\n+++ b/sub/i.txt\n@@ -1 +1 @@\n-inner\n+changed\n"
    changed = repo(host.open, branch="good", code=code(patch))
    assert output_of(workshop, "cat app/sub/i.txt", changed) == "changed\n"


def test_a_submodule_speaks_no_other_transport(workshop: Workshop, host: Host) -> None:
    with_submodule(host, "evil", f"file://{host.bare}", host.commits["first"])
    error = refused(workshop, repo(host.open, branch="evil"))
    assert "a submodule: only https and ssh are allowed" in error and "'file' not allowed" in error


def test_a_submodule_may_come_another_way_than_its_repository(workshop: Workshop, host: Host) -> None:
    with_submodule(host, "over-ssh", "ssh://git@127.0.0.1:1/a", host.commits["first"])
    error = refused(workshop, repo(host.open, branch="over-ssh"))
    assert "a submodule: its host can't be reached from this machine (ssh: connect to host 127.0.0.1 port 1" in error


def with_submodule(host: Host, branch: str, url: str, commit: str) -> None:
    git(host.work, "switch", "-q", "-c", branch, "main")
    (host.work / ".gitmodules").write_text(f'[submodule "sub"]\n\tpath = sub\n\turl = {url}\n')
    git(host.work, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    git(host.work, "add", ".gitmodules")
    git(host.work, "commit", "-q", "-m", branch)
    git(host.work, "push", "-q", "origin", branch)
    git(host.work, "switch", "-q", "--discard-changes", "main")


def test_uploaded_code_is_unpacked_where_a_repository_would_be(workshop: Workshop, code: Any) -> None:
    wanted = {"path": "app", "if_exists": "error", "code": code(archive({"./x.txt": b"x", "./d/y.txt": b"y"}))}
    assert output_of(workshop, 'cat app/x.txt app/d/y.txt; echo "/${DSTACK_REPO_DIR##*/}"', wanted) == "xy/app\n"


# Credentials ----------------------------------------------------------------------------------------------------------


def test_a_token_reads_a_private_repository_and_is_nowhere_afterwards(workshop: Workshop, host: Host) -> None:
    script = "cat app/a.txt; cat app/.git/config; env; ls -a .. . /tmp"
    task = workshop.start(script, repo=repo(host.closed, oauth_token=TOKEN))
    workshop.exited(task)
    log = workshop.log(task).decode()
    assert "one" in log and f"url = {host.closed}" in log and TOKEN not in log
    assert nothing_secret_is_left(workshop, task)


def test_no_process_shows_the_token(workshop: Workshop, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git` is a program that writes down what anybody could see of it and its parent, then is the real one."""
    seen, real = host.root / "seen", shutil.which("git")
    seen.mkdir(mode=0o777, exist_ok=True)
    seen.chmod(0o777)
    (host.root / "bin").mkdir(exist_ok=True)
    program = host.root / "bin" / "git"
    program.write_text(
        f'#!/bin/sh\n(tr "\\0" " " < /proc/$$/cmdline; echo; env; stat -c "%a %u" "$HOME" "$HOME"/*) > {seen}/$$\n'
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    output_of(workshop, "true", repo(host.closed, oauth_token=TOKEN))
    texts = [text for path in seen.iterdir() if "GIT_ALLOW_PROTOCOL" in (text := path.read_text())]  # else the host's
    assert len(texts) > 2 and not any(TOKEN in text for text in texts)
    assert all(re.search(r"^700 \d+$", text, re.MULTILINE) and "\n600 " in text for text in texts)
    assert "GIT_ALLOW_PROTOCOL=https:ssh" in texts[0] and "SECRET_OF_THE_AGENT" not in texts[0]


def test_a_key_reads_over_ssh_and_is_nowhere_afterwards(workshop: Workshop, host: Host) -> None:
    with git_hosts.sshd(host.bare) as server:
        task = workshop.start(
            "cat app/a.txt; stat -c %u app/a.txt; id -u", repo=repo(server.url, private_key=server.key)
        )
        workshop.exited(task)
        lines = workshop.log(task).decode().split("\r\n")
        assert lines[:3] == ["one", "two", "three"] and lines[3] == lines[4], workshop.state(task)
        assert nothing_secret_is_left(workshop, task)
        assert f"[127.0.0.1]:{server.port} ssh-ed25519" in (workshop.data / "known_hosts").read_text()


def test_nothing_of_it_runs_as_root(workshop: Workshop, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither git, which reads what somebody else wrote, nor ssh, which it starts."""
    folder = host.root / "who"
    folder.mkdir()
    folder.chmod(0o777)
    for name in ("git", "ssh"):
        text = f'#!/bin/sh\necho {name} $(id -u) $(id -un) >> {folder}/ran\nexec {shutil.which(name)} "$@"\n'
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with git_hosts.sshd(host.bare) as server:
        uid, name = output_of(workshop, "id -u; id -un", repo(server.url, private_key=server.key)).split()
    assert uid != "0"
    assert set((folder / "ran").read_text().splitlines()) == {f"git {uid} {name}", f"ssh {uid} {name}"}


def test_a_host_with_another_key_than_before_isnt_trusted(workshop: Workshop, host: Host) -> None:
    with git_hosts.sshd(host.bare) as server:
        output_of(workshop, "true", repo(server.url, private_key=server.key))
        server.new_host_key()
        assert "another ssh key than this machine saw first" in refused(
            workshop, repo(server.url, private_key=server.key)
        )


def test_a_wrong_key_is_said_to_be_one(workshop: Workshop, host: Host, tmp_path: Path) -> None:
    other = git_hosts.keygen(tmp_path / "other")
    with git_hosts.sshd(host.bare) as server:
        assert "the stored key can't read it" in refused(workshop, repo(server.url, private_key=other))
        assert "can't be read without credentials" in refused(workshop, repo(server.url))


def test_a_token_is_for_its_own_host_only(workshop: Workshop, host: Host) -> None:
    """The private host is asked for a submodule, with the credentials of another one."""
    with_submodule(host, "elsewhere", host.closed, host.commits["first"])
    error = refused(workshop, repo(host.open, branch="elsewhere", oauth_token=TOKEN))
    assert "a submodule: " in error and f"could not read Username for 'https://{CLOSED}'" in error


# What a user reads ----------------------------------------------------------------------------------------------------

REFUSED = {
    "no branch": (repo("{open}", branch="nope"), "{open}: it has no branch `nope`"),
    "odd branch": (repo("{open}", branch="-x"), "`-x` can't be the name of a branch"),
    "no commit": (repo("{open}", hash="0" * 40), f"it has no commit {'0' * 40} on the branch `main` (was it pushed?)"),
    "odd commit": (repo("{open}", hash="--all"), "`--all` isn't the hash of a commit"),
    "no credentials": (repo("{closed}"), "it can't be read without credentials (fatal: could not read Username"),
    "a wrong token": (repo("{closed}", oauth_token="wr0ng"), "the stored token can't read it (fatal: Authentication"),
    "not there": (repo(f"https://{OPEN}/nope.git"), "it can't be read without credentials (fatal: repository"),
    "unreachable": (repo("https://elsewhere.example/a.git"), "its host can't be reached from this machine (fatal:"),
    "silent ssh": (repo("ssh://git@127.0.0.1:1/a"), "its host can't be reached from this machine (ssh: connect to"),
    "a file": (repo("file:///etc"), "only https and ssh addresses can be cloned"),
    "a program": (repo("ext::sh -c id"), "only https and ssh addresses can be cloned"),
    "an option": (repo("--upload-pack=id"), "only https and ssh addresses can be cloned"),
    "no host": (repo("https:///a"), "only https and ssh addresses can be cloned"),
    "an odd host": (repo("ssh://git@-oProxyCommand=x/a"), "only https and ssh addresses can be cloned"),
    "a host with settings": (repo('https://h"]helper=!id#/a', oauth_token="t"), "only https and ssh addresses"),
    "a password": (repo("https://me:pw@h.example/a"), "the repository's address holds a password"),
    "elsewhere": (repo("{open}", path="/etc/evil"), "/etc/evil"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_failure_is_one_line_with_its_reason(workshop: Workshop, host: Host, case: str) -> None:
    wanted, reason = REFUSED[case]
    if case == "elsewhere" and os.getuid() != 0:
        pytest.skip("needs a user of the task's own")
    filled = {name: fill(value, host) for name, value in wanted.items()}
    error = refused(workshop, filled)
    assert fill(reason, host) in error and "wr0ng" not in error and "pw@" not in error


def fill(text: Any, host: Host) -> Any:
    return text.replace("{open}", host.open).replace("{closed}", host.closed) if isinstance(text, str) else text


def test_a_patch_that_doesnt_fit_names_the_file_and_the_line(workshop: Workshop, host: Host, code: Any) -> None:
    patch = host.patch("a.txt", "one\n2\nthree\n").replace(b"-two", b"-zwei")
    error = refused(workshop, repo(host.open, code=code(patch)))
    assert error.endswith("the patch with the uncommitted changes doesn't fit: a.txt, line 1")


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (b"no patch at all\n", "No valid patches"),
        (b"--- a/../x\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n", "invalid path"),
        (b"--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n", "invalid path"),
    ],
)
def test_a_patch_that_is_none_or_reaches_out_is_refused(
    workshop: Workshop, host: Host, code: Any, patch: bytes, reason: str
) -> None:
    assert reason in refused(workshop, repo(host.open, code=code(patch)))


def test_a_folder_with_something_in_it_is_left_alone(workshop: Workshop, host: Host) -> None:
    full = host.root / "full"
    full.mkdir(exist_ok=True)
    full.chmod(0o777)
    (full / "mine").write_text("mine")
    error = refused(workshop, repo(host.open, path=str(full), oauth_token=TOKEN))
    assert error.startswith(f"repository: {full} exists and isn't empty") and "`if_exists: skip`" in error
    assert output_of(workshop, f"ls {full}", repo(host.open, path=str(full), if_exists="skip")) == "mine\n"


def test_a_machine_without_git_says_so(workshop: Workshop, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(host.root / "nowhere"))
    assert refused(workshop, repo(host.open)).startswith("git isn't installed on this machine")


def test_hooks_and_settings_of_the_host_have_no_say(
    workshop: Workshop, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = host.root / "template" / "hooks"
    hooks.mkdir(parents=True, exist_ok=True)
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {host.root}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hooks.parent))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(hooks))
    assert output_of(workshop, "test ! -e app/.git/hooks && echo none", repo(host.open)) == "none\n"
    assert not (host.root / "ran").exists()


# What may happen meanwhile --------------------------------------------------------------------------------------------


def test_a_stop_ends_a_clone(workshop: Workshop, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.root / "slow").mkdir(exist_ok=True)
    (host.root / "slow" / "git").write_text("#!/bin/sh\nexec sleep 8642\n")
    (host.root / "slow" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{host.root}/slow:{os.environ['PATH']}")
    task = workshop.start("true", repo=repo(host.open, oauth_token=TOKEN))
    workshop.until(lambda: workshop.state(task)["state"] == "pulling", task)
    workshop.roster.stop(task, 1)
    assert workshop.exited(task)["reason"] == "terminated_by_user"
    assert nothing_secret_is_left(workshop, task)


def test_a_killed_supervisors_successor_clones_again(
    workshop: Workshop, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{stuck_once(host.root, '8643')}:{os.environ['PATH']}")
    task = workshop.start("cat app/a.txt", repo=repo(host.closed, oauth_token=TOKEN))
    workshop.until(lambda: sleepers("8643"), task)
    kill_supervisor(workshop, task)
    workshop.new_roster().launch(task, workshop.fetch)
    assert workshop.exited(task)["exit_status"] == 0, workshop.state(task)
    assert not sleepers("8643") and nothing_secret_is_left(workshop, task)


def stuck_once(root: Path, seconds: str) -> Path:
    """A folder with a `git` that gets stuck the first time, and is the real one from then on."""
    folder = root / f"stuck-{seconds}"
    folder.mkdir()
    folder.chmod(0o777)
    real = shutil.which("git")
    text = f'#!/bin/sh\n[ -e {folder}/was ] && exec {real} "$@"\n> {folder}/was\nexec sleep {seconds}\n'
    (folder / "git").write_text(text)
    (folder / "git").chmod(0o755)
    return folder


def test_tasks_that_are_trusted_get_their_code_too(workshop: Workshop, host: Host) -> None:
    workshop.roster = workshop.new_roster("agent")
    lines = output_of(
        workshop, "cat app/a.txt; stat -c %u app app/.git/HEAD; id -u", repo(host.closed, oauth_token=TOKEN)
    )
    assert lines.split() == ["one", "two", "three", *[str(os.getuid())] * 3]
    assert not list((workshop.data / "tasks" / workshop.started[-1]).glob("repository*"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may run a task as somebody else")
def test_a_user_that_the_spec_names_owns_its_code(workshop: Workshop, host: Host) -> None:
    assert set(
        output_of(
            workshop, "stat -c %u app app/.git/HEAD; id -u", repo(host.open), user="54321", user_permitted=True
        ).split()
    ) == {"54321"}


def test_the_spec_on_disk_has_no_credentials(workshop: Workshop, host: Host) -> None:
    workshop.roster.create("t", {"repo": repo(host.closed, oauth_token=TOKEN), "commands": ["true"]}, [])
    folder = workshop.data / "tasks" / "t"
    assert TOKEN not in (folder / "spec.json").read_text()
    credentials = folder / "repository-credentials"
    assert TOKEN in credentials.read_text() and credentials.stat().st_mode & 0o777 == 0o600
    workshop.roster.remove("t")


def test_a_task_whose_credentials_were_used_up_doesnt_blame_them(workshop: Workshop, host: Host) -> None:
    task = "interrupted"
    workshop.started.append(task)
    workshop.roster.create(task, {"id": task, "repo": repo(host.closed, oauth_token=TOKEN), "commands": ["true"]}, [])
    (workshop.data / "tasks" / task / "repository-credentials").unlink()
    workshop.roster.launch(task, workshop.fetch)
    assert "interrupted after its repository's credentials were erased" in workshop.exited(task)["message"]


# Limits of the machine ------------------------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[Path]:
    """A disk of two megabytes of memory, open to everybody."""
    folder = Path(tempfile.mkdtemp(prefix="small-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=777", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("no small disk can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


@pytest.fixture(scope="module")
def big(host: Host) -> str:
    """A branch with three megabytes that can't be packed smaller."""
    git(host.work, "switch", "-q", "-c", "big", "main")
    (host.work / "dir" / "big.bin").write_bytes(os.urandom(3_000_000))
    git(host.work, "add", ".")
    git(host.work, "commit", "-q", "-m", "big")
    git(host.work, "push", "-q", "origin", "big")
    git(host.work, "switch", "-q", "main")
    return "big"


def context(workshop: Workshop, wanted: dict[str, Any]) -> TaskContext:
    workshop.roster.create("t", {"repo": wanted}, [])
    folder = workshop.roster.folder("t")

    def wait(seconds: float) -> None:
        threading.Event().wait(seconds)

    return TaskContext(
        folder, folder.launch()["spec"], {}, 0, lambda state, **fields: None, wait, TaskVolumes(folder, [])
    )


def test_a_disk_that_is_full_while_git_fetches_is_the_reason(
    workshop: Workshop, host: Host, small: Path, big: str
) -> None:
    with pytest.raises(TaskError, match="the disk of this machine is full"):
        repositories.clone(context(workshop, repo(host.open, branch=big)), TaskAccount(None), str(small), {})
    assert list(small.iterdir()) == []


def test_a_disk_that_is_full_where_the_code_goes_is_the_reason(
    workshop: Workshop, host: Host, small: Path, big: str
) -> None:
    error = refused(workshop, repo(host.open, branch=big, path=str(small)))
    assert error == f"repository: {small}: the disk of this machine is full"
    assert list(small.iterdir()) == []


def test_a_clone_that_takes_too_long_is_given_up(workshop: Workshop, host: Host, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=f"repository {host.open}: it wasn't cloned in 0 minutes"):
        repositories.clone(context(workshop, repo(host.open)), TaskAccount(None), str(tmp_path), {}, seconds=0.0)


def test_a_server_that_talks_without_end_fills_no_memory() -> None:
    output = b""
    for number in range(100):
        output = excerpt(output + b"%06d" % number * 2000)
    assert len(output) == 2 * OUTPUT_MOST and output.startswith(b"000000") and output.endswith(b"000099")
