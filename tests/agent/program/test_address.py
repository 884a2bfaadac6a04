"""The agent's address of the server, and how it follows a server that moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.agent.program.address import Address, followed

OLD, NEW, NEWEST = "http://old:3000", "https://new.example.com", "https://newest.example.com"


def at(folder: Path, url: str = OLD) -> Address:
    (folder / "server").write_text(url + "\n")
    return Address(str(folder))


def test_a_redirected_agent_calls_the_new_address_from_now_on(tmp_path: Path) -> None:
    address = at(tmp_path)
    address.refresh()
    address.follow(NEW)
    assert address.refresh() and address.current[0] == NEW


def test_an_agent_that_is_started_with_the_old_address_goes_on_to_the_last_one(tmp_path: Path) -> None:
    assert followed(str(tmp_path), OLD) == OLD
    address = at(tmp_path)
    address.follow(NEW)
    address.follow(NEWEST)
    assert followed(str(tmp_path), OLD) == NEWEST
    assert followed(str(tmp_path), "http://another:3000") == "http://another:3000"  # it was given another server


def test_an_agent_that_came_back_to_the_old_address_stays_there(tmp_path: Path) -> None:
    address = at(tmp_path, "https://old")
    address.follow(NEW)
    address.follow("https://old")
    assert followed(str(tmp_path), "https://old") == "https://old" == address.read()[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("https://old", "http://new"),  # without encryption
        (OLD, OLD),
        (OLD, "file:///etc/passwd"),
        (OLD, "https://user@new"),
        (OLD, "https://"),
        (OLD, "https://new:port"),
        (OLD, "https://new https://newer"),
        (OLD, "https://new\nhttps://newer"),
        (OLD, ""),
    ],
)
def test_what_no_server_would_say_isnt_followed(tmp_path: Path, old: str, new: str) -> None:
    address = at(tmp_path, old)
    address.follow(new)
    assert address.read()[0] == old
    assert not (tmp_path / "moved").exists()


def test_an_address_is_read_again_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "server").write_text(" http://one \n")
    address = Address(str(tmp_path))
    assert address.refresh() and address.current == ("http://one", "")
    assert not address.refresh()
    (tmp_path / "token").write_text("t\n")
    assert address.refresh() and address.current == ("http://one", "t")
