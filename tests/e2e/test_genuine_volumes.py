"""The genuine client's volumes against our server, whose simulated cloud stands in for a type that the client knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.simulated.loops import LoopDevices
from chalicelib.backends.simulated.state import FolderResources
from tests.e2e.peer import Peer
from tests.harness.server import Server, until

DATA = "type: volume\nname: data\nbackend: aws\nregion: sim-east\nsize: 50GB\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--no-local-fleet")
    one = Server(tmp_path_factory.mktemp("server") / "home", flags=flags)
    one.home.mkdir()
    try:
        one.start()
        yield one
    finally:
        one.close()


def write(peer: Peer, text: str, name: str = "volume.dstack.yml") -> str:
    (peer.home / name).write_text(text)
    return name


def volumes(server: Server) -> dict[str, Any]:
    return {each["name"]: each for each in server.call("/api/project/main/volumes/list", {})}


def test_a_volume_is_created_and_waited_for(peer: Peer, server: Server) -> None:
    output = peer.run("apply", "-y", "-f", write(peer, DATA)).text
    assert "Volume data does not exist yet." in output and "Size" in output
    header, row = [row for row in peer.run("volume", "list").rows() if row][:2]
    assert header == ["NAME", "BACKEND", "STATUS", "CREATED"]
    assert row[:3] == ["data", "aws (sim-east)", "active"]
    made = volumes(server)["data"]
    assert made["provisioning_data"]["size_gb"] == 50 and made["provisioning_data"]["price"] == pytest.approx(4.0)


def test_the_same_file_changes_nothing(peer: Peer, server: Server) -> None:
    before = volumes(server)["data"]["id"]
    assert "No configuration changes detected" in peer.run("apply", "-y", "-f", write(peer, DATA)).text
    assert volumes(server)["data"]["id"] == before


def test_a_changed_file_replaces_it(peer: Peer, server: Server) -> None:
    before = volumes(server)["data"]["id"]
    peer.run("apply", "-y", "-f", write(peer, DATA.replace("50GB", "60GB") + "availability_zone: sim-east-b\n"))
    after = volumes(server)["data"]
    assert after["id"] != before
    assert (after["status"], after["provisioning_data"]["availability_zone"]) == ("active", "sim-east-b")


def test_a_disk_that_is_a_volume_isnt_registered_again(peer: Peer, server: Server) -> None:
    provider_id = volumes(server)["data"]["volume_id"]
    text = f"type: volume\nname: again\nbackend: aws\nregion: sim-east\nvolume_id: {provider_id}\n"
    output = peer.run("apply", "-y", "-f", write(peer, text), expect=1).text
    assert f"Volume {provider_id} is the volume data already" in " ".join(output.split())
    assert volumes(server)["again"]["external"]
    peer.run("volume", "delete", "-y", "again")
    until("it to be forgotten", lambda: "again" not in volumes(server))
    assert volumes(server)["data"]["volume_id"] == provider_id


def test_a_disk_of_somebody_else_is_registered_and_left_as_it_is(peer: Peer, server: Server) -> None:
    (cloud,) = server.home.rglob("fake-cloud")
    disks, devices = FolderResources(cloud / "volumes"), LoopDevices(cloud / "images")
    FakeCloud(lambda: 0, volumes=disks, devices=devices).disks.add(
        "vol-theirs", "sim-east", size_gib=7, projects="main"
    )
    text = "type: volume\nname: theirs\nbackend: aws\nregion: sim-east\nvolume_id: vol-theirs\n"
    peer.run("apply", "-y", "-f", write(peer, text))
    made = volumes(server)["theirs"]
    assert (made["status"], made["external"], made["volume_id"]) == ("active", True, "vol-theirs")
    assert made["provisioning_data"]["size_gb"] == 7
    assert "active" in next(row for row in peer.run("volume", "list").rows() if row and row[0] == "theirs")
    peer.run("volume", "delete", "-y", "theirs")
    until("it to be forgotten", lambda: "theirs" not in volumes(server))
    assert disks.get("vol-theirs") is not None and (cloud / "images" / "vol-theirs.img").exists()


def test_one_that_isnt_there_fails_and_says_so(peer: Peer, server: Server) -> None:
    text = "type: volume\nname: ghost\nbackend: aws\nregion: sim-east\nvolume_id: vol-missing\n"
    output = peer.run("apply", "-y", "-f", write(peer, text), expect=1).text
    assert "Provisioning failed. Error: Volume vol-missing not found" in output
    assert "Volume vol-missing not found" in peer.run("volume", "list", "-v").text
    peer.run("volume", "delete", "-y", "ghost")
    until("it to go", lambda: "ghost" not in volumes(server))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DATA.replace("aws", "gcp"), "The backend gcp isn't configured for the project main."),
        (DATA.replace("size: 50GB\n", ""), "size"),
    ],
)
def test_what_is_refused_is_told(peer: Peer, server: Server, text: str, message: str) -> None:
    assert (
        message in peer.run("apply", "-y", "-f", write(peer, text.replace("name: data", "name: other")), expect=1).text
    )
    assert "other" not in volumes(server)


def test_it_is_shown_whole_and_in_the_events(peer: Peer, server: Server) -> None:
    assert peer.json("volume", "get", "data", "--json")["name"] == "data"
    assert "[volume data]" in peer.run("event", "--target-volume", "data").text


def test_it_is_deleted(peer: Peer, server: Server) -> None:
    peer.run("volume", "delete", "-y", "data")
    until("it to go", lambda: "data" not in volumes(server))
    assert "data" not in peer.run("volume", "list").text
    peer.run("volume", "delete", "-y", "data", expect=1)


def test_a_file_deletes_what_it_describes(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-f", write(peer, DATA))
    peer.run("delete", "-y", "-f", write(peer, DATA))
    until("it to go", lambda: "data" not in volumes(server))
