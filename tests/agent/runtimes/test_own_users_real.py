"""Run by root, each plain-process task is a user of its own: what it can't read, reach or leave behind."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.process_tree import of_user
from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.runtimes.accounts import outside
from chalicelib.agent.runtimes.process import ProcessRuntime, check
from chalicelib.agent.runtimes.users import Users, kill_user
from tests.agent.runtime_conformance import Workshop, archive, kill_supervisor, sleepers

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root may run a task as somebody else")

POOL = range(61000, 62000)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path, ProcessRuntime())
    yield workshop
    workshop.end()


def output_of(workshop: Workshop, script: str, **spec: Any) -> str:
    task = workshop.start(script, **spec)
    workshop.exited(task)
    return workshop.log(task).decode().replace("\r\n", "\n")


def record(workshop: Workshop, task: str) -> dict[str, Any]:
    return workshop.roster.folder(task).state()


def test_a_task_has_an_id_of_its_own_and_no_other_rights(workshop: Workshop) -> None:
    task = workshop.start("id -u; id -G; grep -E '^(NoNewPrivs|CapEff|CapPrm)' /proc/self/status")
    assert workshop.exited(task)["exit_status"] == 0
    lines = workshop.log(task).decode().split("\r\n")
    uid = int(lines[0])
    assert uid in POOL and lines[1] == str(uid)
    assert [line.split()[1] for line in lines[2:5]] == ["0" * 16, "0" * 16, "1"]
    assert record(workshop, task)["uid"] == uid


def test_its_home_files_and_temporary_folder_are_its_own(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "one.tar").write_bytes(archive({"data/a.txt": b"A"}))
    files = [{"id": "1", "path": "given", "url": str(tmp_path / "one.tar")}]
    script = 'stat -c "%u %a" "$HOME" "$TMPDIR"; stat -c %u given given/a.txt "$DSTACK_MPI_HOSTFILE"; id -u; env'
    lines = output_of(workshop, script, files=files, hostfile="10.0.0.1\n").split("\n")
    uid = lines[5]
    assert lines[:5] == [f"{uid} 700", f"{uid} 700", uid, uid, uid]
    assert {f"USER=dstack-{uid}", f"LOGNAME=dstack-{uid}"} <= set(lines)


@pytest.mark.parametrize("open_to_others", [True, False])
def test_its_home_is_in_the_agents_folder_or_where_it_can_get_to(workshop: Workshop, open_to_others: bool) -> None:
    above = [parent for parent in workshop.data.parents if Path(tempfile.gettempdir()) in parent.parents]
    for folder in (workshop.data, *above):
        folder.chmod(0o711 if open_to_others else 0o700)
    task = workshop.start('echo "$HOME"; cd "$HOME" && pwd')
    workshop.exited(task)
    home = workshop.roster.folder(task).home if open_to_others else f"{outside(task)}/home"
    assert workshop.log(task).decode().split() == [home, home]
    assert (stat.S_IMODE(Path(home).stat().st_mode), Path(home).stat().st_uid) == (0o700, 0), "closed with its end"
    workshop.roster.remove(task)
    assert not Path(home).exists() and not Path(outside(task)).exists()


def test_it_reads_neither_the_agents_folder_nor_its_environment(workshop: Workshop) -> None:
    (workshop.data / "credential").write_text("the agent's")
    (workshop.data / "credential").chmod(0o600)
    os.environ["SECRET_OF_THE_AGENT"] = "x"
    task = workshop.start("echo up; read wait")
    workshop.says(task, b"up")
    pids = (os.getpid(), workshop.supervisor(task))
    script = "; ".join(
        f"cat {path}" for path in (workshop.data / "credential", *(f"/proc/{pid}/environ" for pid in pids))
    )
    assert output_of(workshop, script).count("Permission denied") == 3


def test_tasks_neither_read_nor_signal_each_other(workshop: Workshop) -> None:
    task = workshop.start("echo private > note; mktemp; echo $$ $HOME; read wait", env={"TOKEN": "t"})
    workshop.until(lambda: len(workshop.log(task).split()) == 3, task)
    scratch, pid, home = workshop.log(task).decode().split()
    other = output_of(
        workshop, f"cat {home}/note; cat {scratch}; ls {home}; cat /proc/{pid}/environ; kill -9 {pid}; id -u"
    )
    assert other.lower().count("permission denied") == 4 and "not permitted" in other
    assert int(other.split()[-1]) not in (record(workshop, task)["uid"], 0)


@pytest.mark.parametrize("path", ["/etc/dstack-test-evil", "/root/dstack-test-evil"])
def test_files_come_with_the_tasks_own_rights(workshop: Workshop, tmp_path: Path, path: str) -> None:
    (tmp_path / "one.tar").write_bytes(archive({"x": b"* * * * * root id"}))
    task = workshop.start("true", files=[{"id": "1", "path": path, "url": str(tmp_path / "one.tar")}])
    state = workshop.exited(task)
    assert state["reason"] == "executor_error" and f"{path}: Permission denied" in state["message"]
    assert not Path(path).exists()


def test_a_working_directory_is_made_with_the_tasks_own_rights(workshop: Workshop) -> None:
    state = workshop.exited(workshop.start("true", working_dir="/etc/dstack-test-evil"))
    assert "working directory /etc/dstack-test-evil: Permission denied" in state["message"]
    assert not Path("/etc/dstack-test-evil").exists()


@pytest.mark.parametrize(("user", "permitted"), [("54321", False), ("4242:disk", True), ("root", True)])
def test_who_a_task_is_isnt_its_own_choice(workshop: Workshop, user: str, permitted: bool) -> None:
    state = workshop.exited(workshop.start("id", user=user, user_permitted=permitted))
    assert state["reason"] == "executor_error" and state["message"].startswith(f"user {user}: ")


def test_a_user_that_the_spec_may_name_has_its_own_group_alone(workshop: Workshop) -> None:
    assert output_of(workshop, "id -u; id -G", user="54321", user_permitted=True) == "54321\n54321\n"


def test_its_user_has_a_name_with_its_home_and_shell(workshop: Workshop) -> None:
    """Whoever asks for it, in the way of the C library or of OpenSSH, which runs for nobody without one."""
    program = "import os, pwd; me = pwd.getpwuid(os.getuid()); print(me.pw_name, me.pw_dir, me.pw_shell)"
    script = (
        f'python3 -c "{program}"; whoami; id -gn; echo $HOME $SHELL; stat -c "%U %G" .; '
        "ssh-keygen -q -t ed25519 -N '' -f key && echo made; ssh -o BatchMode=yes -p 1 127.0.0.1 2>&1; "
        "git init -q r; cd r; git config user.email a@b.c; git commit -q --allow-empty -m x; git log --format=%an | cat"
    )
    account, whoami, group, places, owner, made, ssh, author = (
        output_of(workshop, script, shell="/bin/bash").strip().split("\n")
    )
    home, shell = places.split()
    assert (shell, made) == ("/bin/bash", "made") and int(whoami.removeprefix("dstack-")) in POOL
    assert account.split() == [whoami, home, shell] and (group, owner) == (whoami, f"{whoami} {whoami}")
    assert author == whoami
    assert "Connection refused" in ssh, "it got that far"


def test_trusted_tasks_run_as_the_agent_or_as_whom_they_say(workshop: Workshop) -> None:
    workshop.roster = workshop.new_roster("agent")
    assert output_of(workshop, "id -u; pwd").split()[0] == "0"
    assert output_of(workshop, "id -u", user="0", user_permitted=True) == "0\n"


def test_what_leaves_the_tasks_session_ends_with_it(workshop: Workshop) -> None:
    """A process of the same id that is no descendant of the supervisor, as one that a killed supervisor left."""
    task = workshop.start("echo up; read wait")
    workshop.says(task, b"up")
    stray = as_user(record(workshop, task)["uid"], "sleep", "7654")
    workshop.until(lambda: sleepers("7654"), task)
    workshop.roster.abort(task)
    workshop.exited(task)
    assert not sleepers("7654")
    os.waitpid(stray, 0)


def test_a_killed_supervisors_successor_ends_what_threw_away_its_mark(workshop: Workshop) -> None:
    daemon = "(setsid env -i PATH=$PATH sh -c '>up; exec sleep 7655' </dev/null >/dev/null 2>&1 &)"
    task = workshop.start(f"{daemon}; until [ -e up ]; do sleep 0.05; done; echo on; sleep 600")
    workshop.says(task, b"on")
    kill_supervisor(workshop, task)
    workshop.new_roster().launch(task, workshop.fetch)
    workshop.exited(task)
    workshop.until(lambda: not sleepers("7655"), task)


def test_an_id_that_is_given_again_has_no_past(tmp_path: Path) -> None:
    users = Users("62990-62990", str(tmp_path / "locks"))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    first = users.take("one")
    os.chown(home, first.uid, first.uid)
    first.set_folders([str(home)])
    scrap = Path("/tmp") / f"dstack-test-{uuid.uuid4()}"
    scrap.write_text("left behind")
    os.chown(scrap, first.uid, first.uid)
    stray = as_user(first.uid, "sleep", "7656")
    os.close(first.lock)  # its supervisor was killed
    second = users.take("two")
    assert (second.uid, of_user(second.uid), scrap.exists(), home.exists()) == (first.uid, [], False, False)
    second.release()
    os.waitpid(stray, 0)


def test_a_task_that_cant_start_leaves_nothing_to_the_next_with_its_id(workshop: Workshop) -> None:
    task = workshop.start("", commands=["/no/such/program"])
    assert workshop.exited(task)["reason"] == "executor_error"
    places = Path(workshop.roster.folder(task).home), Path(outside(task), "home"), Path(outside(task), "tmp")
    assert {path.stat().st_uid for path in places if path.exists()} == {0}


def test_a_machine_that_restarted_has_no_locks_to_find(tmp_path: Path) -> None:
    held = Users("61989-61989", str(tmp_path / "locks")).hold(61989)
    assert held is not None
    held.release()


def test_an_id_belongs_to_one_task_at_a_time(tmp_path: Path) -> None:
    users = Users("62991-62992", str(tmp_path / "locks"))
    held = [users.take("a"), users.take("a")]
    assert {one.uid for one in held} == {62991, 62992}
    with pytest.raises(TaskError, match=r"62991-62992.*all in use"):
        Users("62991-62992", str(tmp_path / "locks")).take("b")
    held.pop().release()
    users.take("c").release()
    held.pop().release()


def test_a_folder_of_locks_that_somebody_else_made_isnt_trusted(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    os.chown(tmp_path / "locks", 1234, 1234)
    with pytest.raises(TaskError, match="locks: it belongs to user 1234"):
        Users("62993-62993", str(tmp_path / "locks")).take("a")


def test_killing_a_user_from_inside_reaches_nobody_else() -> None:
    own, other = as_user(62994, "sleep", "7657"), as_user(62995, "sleep", "7657")
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text()
    kill_user(62994)
    assert children.read_text() == before, "whoever did it has ended"
    assert os.WTERMSIG(os.waitpid(own, 0)[1]) == signal.SIGKILL
    assert os.waitpid(other, os.WNOHANG) == (0, 0)
    kill_user(62995)
    os.waitpid(other, 0)


def test_whoever_isnt_root_gives_no_isolation_and_says_so() -> None:
    def found() -> None:
        assert Users().isolation == "none"
        with pytest.raises(TaskError, match=r"only the project's admins may use; install a container engine"):
            check({"isolated": True, "commands": ["true"]}, Users().isolation)
        check({"isolated": False, "commands": ["true"]}, Users().isolation)

    assert Users().isolation == "user"
    assert Users("agent").isolation == "none"
    child = os.fork()
    if child == 0:
        os.setresuid(62996, 62996, 62996)
        status = 1
        try:
            found()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def as_user(uid: int, *argv: str) -> int:
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.execvp(argv[0], argv)
    while Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0] != argv[0].encode():
        pass  # until then it holds what its parent holds, locks included
    return child
