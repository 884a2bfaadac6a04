"""Seals: what opens, and everything that must not."""

from __future__ import annotations

import stat
import threading
from base64 import b64encode
from pathlib import Path

import pytest

from chalicelib.errors import Bug, Refused
from chalicelib.store.seal import Sealer, key_from_file

KEY = bytes(range(32))


@pytest.mark.parametrize("text", ["", "s3cret", "ключ ☃", "-----BEGIN KEY-----\n" * 200])
def test_what_is_sealed_opens(text: str) -> None:
    sealed = Sealer(KEY).seal(text)
    assert Sealer(KEY).open(sealed) == text
    assert not text or text not in sealed


def test_two_seals_of_one_text_differ() -> None:
    sealer = Sealer(KEY)
    assert sealer.seal("a") != sealer.seal("a")


def test_another_key_does_not_open() -> None:
    with pytest.raises(Refused, match="doesn't open with this server's key"):
        Sealer(bytes(32)).open(Sealer(KEY).seal("s3cret"))


def test_every_changed_character_is_noticed() -> None:
    sealed = Sealer(KEY).seal("s3cret")
    for place in range(len(sealed) - 3):  # the last characters may hold unused bits
        other = "A" if sealed[place] != "A" else "B"
        with pytest.raises(Refused):
            Sealer(KEY).open(sealed[:place] + other + sealed[place + 1 :])
    for cut in (0, 3, 10, len(sealed) - 4):
        with pytest.raises(Refused):
            Sealer(KEY).open(sealed[:cut])


def test_text_that_was_never_sealed_is_refused() -> None:
    for text in ("s3cret", "v1.☃", "v1.AAAA", "v2." + Sealer(KEY).seal("a")[3:]):
        with pytest.raises(Refused):
            Sealer(KEY).open(text)


def test_a_seal_holds_in_its_context_only() -> None:
    sealed = Sealer(KEY).seal("s3cret", context="project/a")
    assert Sealer(KEY).open(sealed, context="project/a") == "s3cret"
    for context in ("", "project/b"):
        with pytest.raises(Refused):
            Sealer(KEY).open(sealed, context=context)


def test_a_key_of_the_wrong_size_is_a_bug() -> None:
    with pytest.raises(Bug):
        Sealer(b"short")


def test_the_key_file_is_made_once_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = key_from_file(path)
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_from_file(path) == key
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_all_who_begin_at_once_get_the_same_key(tmp_path: Path) -> None:
    found: list[bytes] = []
    ready = threading.Barrier(8)

    def begin() -> None:
        ready.wait()
        found.append(key_from_file(tmp_path / "key"))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1


@pytest.mark.parametrize("content", [b"", b"hello", b"AAAA\n", b64encode(b"k" * 32) + b"!"])
def test_a_damaged_key_file_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(Refused, match="doesn't hold a key"):
        key_from_file(path)
    assert path.read_bytes() == content


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="can't be written"):
        key_from_file(tmp_path / "nowhere" / "key")
