"""The client's configuration belongs to the user: a server enters itself, and never over somebody else's entry."""

from __future__ import annotations

from pathlib import Path

from chalicelib.domain.tenants import hash_token
from chalicelib.runtime.startup_message import startup_lines
from cli.connection.config import ProjectEntry, load_projects, save_projects

URL, TOKEN = "http://127.0.0.1:3000", "the-token"


def started(path: Path, url: str = URL, token: str | None = TOKEN, *, enter: bool | None = None) -> str:
    return "\n".join(startup_lines(path, url, token, hash_token(TOKEN), enter))


def test_the_first_start_enters_the_project_as_the_default(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    assert TOKEN in started(path)
    assert load_projects(path) == [ProjectEntry("main", URL, TOKEN, default=True)]


def test_a_later_start_on_another_port_moves_the_entry_and_shows_no_token(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    started(path)
    assert TOKEN not in started(path, "http://127.0.0.1:4000", None)
    assert load_projects(path) == [ProjectEntry("main", "http://127.0.0.1:4000", TOKEN, default=True)]


def test_an_entry_of_another_server_is_kept_and_the_command_to_replace_it_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    entries = [ProjectEntry("main", "https://elsewhere.example", "precious", default=True)]
    save_projects(path, entries)
    assert "dstack project add --name main" in started(path)
    assert load_projects(path) == entries


def test_an_entry_of_another_server_is_replaced_only_where_the_user_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    save_projects(path, [ProjectEntry("main", "https://elsewhere.example", "old", default=True)])
    assert "is the default" in started(path, enter=True)
    assert load_projects(path) == [ProjectEntry("main", URL, TOKEN, default=True)]


def test_told_not_to_it_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    assert "dstack project add --name main" in started(path, enter=False)
    assert not path.exists()


def test_a_file_that_cant_be_written_keeps_no_server_from_serving(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 50) / ("longer" * 50) / "config.yml"
    message = started(path)
    assert f"{path} can't be written (File name too long)" in message
    assert message.endswith(f"dstack project add --name main --url {URL} --token {TOKEN}")


def test_another_default_stays_the_default(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    save_projects(path, [ProjectEntry("work", "https://elsewhere.example", "precious", default=True)])
    assert "set-default main" in started(path)
    assert [entry.name for entry in load_projects(path) if entry.default] == ["work"]


def test_a_later_start_without_an_entry_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    assert "DSTACK_SERVER_ADMIN_TOKEN" in started(path, token=None), "a token that was lost can be replaced"
    assert load_projects(path) == []
