"""Archives are unpacked where the user wants, and nowhere else, whatever is in them."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.runtimes import files
from tests.agent.hostile_tars import ALL_HOSTILE, HARMLESS, HOSTILE


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"", mode: int = 0o644
) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size, member.mode = kind, link, len(data), mode
    return member, data


def pack(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w") as tar:
        for member, data in entries:
            tar.addfile(member, io.BytesIO(data))
    return str(path)


def tree(root: Path) -> dict[str, bytes]:
    return {str(found.relative_to(root)): found.read_bytes() for found in root.rglob("*") if found.is_file()}


@pytest.mark.parametrize(
    ("names", "path", "want"),
    [
        (["data/a", "data/b/c"], "given", ["given/a", "given/b/c"]),
        (["data/a", "data/b/c"], ".", ["a", "b/c"]),
        (["cfg.ini"], "etc/renamed.ini", ["etc/renamed.ini"]),
        (["cfg.ini"], ".", ["cfg.ini"]),
        (["cfg.ini"], "etc/", ["etc/cfg.ini"]),
        (["./a", "./b"], "given", ["given/a", "given/b"]),
        (["./a"], "given", ["given/a"]),
        (["one", "two/three"], "given", ["given/one", "given/two/three"]),
    ],
)
def test_where_things_go(tmp_path: Path, names: list[str], path: str, want: list[str]) -> None:
    archive = pack(tmp_path / "a.tar", *(entry(name, data=name.encode()) for name in names))
    home = tmp_path / "home"
    home.mkdir()
    target = files.resolve(path, str(home), str(home))
    files.unpack(archive, target, files.is_place(path))
    assert sorted(tree(home)) == sorted(want)


@pytest.mark.parametrize(
    ("names", "path"), [(["data/a", "data/b/c"], "given"), (["cfg"], "x/y"), (["cfg"], "x/"), (["./a"], ".")]
)
def test_a_container_gets_the_same(tmp_path: Path, names: list[str], path: str) -> None:
    archive = pack(tmp_path / "a.tar", *(entry(name, data=b"x") for name in names))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    files.unpack(archive, files.resolve(path, str(here), ""), files.is_place(path))
    packed = io.BytesIO()
    files.repack(archive, files.resolve(path, "/w", ""), files.is_place(path), packed)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as tar:
        assert {member.uid for member in tar} == {0}
        assert sorted(member.name[2:] for member in tar if member.isfile()) == sorted(tree(here))


def test_a_containers_folder_is_its_owners_like_all_that_is_in_it(tmp_path: Path) -> None:
    archive, packed = pack(tmp_path / "a.tar", entry("a", data=b"x")), io.BytesIO()
    files.repack(archive, "/w/data", True, packed, (7, 8), folder=True)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as tar:
        assert [(each.name, each.uid, each.gid) for each in tar] == [("w/data", 7, 8), ("w/data/a", 7, 8)]


def test_folders_are_merged_and_files_replaced(tmp_path: Path) -> None:
    (tmp_path / "home/data").mkdir(parents=True)
    (tmp_path / "home/data/kept").write_text("kept")
    (tmp_path / "home/data/a").write_text("old")
    archive = pack(tmp_path / "a.tar", entry("data", tarfile.DIRTYPE), entry("data/a", data=b"new"))
    files.unpack(archive, str(tmp_path / "home/data"), into=True)
    assert tree(tmp_path / "home") == {"data/kept": b"kept", "data/a": b"new"}


def test_modes_and_inner_links_are_kept(tmp_path: Path) -> None:
    archive = pack(
        tmp_path / "a.tar",
        entry("d/run.sh", data=b"x", mode=0o755),
        entry("d/soft", tarfile.SYMTYPE, "run.sh"),
        entry("d/sub/up", tarfile.SYMTYPE, "../run.sh"),
        entry("d/hard", tarfile.LNKTYPE, "d/run.sh"),
    )
    files.unpack(archive, str(tmp_path / "to"), into=False)
    assert (tmp_path / "to/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "to/soft").readlink() == Path("run.sh")
    assert (tmp_path / "to/sub/up").read_bytes() == b"x"
    assert (tmp_path / "to/hard").samefile(tmp_path / "to/run.sh")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (entry("../evil", data=b"x"), "outside"),
        (entry("d/../../evil", data=b"x"), "outside"),
        (entry("/etc/evil", data=b"x"), "outside"),
        (entry("d/link", tarfile.SYMTYPE, "/etc/passwd"), "link"),
        (entry("d/link", tarfile.SYMTYPE, "../../evil"), "link"),
        (entry("d/link", tarfile.LNKTYPE, "../evil"), "link"),
        (entry("d/null", tarfile.CHRTYPE), "device"),
        (entry("d/disk", tarfile.BLKTYPE), "device"),
        (entry("d/pipe", tarfile.FIFOTYPE), "pipe"),
    ],
    ids=lambda value: value[0].name + value[0].linkname if isinstance(value, tuple) else "",
)
def test_what_leaves_the_archive_is_refused_before_anything_is_written(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], reason: str
) -> None:
    archive = pack(tmp_path / "a.tar", entry("d/good", data=b"x"), bad)
    with pytest.raises(TaskError, match=reason) as refused:
        files.unpack(archive, str(tmp_path / "to"), into=False)
    assert bad[0].name in refused.value.message
    assert not (tmp_path / "to").exists()
    with pytest.raises(TaskError, match=reason):
        files.repack(archive, "/to", False, io.BytesIO())


@pytest.mark.parametrize("what", ALL_HOSTILE)
def test_a_hostile_archive_leaves_nothing_behind(tmp_path: Path, what: str) -> None:
    """Refused by its headers, in bounded space: not a folder of it is made, and no byte of it reaches a container."""
    content, name, reason = HOSTILE[what]
    archive, container = tmp_path / "a.tar", io.BytesIO()
    archive.write_bytes(content)
    for attempt in (
        lambda: files.unpack(str(archive), str(tmp_path / "to"), into=False),
        lambda: files.repack(str(archive), "/to", False, container),
    ):
        with pytest.raises(TaskError, match=reason) as refused:
            attempt()
        assert name in refused.value.message and len(refused.value.message) < 500
    assert not (tmp_path / "to").exists()
    assert not any(container.getvalue())


@pytest.mark.parametrize("what", HARMLESS)
def test_a_harmless_archive_is_unpacked(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.tar").write_bytes(HARMLESS[what])
    files.unpack(str(tmp_path / "a.tar"), str(tmp_path / "to"), into=False)
    files.repack(str(tmp_path / "a.tar"), "/to", False, io.BytesIO())
    assert any((tmp_path / "to").iterdir())


def test_a_compressed_archive_is_none(tmp_path: Path) -> None:
    """The server stores plain ones; a compressed one could unpack to any size."""
    (tmp_path / "a.tar").write_bytes(gzip.compress(HARMLESS["links"]))
    with pytest.raises(TaskError, match="can't be read"):
        files.unpack(str(tmp_path / "a.tar"), str(tmp_path / "to"), into=False)


@pytest.mark.parametrize("cut", range(0, 2000, 97))
def test_a_damaged_archive_says_so(tmp_path: Path, cut: int) -> None:
    archive = bytearray(HARMLESS["links"])
    archive[cut : cut + 40] = b"\xff" * 40
    (tmp_path / "a.tar").write_bytes(archive)
    try:
        files.unpack(str(tmp_path / "a.tar"), str(tmp_path / "to"), into=False)
    except TaskError as problem:
        assert problem.reason == "executor_error" and problem.message


@pytest.mark.parametrize("blocks", [3, 4])
def test_of_an_archive_that_breaks_off_in_a_head_nothing_is_unpacked(tmp_path: Path, blocks: int) -> None:
    archive = Path(pack(tmp_path / "a.tar", entry("data/one", data=b"1"), entry("data/" + "long" * 50, data=b"2")))
    archive.write_bytes(archive.read_bytes()[: blocks * 512])
    with pytest.raises(TaskError, match="can't be read"):
        files.unpack(str(archive), str(tmp_path / "to"), into=False)
    assert not (tmp_path / "to").exists()


def test_a_link_made_by_the_archive_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "to/door").symlink_to(outside)
    archive = pack(tmp_path / "a.tar", entry("d/door/evil", data=b"x"), entry("d/b", data=b"y"))
    with pytest.raises(TaskError, match="through a link"):
        files.unpack(archive, str(tmp_path / "to"), into=False)
    assert list(outside.iterdir()) == []


def test_a_folder_in_a_files_place_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "to/a").mkdir(parents=True)
    archive = pack(tmp_path / "a.tar", entry("d/a", data=b"x"), entry("d/b", data=b"x"))
    with pytest.raises(TaskError, match="files"):
        files.unpack(archive, str(tmp_path / "to"), into=False)
    assert (tmp_path / "to/a").is_dir()


def test_nonsense_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(os.urandom(2000))
    with pytest.raises(TaskError, match="can't be read"):
        files.unpack(str(tmp_path / "a.tar"), str(tmp_path / "to"), into=False)


@pytest.mark.parametrize(
    ("path", "want"),
    [("a", "/w/a"), ("./a/", "/w/a"), ("~", "/h"), ("~/a", "/h/a"), ("/x/../y", "/y"), (".", "/w"), ("", "/w")],
)
def test_paths_as_their_user_wrote_them(path: str, want: str) -> None:
    assert files.resolve(path, "/w", "/h") == want
