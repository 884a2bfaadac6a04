"""Uploads: archives of files and code of repos, whole, hashed, within their folder."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import StorageFull
from chalicelib.usecases.context import SizeLimits
from tests.agent.hostile_tars import ALL_HOSTILE, HARMLESS, HOSTILE
from tests.api.rig import Rig, task
from tests.api.uploads import BOUNDARY, link, message, multipart, send, tar, upload

FILES = "/api/files/upload_archive"


def test_an_archive_is_kept_once_and_found_by_its_hash(rig: Rig) -> None:
    body = multipart(tar(("data/a.txt", b"hello")))
    first = upload(rig, FILES, body).json
    assert upload(rig, FILES, body).json == first
    assert rig.ok("/api/files/get_archive_by_hash", {"hash": first["hash"]}) == first


def test_archives_are_everybodys_own(rig: Rig) -> None:
    token = rig.user("ann")
    body = multipart(tar(("a", b"1")))
    own, anns = upload(rig, FILES, body).json, upload(rig, FILES, body, token=token).json
    assert own["hash"] == anns["hash"] and own["id"] != anns["id"]
    other = upload(rig, FILES, multipart(tar(("b", b"2")))).json
    reply = rig.call("/api/files/get_archive_by_hash", {"hash": other["hash"]}, token=token)
    assert reply.json["detail"][0]["code"] == "resource_not_exists"


def test_a_run_brings_its_users_own_archives(rig: Rig) -> None:
    """Ids are in every run that a member can read, so knowing one must not be enough."""
    own = upload(rig, FILES, multipart(tar(("a", b"1")))).json["id"]
    anns = upload(rig, FILES, multipart(tar(("a", b"1"))), token=rig.user("ann")).json["id"]
    spec = task(files=[{"local_path": "a", "path": "/a"}])
    for sent, field in (([], "files"), ([own, anns], "run_spec.file_archives.1.id"), (["x" * 5000], "archives.0")):
        raw = {**spec, "file_archives": [{"id": id_, "path": "/a"} for id_ in sent]}
        for path, body in (("get_plan", {"run_spec": raw}), ("apply", {"plan": {"run_spec": raw}, "force": False})):
            reply = rig.call(f"/api/project/main/runs/{path}", body)
            assert reply.status == 400 and field in reply.json["detail"][0]["msg"], (path, reply.json)
    rig.ok("P/runs/get_plan", {"run_spec": {**spec, "file_archives": [{"id": own, "path": "/a"}]}})


@pytest.mark.parametrize(
    "content",
    [
        tar(("../evil", b"x")),
        tar(("/etc/cron.d/evil", b"x")),
        tar(("a/../../evil", b"x")),
        tar(("ok", b"x"), ("a\\..\\evil", b"x")),
        link("here", "/etc/passwd"),
        link("a/here", "../../up"),
        link("here", "../up", tarfile.LNKTYPE),
        link("dev", "", tarfile.CHRTYPE),
        link("pipe", "", tarfile.FIFOTYPE),
    ],
)
def test_what_would_leave_its_folder_is_refused(rig: Rig, content: bytes) -> None:
    assert "The archive's entry" in message(upload(rig, FILES, multipart(content)))
    assert not (rig.world.folder / "blobs").exists()


@pytest.mark.parametrize("what", ALL_HOSTILE)
def test_a_hostile_archive_is_refused_with_its_entry_and_the_reason(tmp_path: Path, what: str) -> None:
    content, name, reason = HOSTILE[what]
    rig = Rig.at(tmp_path, limits=SizeLimits(upload=len(content), body=2 * len(content)))
    code = {"repo_id": "none", "repo_info": {"repo_type": "virtual"}, "repo_creds": None}
    rig.ok("P/repos/init", code)
    for path, query in ((FILES, {}), ("P/repos/upload_code", {"repo_id": "none"})):
        text = message(upload(rig, path, multipart(content), query=query))
        assert reason in text and name in text and len(text) < 500
    assert not (rig.world.folder / "blobs").exists()


@pytest.mark.parametrize("what", HARMLESS)
def test_a_harmless_archive_is_taken(rig: Rig, what: str) -> None:
    assert upload(rig, FILES, multipart(HARMLESS[what])).status == 200


@pytest.mark.parametrize("cut", range(0, 2000, 97))
def test_a_damaged_archive_is_the_callers_fault(rig: Rig, cut: int) -> None:
    archive = bytearray(HARMLESS["links"])
    archive[cut : cut + 40] = b"\xff" * 40
    assert upload(rig, FILES, multipart(bytes(archive))).status in (200, 400)


@pytest.mark.parametrize(
    "content", [link("here", "a/b"), link("a/here", "../b"), tar(("a/./b", b"x"), ("a/c/../d", b""), ("e/../f", b""))]
)
def test_what_stays_in_its_folder_is_taken(rig: Rig, content: bytes) -> None:
    assert upload(rig, FILES, multipart(content)).status == 200


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (multipart(b"not a tar at all" * 100), "isn't a tar"),
        (multipart(tar(("a", b"1")), name="0" * 64), "doesn't have the hash"),
        (multipart(tar(("a", b"1")), name="evil.tar"), "SHA-256"),
        (multipart(tar(("a", b"1")), name="../../etc/passwd"), "SHA-256"),
        (multipart(tar(("a", b"1")), part="other"), "no part called `file`"),
        (multipart(tar(("a", b"1")))[:-40], "truncated"),
        (b"", "boundary"),
        (b"\xff" * 100, "boundary"),
        (f"--{BOUNDARY}--\r\n".encode(), "truncated"),
    ],
)
def test_an_upload_that_is_not_whole_is_refused(rig: Rig, body: bytes, expected: str) -> None:
    assert expected in message(upload(rig, FILES, body))


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary="])
def test_another_content_type_is_refused(rig: Rig, kind: str) -> None:
    assert "multipart/form-data" in message(send(rig, "POST", FILES, multipart(b"x"), content_type=kind))


def test_an_upload_over_the_limit_says_how_large_it_is(rig: Rig) -> None:
    text = message(upload(rig, FILES, multipart(tar(("a", b"x" * 3_000_000)))))
    assert "2.9 MB" in text and "limit is 2 MB" in text


def test_a_user_keeps_so_many_bytes_of_files_and_code_together(rig: Rig) -> None:
    rig.world.plane = replace(rig.world.plane, limits=SizeLimits(uploads=30_000))
    rig.ok("P/repos/init", {"repo_id": "none", "repo_info": {"repo_type": "virtual"}, "repo_creds": None})
    first = upload(rig, FILES, multipart(tar(("a", b"1"))))
    assert upload(rig, FILES, multipart(tar(("a", b"1")))).json == first.json, "the same again takes no more"
    assert upload(rig, "P/repos/upload_code", multipart(tar(("a", b"1"))), query={"repo_id": "none"}).status == 200
    for path, query in ((FILES, {}), ("P/repos/upload_code", {"repo_id": "none"})):
        text = message(upload(rig, path, multipart(tar(("b", b"2"))), query=query))
        assert "a user may keep" in text and "erased after a day" in text
    assert len(rig.world.plane.blobs.list("")) == 2, "what is refused is nowhere"
    token = rig.user("ann")
    assert upload(rig, FILES, multipart(tar(("b", b"2"))), token=token).status == 200, (
        "each has an allowance of their own"
    )


def test_however_small_an_upload_is_it_takes_room(rig: Rig) -> None:
    rig.world.plane = replace(rig.world.plane, limits=SizeLimits(uploads=8192))
    rig.ok("P/repos/init", REMOTE)
    for number in range(3):
        reply = upload(rig, "P/repos/upload_code", multipart(b"%d" % number), query={"repo_id": "r-1"})
        assert (reply.status == 200) is (number < 2)


def test_a_full_disk_is_told_and_nothing_is_kept(tmp_path) -> None:
    class FullBlobs:
        def put(self, name: str, data: bytes) -> None:
            raise StorageFull("The disk is full.", hint="Make room.")

        def get(self, name: str) -> bytes | None:
            return None

        def delete(self, *names: str) -> None: ...

        def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
            return []

    rig = Rig.at(tmp_path, blobs=FullBlobs())
    content = tar(("a", b"1"))
    assert "disk is full" in message(upload(rig, FILES, multipart(content)))
    assert rig.call("/api/files/get_archive_by_hash", {"hash": "0" * 64}).status == 400


# --- repos ------------------------------------------------------------------------------------------------------------

CREDS = {"clone_url": "https://example.org/r.git", "private_key": None, "oauth_token": "gho_secret"}
REMOTE = {"repo_id": "r-1", "repo_info": {"repo_type": "remote", "repo_name": "r"}, "repo_creds": CREDS}


def test_a_repo_is_known_after_init(rig: Rig) -> None:
    assert (
        rig.ok("P/repos/init", {"repo_id": "none", "repo_info": {"repo_type": "virtual"}, "repo_creds": None}) is None
    )
    assert rig.ok("P/repos/get", {"repo_id": "none", "include_creds": True}) == {
        "repo_id": "none",
        "repo_info": {"repo_type": "virtual"},
        "repo_creds": None,
        "has_creds": False,
    }
    reply = rig.call("/api/project/main/repos/get", {"repo_id": "other", "include_creds": False})
    assert reply.json["detail"][0]["code"] == "resource_not_exists"


def test_credentials_of_a_repo_are_their_givers_and_sealed(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.user)
    rig.ok("P/repos/init", REMOTE)
    body = {"repo_id": "r-1", "include_creds": True}
    assert rig.ok("P/repos/get", body)["repo_creds"] == CREDS
    assert rig.ok("P/repos/get", body, token=token)["repo_creds"] is None
    rig.ok("P/repos/init", {**REMOTE, "repo_creds": {"clone_url": "https://hers"}}, token=token)
    assert rig.ok("P/repos/get", body, token=token)["repo_creds"]["clone_url"] == "https://hers"
    assert rig.ok("P/repos/get", body)["repo_creds"] == CREDS
    stored = b"".join(path.read_bytes() for path in rig.world.folder.rglob("*") if path.is_file())
    assert b"gho_secret" not in stored
    made = rig.ok("/api/users/access_tokens/create", {"name": "ci", "verbs": ["run", "project"]})["token"]
    seen = rig.ok("P/repos/get", body, token=made)
    assert (seen["repo_creds"], seen["has_creds"]) == (None, True), "no access token sees them"
    moved = {**REMOTE, "repo_creds": {**CREDS, "oauth_token": "newer"}}
    rig.ok("P/repos/init", moved, token=made)
    assert rig.ok("P/repos/get", body)["repo_creds"]["oauth_token"] == "newer", "a CI has new ones for each job"
    rig.ok("P/repos/init", {**REMOTE, "repo_creds": None})
    assert rig.ok("P/repos/get", body)["repo_creds"] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repo_id": "a/b"}, "repo_id"),
        ({"repo_id": ""}, "repo_id"),
        ({"repo_info": {"repo_type": "cvs"}}, "repo_info.repo_type"),
        ({"repo_info": {"repo_type": "remote", "repo_name": "x" * 5000}}, "bytes of JSON"),
        ({"repo_creds": {"clone_url": "u", "private_key": "k" * 20_000}}, "repo_creds"),
    ],
)
def test_a_bad_repo_is_refused_by_field(rig: Rig, fields: dict, message: str) -> None:
    assert message in rig.refused("P/repos/init", {**REMOTE, **fields})


def test_repos_are_listed_and_deleted(rig: Rig) -> None:
    rig.ok("P/repos/init", REMOTE)
    assert rig.ok("P/repos/list") == [{"repo_id": "r-1", "repo_info": REMOTE["repo_info"]}]
    rig.ok("P/repos/delete", {"repos_ids": ["r-1"]})
    assert rig.ok("P/repos/list") == []
    assert "dstack init" in rig.refused("P/repos/delete", {"repos_ids": ["r-1"]})


def test_repos_come_in_pages_by_id(rig: Rig) -> None:
    for repo_id in ("c", "a", "b"):
        rig.ok("P/repos/init", {**REMOTE, "repo_id": repo_id})
    pages = [rig.ok("P/repos/list", {"limit": 2, "after": after}) for after in ("", "b", "c")]
    assert [[repo["repo_id"] for repo in page] for page in pages] == [["a", "b"], ["c"], []]


def test_code_is_kept_for_a_known_repo_only(rig: Rig) -> None:
    body, path = multipart(tar(("a.py", b"print()"))), "P/repos/upload_code"
    assert "dstack init" in message(upload(rig, path, body, query={"repo_id": "vr"}))
    rig.ok("P/repos/init", {"repo_id": "vr", "repo_info": {"repo_type": "virtual"}, "repo_creds": None})
    assert upload(rig, path, body, query={"repo_id": "vr"}).json is None
    assert "repo_id" in message(upload(rig, path, body))
    assert "outside" in message(upload(rig, path, multipart(tar(("../a", b""))), query={"repo_id": "vr"}))
    wrong = multipart(tar(("a.py", b"print()")), name="0" * 64)
    assert "the hash in its file name" in message(upload(rig, path, wrong, query={"repo_id": "vr"}))
