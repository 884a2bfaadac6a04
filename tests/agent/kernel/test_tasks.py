"""Files that are replaced as a whole, pipes that wake, and the folder of a task."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from chalicelib.agent.kernel.tasks import (
    SLOT_BYTES,
    TaskFolder,
    delete_tree,
    list_tasks,
    make_pipe,
    notify,
    read_json,
    read_text,
    take_lock,
    write_atomic,
    write_slot,
)
from tests.harness.descriptors import open_under


@pytest.mark.slow
def test_a_file_is_replaced_whole_and_nothing_stays_open(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for text in ("one", "two", ""):
        write_atomic(str(file), text, 0o640, durable=bool(text))
        assert (file.read_text(), file.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (text, 0o640, [file])
    assert open_under(tmp_path) == []


@pytest.mark.slow
def test_what_cant_be_replaced_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomic(str(tmp_path / "folder"), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"] and open_under(tmp_path) == []


def test_a_lock_is_held_by_one_and_private(tmp_path: Path) -> None:
    held = take_lock(str(tmp_path / "lock"))
    assert held is not None and take_lock(str(tmp_path / "lock")) is None
    assert ((tmp_path / "lock").stat().st_mode & 0o7777, open_under(tmp_path)) == (0o600, [str(tmp_path / "lock")])
    assert not os.get_inheritable(held)
    os.close(held)


def test_a_record_has_room_to_be_overwritten_in_place(tmp_path: Path) -> None:
    slot = tmp_path / "slot"
    write_slot(str(slot), {"a": 1})
    assert (slot.stat().st_size, read_json(str(slot))) == (SLOT_BYTES, {"a": 1})
    write_slot(str(slot), {"a": "x" * SLOT_BYTES})
    assert slot.stat().st_size > SLOT_BYTES and read_json(str(slot)) == {"a": "x" * SLOT_BYTES}
    with pytest.raises(FileNotFoundError):
        write_slot(str(tmp_path / "none" / "slot"), {})


@pytest.mark.parametrize("before", [None, "too short"])
def test_on_a_full_disk_a_record_that_has_no_room_is_refused(tmp_path: Path, before: str | None) -> None:
    slot = tmp_path / "slot"
    if before:
        slot.write_text(before)
    (tmp_path / f"slot.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_slot(str(slot), {"a": 1})
    assert read_text(str(slot)) == before


def test_on_a_full_disk_a_record_is_overwritten_in_place(tmp_path: Path) -> None:
    slot = tmp_path / "slot"
    slot.write_text(" " * SLOT_BYTES)
    (tmp_path / f"slot.{os.getpid()}").symlink_to("/dev/full")
    write_slot(str(slot), {"a": 2})
    assert read_json(str(slot)) == {"a": 2} and list(tmp_path.iterdir()) == [slot]


def test_what_is_no_record_counts_as_none(tmp_path: Path) -> None:
    assert read_text(str(tmp_path / "none")) is None and read_json(str(tmp_path / "none")) is None
    file = tmp_path / "file"
    for text in ("", "[1]", "null"):
        file.write_text(text)
        assert (read_text(str(file)), read_json(str(file))) == (text, None)
    file.write_text("{")
    with pytest.raises(ValueError, match="property name"):
        read_json(str(file))


def test_a_pipe_wakes_its_reader(tmp_path: Path) -> None:
    path = str(tmp_path / "wake")
    notify(path, "nobody")
    Path(path).write_text("a file, which something left there")
    pipe = make_pipe(path)
    found = Path(path).stat()
    assert stat.S_ISFIFO(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600 and not os.get_inheritable(pipe)
    notify(path, "one")
    notify(path, "two")
    assert os.read(pipe, 100) == b"one\ntwo\n"
    with pytest.raises(BlockingIOError):
        os.read(pipe, 100)
    again = make_pipe(path)
    assert Path(path).stat().st_ino == found.st_ino, "it is the same for whoever comes next"
    os.close(again)
    for _ in range(20):
        notify(path, "x" * 4000)  # more than it holds
    os.close(pipe)
    notify(path, "nobody reads")
    assert open_under(tmp_path) == []
    with pytest.raises(NotADirectoryError):
        notify(f"{path}/deeper", "x")


def test_a_new_task_knows_nothing_and_is_asked_for_nothing(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    assert (folder.launch(), folder.state(), folder.request()) == ({}, {}, {})
    folder.create({"spec": {}})
    names = {path.name: path for path in Path(folder.path).iterdir()}
    assert names.keys() == {"spec.json", "state.json", "request.json"}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (Path(folder.path), names["spec.json"])] == [0o711, 0o600]
    assert (folder.launch(), folder.state(), folder.request()) == ({"spec": {}}, {}, {})


def test_news_wakes_the_other_side(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({})
    agent, supervisor = make_pipe(str(tmp_path / "wake")), make_pipe(folder.wake)
    folder.write_request({"abort": True})
    folder.notify_agent()
    assert (os.read(supervisor, 100), os.read(agent, 100)) == (b"request\n", b"t\n")
    assert folder.request() == {"abort": True}
    for pipe in (agent, supervisor):
        os.close(pipe)


def test_a_supervisor_holds_its_task(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({})
    assert not folder.supervised() and open_under(tmp_path) == []
    held = folder.take_lock()
    assert held is not None and folder.supervised()
    os.close(held)
    assert not folder.supervised()


def read_only_inside(data: Path) -> TaskFolder:
    folder = TaskFolder(str(data), "t")
    folder.create({})
    deep = Path(folder.home) / "deep" / "er"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    (deep / "link").symlink_to("/etc/passwd")
    for path in (deep, deep.parent):
        path.chmod(0o500)
    return folder


def test_a_task_is_deleted_with_whatever_it_made_read_only(tmp_path: Path) -> None:
    folder = read_only_inside(tmp_path)
    assert list_tasks(str(tmp_path)) == ["t"]
    folder.delete()
    assert list_tasks(str(tmp_path)) == [] and list((tmp_path / "trash").iterdir()) == []
    folder.delete()  # again is harmless
    delete_tree(str(tmp_path / "none"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
@pytest.mark.slow
def test_whoever_isnt_root_deletes_it_too(tmp_path: Path) -> None:
    read_only_inside(tmp_path)
    for each in (tmp_path, *tmp_path.rglob("*")):
        os.chown(each, 62998, 62998, follow_symlinks=False)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(tmp_path)  # the way there is root's
            os.setresgid(62998, 62998, 62998)
            os.setresuid(62998, 62998, 62998)
            TaskFolder(".", "t").delete()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert list_tasks(str(tmp_path)) == [] and list((tmp_path / "trash").iterdir()) == []


def test_a_file_or_a_link_is_deleted_as_itself(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "kept")
    delete_tree(str(tmp_path / "folder"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_tasks_are_listed_in_order(tmp_path: Path) -> None:
    assert list_tasks(str(tmp_path)) == []
    for name in ("b", "a", "c"):
        (tmp_path / "tasks" / name).mkdir(parents=True)
    assert list_tasks(str(tmp_path)) == ["a", "b", "c"]
