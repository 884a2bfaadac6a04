"""`files:` as archives, and what ignore files leave out."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.errors import Refused
from cli.repositories.ignore import ignored, parse_patterns
from cli.repositories.packing import pack
from tests.harness.examples import many


def names(path: Path) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(pack(path).data)) as tar:
        return tar.getnames()


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_file_and_a_folder_bear_their_names(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {"b.txt": "b", "a/x": "x", ".hidden": "h", ".git/config": "g"})
    assert names(folder / "b.txt") == ["b.txt"]
    assert names(folder) == ["data", "data/.hidden", "data/a", "data/a/x", "data/b.txt"]


def test_the_same_content_has_the_same_hash(tmp_path: Path) -> None:
    one = write(tmp_path / "1" / "data", {"a": "a", "sub/b": "b"})
    two = write(tmp_path / "2" / "data", {"sub/b": "b", "a": "a"})
    os.utime(two / "a", (1, 1))
    (two / "a").chmod(0o600)
    assert pack(one) == pack(two)
    (two / "a").chmod(0o755)
    assert pack(one).hash != pack(two).hash


def test_links(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {"a.txt": "a", "sub/b": "b"})
    outside = write(tmp_path / "other", {"c": "c", "d/e": "e"})
    (root / "sub" / "inside").symlink_to(root / "a.txt")
    (root / "out").symlink_to(outside / "c")
    (root / "folder").symlink_to(outside / "d")
    with tarfile.open(fileobj=io.BytesIO(pack(root).data)) as tar:
        assert tar.getmember("data/sub/inside").linkname == "../a.txt"
        assert tar.getmember("data/out").isreg() and tar.getmember("data/folder/e").isreg()


def test_what_isnt_there(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="doesn't exist"):
        pack(tmp_path / "nope")


def test_ignore_files_are_obeyed_in_every_folder(tmp_path: Path) -> None:
    root = write(
        tmp_path / "data",
        {
            ".gitignore": "*.log\n/build/\n!keep.log\n",
            ".dstackignore": "secret\n",
            "a.log": "",
            "keep.log": "",
            "build/x": "",
            "sub/build/x": "",
            "secret": "",
            "sub/.gitignore": "local\n",
            "sub/local": "",
            "local": "",
        },
    )
    found = {name.removeprefix("data/") for name in names(root)}
    assert found == {
        "data",
        ".gitignore",
        ".dstackignore",
        "keep.log",
        "sub",
        "sub/.gitignore",
        "sub/build",
        "sub/build/x",
        "local",
    }


@pytest.mark.parametrize(
    ("pattern", "path", "folder", "want"),
    [
        ("*.py", "a/b.py", False, True),
        ("/a.py", "b/a.py", False, False),
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, False),
        ("**/b", "x/y/b", False, True),
        ("a/**", "a/x/y", False, True),
        ("a/**", "a", True, False),
        ("a/**/b", "a/b", False, True),
        ("a/**/b", "a/x/y/b", False, True),
        ("dir/", "dir", True, True),
        ("dir/", "dir", False, False),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, False),
        ("[ab].txt", "b.txt", False, True),
        ("[!ab].txt", "b.txt", False, False),
        ("\\#x", "#x", False, True),
        ("# comment", "# comment", False, False),
        ("x\\ ", "x ", False, True),
        ("x ", "x", False, True),
    ],
)
def test_patterns(pattern: str, path: str, folder: bool, want: bool) -> None:
    assert ignored(path, folder, parse_patterns([pattern])) is want


name = st.text("ab.*", min_size=1, max_size=3).filter(lambda text: text.strip(".") != "" and "*" not in text)
glob = st.text("ab.*?", min_size=1, max_size=4).filter(lambda text: text.strip("./") != "")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed, so there is nothing to compare with")
@settings(max_examples=many(30), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", "!"]), glob, st.sampled_from(["", "/"])), max_size=3),
    st.lists(name, min_size=1, max_size=3),
)
@pytest.mark.slow
def test_git_agrees(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str, str]], parts: list[str]
) -> None:
    root = tmp_path_factory.mktemp("repo")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    text = ["".join(line) for line in lines]
    (root / ".gitignore").write_text("\n".join(text))
    path = "/".join(parts)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("")
    ignored_by_git = subprocess.run(["git", "-C", str(root), "check-ignore", "-q", path], check=False).returncode == 0
    patterns = parse_patterns(text)
    ignored_here = any(
        ignored("/".join(parts[: depth + 1]), depth < len(parts) - 1, patterns) for depth in range(len(parts))
    )
    assert ignored_here == ignored_by_git
