"""What a plain process is given: an account, an environment, folders; asked without starting one."""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import TaskContext, TaskError
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.runtimes import session_rights
from chalicelib.agent.runtimes.accounts import (
    FORMER_OUTSIDE,
    TaskAccount,
    device_groups,
    make_folder,
    make_home,
    outside,
    reachable,
    tidy,
    write_file,
)
from chalicelib.agent.runtimes.process import ProcessRuntime, task_environment
from chalicelib.agent.runtimes.visibility import TaskCards
from chalicelib.agent.volumes.volumes import TaskVolumes

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root may run a task as somebody else")
ME = pwd.getpwuid(os.getuid())
NOBODY = pwd.getpwnam("nobody")
SOME_GROUP = grp.getgrgid(0)
UNKNOWN = 54_321  # an id that no account has


@pytest.mark.parametrize("wanted", [None, "", {}, {"username": "", "uid": None}])
def test_nobody_in_particular_is_the_agents_own_account(wanted: Any) -> None:
    account = TaskAccount(wanted)
    assert (account.uid, account.gid, account.name, account.foreign) == (os.getuid(), os.getgid(), ME.pw_name, False)


@root_only
@pytest.mark.parametrize(
    ("wanted", "uid", "gid", "name"),
    [
        ("nobody", NOBODY.pw_uid, NOBODY.pw_gid, "nobody"),
        (str(NOBODY.pw_uid), NOBODY.pw_uid, NOBODY.pw_gid, "nobody"),
        ({"username": "nobody"}, NOBODY.pw_uid, NOBODY.pw_gid, "nobody"),
        ({"uid": NOBODY.pw_uid, "gid": 7}, NOBODY.pw_uid, 7, "nobody"),
        (f"nobody:{SOME_GROUP.gr_name}", NOBODY.pw_uid, SOME_GROUP.gr_gid, "nobody"),
        ({"username": "nobody", "groupname": SOME_GROUP.gr_name}, NOBODY.pw_uid, SOME_GROUP.gr_gid, "nobody"),
        ("nobody:12", NOBODY.pw_uid, 12, "nobody"),
        (str(UNKNOWN), UNKNOWN, UNKNOWN, str(os.getuid())),
    ],
)
def test_an_account_by_name_or_number(wanted: Any, uid: int, gid: int, name: str) -> None:
    account = TaskAccount(wanted)
    assert (account.uid, account.gid, account.foreign) == (uid, gid, True)
    assert account.name == (name if uid != UNKNOWN else account.name)


@root_only
@pytest.mark.parametrize(
    ("wanted", "ids"), [("root:7", (0, 7)), ("nobody:7", (NOBODY.pw_uid, 7)), (str(UNKNOWN), (UNKNOWN, UNKNOWN))]
)
def test_an_account_is_taken_on_with_its_group(wanted: str, ids: tuple[int, int]) -> None:
    assert become(wanted) == (*ids, True)


@root_only
def test_whoever_isnt_root_stays_as_it_is() -> None:
    ids = NOBODY.pw_gid, NOBODY.pw_uid
    assert become(None, lambda: (os.setgroups([]), os.setgid(ids[0]), os.setuid(ids[1])))[:2] == ids[::-1]


def become(wanted: Any, first: Callable[[], object] = lambda: None) -> tuple[int, int, bool]:
    """User, group, whether the group is one of its groups: in a process that became this account."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            first()
            TaskAccount(wanted).become()
            os.write(writer, json.dumps([os.getuid(), os.getgid(), os.getgid() in os.getgroups()]).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return tuple(json.load(pipe))


@pytest.mark.parametrize(
    ("wanted", "reason"), [("nosuchuser", "user nosuchuser"), (f"{ME.pw_name}:nosuchgroup", "group nosuchgroup")]
)
def test_who_isnt_here_is_named(wanted: str, reason: str) -> None:
    with pytest.raises(TaskError, match=f"{reason}: there is no such") as caught:
        TaskAccount(wanted)
    assert caught.value.reason == "executor_error"


def test_a_tasks_environment_in_full() -> None:
    account = TaskAccount(None)
    assert task_environment({"env": {"A": 1}}, account, "/h", "t", TaskCards("", [])) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/h",
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "A": "1",
        "DSTACK_AGENT_TASK": "t",
    }


def test_a_tasks_own_variables_win_but_for_the_mark() -> None:
    spec = {"shell": "/bin/bash", "env": {"HOME": "/mine", "CUDA_VISIBLE_DEVICES": "", "DSTACK_AGENT_TASK": "no"}}
    found = task_environment(spec, TaskAccount(None), "/h", "t", TaskCards("nvidia", ["GPU-a", "GPU-b"]))
    assert (found["HOME"], found["SHELL"], found["CUDA_VISIBLE_DEVICES"]) == ("/mine", "/bin/bash", "")
    assert found["DSTACK_AGENT_TASK"] == "t"
    assert (
        task_environment({}, TaskAccount(None), "/h", "t", TaskCards("nvidia", ["0", "1"]))["CUDA_VISIBLE_DEVICES"]
        == "0,1"
    )


@root_only
@pytest.mark.parametrize(
    ("mode", "owner", "group", "may"),
    [
        (0o701, 0, 0, True),
        (0o700, 0, 0, False),
        (0o710, 0, NOBODY.pw_gid, True),
        (0o701, 0, NOBODY.pw_gid, False),
        (0o100, NOBODY.pw_uid, 0, True),
        (0o011, NOBODY.pw_uid, 0, False),
    ],
)
def test_whom_a_folder_lets_through(tmp_path: Path, mode: int, owner: int, group: int, may: bool) -> None:
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        if parent.stat().st_uid == 0 and "pytest" in str(parent):
            parent.chmod(0o755)
    folder = tmp_path / "guarded"
    folder.mkdir()
    os.chown(folder, owner, group)
    folder.chmod(mode)
    assert reachable(str(folder / "home"), TaskAccount("nobody")) is may
    assert reachable(str(folder / "home"), TaskAccount("root")) is True


@root_only
def test_what_is_made_for_a_task_is_made_with_its_accounts_rights(tmp_path: Path) -> None:
    account = TaskAccount("nobody")
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        if parent.stat().st_uid == 0 and "pytest" in str(parent):
            parent.chmod(0o755)
    its = tmp_path / "its"
    its.mkdir()
    os.chown(its, NOBODY.pw_uid, NOBODY.pw_gid)
    write_file(str(its / "deep/er/file"), "text", account)
    for path in (its / "deep", its / "deep/er", its / "deep/er/file"):
        assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY.pw_uid, NOBODY.pw_gid)
    assert stat.S_IMODE((its / "deep").stat().st_mode) == 0o755
    with pytest.raises(TaskError, match=rf"^working directory {tmp_path}/new: Permission denied"):
        make_folder(str(tmp_path / "new"), account)
    assert os.geteuid() == 0 and os.getegid() == 0 and not (tmp_path / "new").exists()


@root_only
def test_what_is_done_for_an_account_is_done_with_its_groups_alone() -> None:
    account = TaskAccount("nobody")
    account.groups = [12]
    own = os.geteuid(), os.getegid(), os.getgroups()
    with account.acting():
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (account.uid, account.gid, [12])
    assert (os.geteuid(), os.getegid(), os.getgroups()) == own


def test_the_agents_own_tasks_have_a_home_that_is_closed_to_others(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    assert make_home(folder, TaskAccount(None)) == (folder.home, "")
    assert stat.S_IMODE(Path(folder.home).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("mode", "helps"), [(0o660, True), (0o666, False), (0o664, False), (0o640, False), (0o620, False), (0o600, False)]
)
def test_a_task_with_gpus_gets_the_groups_of_devices_that_arent_everybodys(
    mode: int, helps: bool, tmp_path: Path
) -> None:
    group = os.getgid() or 12345
    near, far = os.openpty()
    os.fchown(far, -1, group)
    os.fchmod(far, mode)
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", -1, group)
    (tmp_path / "file").chmod(mode)
    try:
        assert device_groups([os.ttyname(far), "/no/such*"]) == [group] * helps
        assert device_groups([str(tmp_path / "*")]) == [], "no device"
    finally:
        os.close(near)
        os.close(far)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a device to root")
def test_no_task_gets_roots_group() -> None:
    near, far = os.openpty()
    os.fchown(far, 0, 0)
    os.fchmod(far, 0o660)
    try:
        assert device_groups([os.ttyname(far)]) == []
    finally:
        os.close(near)
        os.close(far)


def test_a_folder_or_file_that_cant_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match=rf"^working directory {tmp_path}/file/below: "):
        make_folder(str(tmp_path / "file" / "below"), TaskAccount(None))
    with pytest.raises(TaskError, match=rf"^{tmp_path}: Is a directory"):
        write_file(str(tmp_path), "text", TaskAccount(None))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "no commands"),
        ({"commands": ["true"], "shm_bytes": 1 << 50}, f"{1 << 30} MiB requested"),
    ],
)
def test_what_plain_processes_cant_do_is_said(tmp_path: Path, spec: dict[str, Any], reason: str) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    context = TaskContext(folder, spec, {}, 0, lambda *_, **__: None, lambda _: None, TaskVolumes(folder, []))
    with pytest.raises(TaskError, match=reason) as caught:
        ProcessRuntime().begin(context)
    assert caught.value.reason == "executor_error"


def test_a_task_that_ran_before_its_supervisor_died_is_over(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "no such task")
    earlier = {"state": "running"}
    context = TaskContext(folder, {}, earlier, 0, lambda *_, **__: None, lambda _: None, TaskVolumes(folder, []))
    context.folder.create({})
    session_rights.admit(context.folder, TaskAccount(None), {}, "/", {})
    with pytest.raises(TaskError, match="the task ended with it"):
        ProcessRuntime().begin(context)
    assert not (tmp_path / "tasks/no such task/session.json").exists(), "no session begins while its rest is ended"


def test_no_supervisor_no_usage(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({})
    assert ProcessRuntime().usage(folder) is None
    assert (ProcessRuntime().problem(), ProcessRuntime().name) == ("", "process")


def test_nobody_but_root_makes_a_home_outside_the_tasks_folder() -> None:
    for above in Path(outside("t")).parents:
        if above.exists():
            assert (above.stat().st_uid, above.stat().st_mode & 0o022) == (0, 0), above


@root_only
def test_what_a_task_has_outside_its_folder_can_be_entered_but_not_listed(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), f"{os.getpid()}-no-such-task")
    folder.create({})
    home, scratch = make_home(folder, TaskAccount("nobody"))
    places = [Path(scratch).parent, Path(scratch).parent.parent]
    assert {stat.S_IMODE(place.stat().st_mode) for place in places} == {0o711}
    assert make_home(folder, TaskAccount("nobody")) == (home, scratch), "of an attempt that didn't start"
    tidy()
    assert Path(scratch).exists(), "a task has it"
    ProcessRuntime().remove(folder)


@root_only
def test_remove_deletes_a_home_outside_the_tasks_folder(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), f"{os.getpid()}-no-such-task")
    homes = [Path(outside(folder.task)), Path(FORMER_OUTSIDE + folder.task)]
    for home in homes:
        (home / "deep").mkdir(parents=True)
    ProcessRuntime().remove(folder)
    assert not [home for home in homes if home.exists()]
    ProcessRuntime().remove(folder)


@root_only
def test_remove_follows_no_link_that_somebody_put_where_an_earlier_agent_had_a_home(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path / "data"), f"{os.getpid()}-no-such-task")
    (tmp_path / "roots").mkdir()
    link = Path(FORMER_OUTSIDE + folder.task)
    link.symlink_to(tmp_path / "roots")
    ProcessRuntime().remove(folder)
    assert (tmp_path / "roots").exists()
    link.unlink()
