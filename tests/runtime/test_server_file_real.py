"""`dstack server` and its `config.yml`: applied as a whole, or refused with every place before anything is created."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.errors import Refused
from chalicelib.runtime.server_file import declared
from chalicelib.runtime.settings import server_settings
from tests.harness import forks
from tests.harness.server import PATIENCE, ROOT, HttpError, Server, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", flags=("--no-local-fleet",))
    one.home.mkdir()
    yield one
    one.close()


def attempt(server: Server, *flags: str) -> str:
    """What a start says that must fail."""
    words = ["server", "--data-dir", str(server.data), "--no-local-fleet", "--port", "0", *flags]
    status, _, said = forks.streams(words, ROOT, server.environment(), seconds=int(PATIENCE))
    assert status == 1 and "Traceback" not in said, said
    return said


def configure(server: Server, text: str) -> Path:
    server.data.mkdir(parents=True, exist_ok=True)
    path = server.data / "config.yml"
    path.write_text(text)
    return path


def names(server: Server) -> set[str]:
    return {project["project_name"] for project in server.call("/api/projects/list", {})}


def test_projects_and_permissions_take_effect_at_every_start(server: Server) -> None:
    configure(
        server,
        "projects:\n- name: main\n- name: research\ndefault_permissions:\n  allow_non_admins_create_projects: false\n",
    )
    server.start()
    assert names(server) == {"main", "research"}
    made = server.call("/api/users/create", {"username": "ann", "global_role": "user"})
    assert made["permissions"] == {"can_create_projects": False}
    token = made["creds"]["token"]
    with pytest.raises(HttpError, match="global admins"):
        server.call("/api/projects/create", {"project_name": "hers"}, token=token)
    server.stop()
    configure(server, "projects: [{name: third}]\n")
    server.start()
    assert names(server) == {"main", "research", "third"}
    assert server.call("/api/projects/create", {"project_name": "hers"}, token=token)["project_name"] == "hers"


def test_a_key_of_ones_own_seals_and_what_the_servers_own_sealed_opens(server: Server) -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    server.start()
    server.call("/api/project/main/secrets/create_or_update", {"name": "old", "value": "one"})
    server.stop()
    configure(server, f"projects: []\nencryption:\n  keys:\n  - {{type: aes, name: k, secret: {key}}}\n")
    server.start()
    server.call("/api/project/main/secrets/create_or_update", {"name": "new", "value": "two"})
    values = [server.call("/api/project/main/secrets/get", {"name": name})["value"] for name in ("old", "new")]
    assert values == ["one", "two"]
    server.stop()
    configure(server, "projects: []\n")
    server.start()
    assert server.call("/api/project/main/secrets/get", {"name": "old"})["value"] == "one"
    with pytest.raises(HttpError, match="Put back the key"):
        server.call("/api/project/main/secrets/get", {"name": "new"})


def test_every_problem_is_told_with_its_place_and_nothing_is_made(server: Server) -> None:
    path = configure(server, "projects:\n- name: a b\n  backends:\n  - {type: runpod, creds: sk-hush}\nplugin: []\n")
    output = attempt(server)
    assert [f"{path}:{place}: " in output for place in ("2:3", "4:20", "5:1")] == [True] * 3, output
    assert "sk-hush" not in output and "did you mean `plugins`?" in output
    assert [entry.name for entry in server.data.iterdir()] == ["config.yml"]


def test_what_cannot_be_done_is_refused_by_name(server: Server) -> None:
    path = configure(server, "projects:\n- name: a\n  backends:\n  - type: dstack\nplugins: [quota]\n")
    output = attempt(server)
    assert f"{path}:4:5: projects.0.backends.0.type: the backend `dstack` isn't built yet" in output
    assert f"{path}:5:11: plugins.0: the plugin `quota`" in output
    assert [entry.name for entry in server.data.iterdir()] == ["config.yml"]


def test_a_file_elsewhere_is_named_by_flag_or_variable(server: Server) -> None:
    elsewhere = server.home / "plane.yml"
    elsewhere.write_text("projects: [{name: research}]\n")
    server.start("--config", str(elsewhere))
    assert names(server) == {"main", "research"}
    server.stop()
    elsewhere.unlink()
    assert f"There is no file {elsewhere}" in attempt(server, "--config", str(elsewhere))
    server.env["DSTACK_SERVER_CONFIG"] = str(elsewhere)
    assert f"There is no file {elsewhere}" in attempt(server)
    server.env["DSTACK_SERVER_CONFIG_DISABLED"] = "1"
    server.start()
    assert names(server) == {"main", "research"}


def backends_of(server: Server) -> list[tuple[str, str, list[str]]]:
    found = server.call("/api/project/main/backends/list", {})
    return [(each["name"], each["source"], each["config"]["regions"]) for each in found]


def rewrite(path: Path, text: str) -> None:
    """At once: nobody sees a file that is half there."""
    new = path.with_name("new.yml")
    new.write_text(text)
    new.replace(path)


def aws(region: str) -> str:
    creds = "{type: access_key, access_key: AKIA, secret_key: sk-hush}"
    return f"projects:\n- name: main\n  backends:\n  - {{type: aws, regions: [{region}], creds: {creds}}}\n"


def test_a_running_server_follows_the_backends_of_its_file(server: Server) -> None:
    server.env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"  # nobody is asked
    path = configure(server, aws("eu-west-1"))
    server.start()
    assert backends_of(server) == [("aws", "file", ["eu-west-1"])]
    rewrite(path, aws("us-east-1"))
    until("the change is applied", lambda: backends_of(server) == [("aws", "file", ["us-east-1"])])
    rewrite(path, "projects: [{name: main, backends: [{type: aws, creds: sk-hush}]}]\n")
    until("the broken file is told", lambda: "can't be used" in "\n".join(server.lines))
    assert backends_of(server) == [("aws", "file", ["us-east-1"])] and "sk-hush" not in "\n".join(server.lines)
    rewrite(path, "projects: [{name: main}]\n")
    until("what was taken out is gone", lambda: backends_of(server) == [])


# --- without a process ------------------------------------------------------------------------------------------------


def test_no_file_is_nothing(tmp_path: Path) -> None:
    config = declared(server_settings({}, data_dir=tmp_path))
    assert (config.projects, config.encryption, config.default_permissions) == ((), None, None)


def test_a_folder_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.yml").mkdir()
    with pytest.raises(Refused, match=r"config\.yml can't be read"):
        declared(server_settings({}, data_dir=tmp_path))
