"""The keys of ssh hosts that a machine remembers."""

from __future__ import annotations

from pathlib import Path

from chalicelib.agent.runtimes.repositories import HOSTS_MOST, KnownHosts


def test_a_key_is_remembered_once(tmp_path: Path) -> None:
    known = KnownHosts(str(tmp_path))
    assert known.read() == ""
    known.add("one ssh-ed25519 A\n")
    known.add("one ssh-ed25519 A\ntwo ssh-ed25519 B\n")
    assert known.read() == "one ssh-ed25519 A\ntwo ssh-ed25519 B\n"


def test_bytes_that_are_no_text_are_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_bytes(b"\xff\xfe\none ssh-ed25519 A\n")
    known = KnownHosts(str(tmp_path))
    known.add("two ssh-ed25519 B\n")
    assert known.read().splitlines()[1:] == ["one ssh-ed25519 A", "two ssh-ed25519 B"]


def test_of_very_many_the_oldest_are_forgotten(tmp_path: Path) -> None:
    known = KnownHosts(str(tmp_path))
    known.add("".join(f"h{number} ssh-ed25519 A\n" for number in range(HOSTS_MOST)))
    known.add("new ssh-ed25519 B\n")
    lines = known.read().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (HOSTS_MOST, "h1 ssh-ed25519 A", "new ssh-ed25519 B")
