"""Who may be named in `user` on a machine with these lists of users and groups, and how a task's user is listed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import namespaces
from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.runtimes import name_service
from chalicelib.agent.runtimes.accounts import TaskAccount, account_of
from chalicelib.agent.runtimes.users import TRUSTING, Users

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or bool(namespaces.bind_over_problem()),
    reason="only root with the right to mount has other lists",
)

USERS = """\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1::/usr/sbin:/usr/sbin/nologin
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
ann:x:1500:1500:Ann:/home/ann:/bin/bash
ben:x:1501:100::/home/ben:/bin/bash
rooted:x:1502:0::/home/rooted:/bin/bash
deploy:x:1503:1503::/home/deploy:/bin/bash
"""
GROUPS = "root:x:0:\ndisk:x:6:\nusers:x:100:\ndocker:x:4243:ann\nann:x:1500:\n"


def there(tmp_path: Path, work: Callable[[], Any]) -> Any:
    """What comes of this on such a machine; of a TaskError, its message."""
    for name, text in (("users", USERS), ("groups", GROUPS)):
        (tmp_path / name).write_text(text)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            namespaces.bind_over({"/etc/passwd": str(tmp_path / "users"), "/etc/group": str(tmp_path / "groups")})
            try:
                found = work()
            except TaskError as problem:
                found = problem.message
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return json.loads(output)


def account(tmp_path: Path, user: Any, users: str = "", **spec: Any) -> Any:
    def work() -> Any:
        found = account_of({"user": user, "user_permitted": True, **spec}, Users(users, str(tmp_path / "locks")), "t")
        return found.name, found.uid, found.gid, found.groups

    return there(tmp_path, work)


@pytest.mark.parametrize("user", ["ann", "1500", "4242", {"uid": 1500, "gid": 1500}, "root", "ann:ann", ":100"])
@pytest.mark.parametrize("users", ["", TRUSTING])
def test_nobody_is_named_without_the_servers_permission(tmp_path: Path, user: Any, users: str) -> None:
    for spec in ({"user_permitted": False}, {"user_permitted": None}):
        error = account(tmp_path, user, users, **spec)
        assert "only admins of the project whose host this is may name one of the host's users" in error
        assert error.endswith("leave `user` out, or use a host with a container engine")


@pytest.mark.parametrize(
    ("user", "want"),
    [
        ("ann", ["ann", 1500, 1500, [1500]]),
        ("1500", ["ann", 1500, 1500, [1500]]),
        ("ann:ann", ["ann", 1500, 1500, [1500]]),
        ({"username": "ann", "gid": 1500}, ["ann", 1500, 1500, [1500]]),
        ("ben", ["ben", 1501, 100, [100]]),
        ("ben:users", ["ben", 1501, 100, [100]]),
        ("4242", ["dstack-4242", 4242, 4242, [4242]]),
        ("4242:4242", ["dstack-4242", 4242, 4242, [4242]]),
    ],
)
def test_a_permitted_user_comes_with_its_own_group_alone(tmp_path: Path, user: Any, want: list[Any]) -> None:
    assert account(tmp_path, user, host_user="deploy") == want


SYSTEMS = "can't be root or another of the system's users"


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("root", SYSTEMS),
        ("0", SYSTEMS),
        ({"uid": 0}, SYSTEMS),
        ("daemon", SYSTEMS),
        ("999", SYSTEMS),
        ("nobody", SYSTEMS),
        ("65535", SYSTEMS),
        ("4294967294", SYSTEMS),
        ("rooted", SYSTEMS),
        ("4242:disk", "no group but their user's own, 4242"),
        ("4242:6", "no group but their user's own, 4242"),
        ("4242:0", "no group but their user's own, 4242"),
        ("ann:docker", "no group but their user's own, 1500"),
        ("ann:1501", "no group but their user's own, 1500"),
        ("4243", "doesn't list it, and group 4243 is docker"),
        ("61005", "it is one of those that jobs get"),
        ("61005:61005", "it is one of those that jobs get"),
        ("4242:61005", "no group but their user's own"),
        ("deploy", "the server logs in to this machine with that account"),
        ("1503", "the server logs in to this machine with that account"),
        ("who", "there is no such user on this machine"),
        ("²", "there is no such user on this machine"),
        ("ann:who", "there is no such group on this machine"),
    ],
)
def test_not_even_an_admin_names_one_by_whom_a_job_would_come_to_more(tmp_path: Path, user: Any, reason: str) -> None:
    error = account(tmp_path, user, host_user="deploy")
    assert isinstance(error, str) and reason in error, error


def test_a_server_that_trusts_its_jobs_lets_admins_name_anybody(tmp_path: Path) -> None:
    assert account(tmp_path, "root", TRUSTING)[:3] == ["root", 0, 0]
    assert account(tmp_path, "ann:docker", TRUSTING)[:3] == ["ann", 1500, 4243]


# Names --------------------------------------------------------------------------------------------------------------


def listed(tmp_path: Path, user: Any, home: str = "/tasks/home", shell: str = "/bin/sh") -> Any:
    folder = TaskFolder(str(tmp_path), "t")
    Path(folder.path).mkdir(parents=True, exist_ok=True)

    def work() -> Any:
        seen = name_service.bound_files_for(folder, TaskAccount(user), home, shell)
        return {place: Path(file).read_text() for place, file in seen.items() if place != name_service.CACHE}

    return there(tmp_path, work)


def test_a_user_without_a_name_gets_an_entry_in_both_lists(tmp_path: Path) -> None:
    seen = listed(tmp_path, "4242", shell="/bin/bash")
    assert seen == {
        "/etc/passwd": "dstack-4242:x:4242:4242:dstack-4242:/tasks/home:/bin/bash\n" + USERS,
        "/etc/group": "dstack-4242:x:4242:\n" + GROUPS,
    }


def test_a_listed_user_is_at_home_where_the_task_is(tmp_path: Path) -> None:
    seen = listed(tmp_path, "ann")
    other_users = USERS.replace("ann:x:1500:1500:Ann:/home/ann:/bin/bash\n", "")
    assert seen == {"/etc/passwd": "ann:x:1500:1500:ann:/tasks/home:/bin/sh\n" + other_users}


def test_the_agents_own_user_sees_the_machines_lists(tmp_path: Path) -> None:
    assert listed(tmp_path, None) == {}


@pytest.mark.parametrize(
    ("home", "shell", "what"),
    [("/a:b", "/bin/sh", "home '/a:b'"), ("/a\nb", "/bin/sh", "home '/a"), ("/", "/bin:sh", "shell '/bin:sh'")],
)
def test_what_would_break_the_list_is_refused(tmp_path: Path, home: str, shell: str, what: str) -> None:
    assert listed(tmp_path, "4242", home, shell).startswith(what)


@pytest.mark.parametrize(
    ("text", "want"),
    [("", "a:x:7:7\n"), ("b:x:8:8", "a:x:7:7\nb:x:8:8\n"), ("odd\u2028one\n\n", "a:x:7:7\nodd\u2028one\n")],
)
def test_a_list_that_somebody_edited_stays_a_list(text: str, want: str) -> None:
    assert name_service.with_entry(text, "a:x:7:7") == want
