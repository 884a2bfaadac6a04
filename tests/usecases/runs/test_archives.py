"""Uploads and their archives: which are accepted, how they are stored, and what counts as use."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Archive, User, archive_id
from chalicelib.errors import Invalid, Refused
from chalicelib.store import nouns
from chalicelib.usecases.runs.archives import MAX_NAME, as_content, check_tar
from chalicelib.usecases.runs.files import archive_by_hash, save_archive, use
from tests.api.uploads import tar
from tests.world import nouns as b
from tests.world.plane import World

ANN = User(id="ann", name="ann", created_at=0, token_hash="")
CONTENT = tar(("a", b"1"))
HASH = hashlib.sha256(CONTENT).hexdigest()


def saved(world: World, content: bytes = CONTENT) -> Archive:
    return save_archive(world.plane, ANN, hashlib.sha256(content).hexdigest(), content)


def stored(world: World) -> Archive:
    found = nouns.find(world.store, Archive, keys.archive(archive_id(ANN.id, HASH)))
    assert found is not None
    return found


def test_the_longest_path_of_linux_is_taken_and_no_longer_one() -> None:
    def path(length: int) -> str:
        return "/".join(["d" * 99] * 40)[: length - 100] + "/" + "f" * 99

    assert MAX_NAME == len(path(4096)) == 4096
    check_tar(tar((path(4096), b"1")))
    with pytest.raises(Invalid, match="too long: 4096 characters at most"):
        check_tar(tar((path(4097), b"1")))


def test_what_is_no_tar_is_refused() -> None:
    for check in (check_tar, as_content):
        with pytest.raises(Invalid, match="The upload isn't a tar archive"):
            check(b"no tar" * 200)


def test_as_content_names_and_hard_links_begin_at_the_folder_and_other_links_stay() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as packed:
        packed.addfile(tarfile.TarInfo("a"))
        for name, kind in (("hard", tarfile.LNKTYPE), ("soft", tarfile.SYMTYPE)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "a"
            packed.addfile(link)
    with tarfile.open(fileobj=io.BytesIO(as_content(out.getvalue()))) as found:
        assert [(each.name, each.linkname) for each in found] == [("./a", ""), ("./hard", "./a"), ("./soft", "a")]


def test_an_archive_may_end_with_its_last_byte() -> None:
    """Without the empty blocks that end it by the book."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as archive:
        member = tarfile.TarInfo("a")
        member.size = 512
        archive.addfile(member, io.BytesIO(b"x" * 512))
    check_tar(out.getvalue()[:1024])
    with pytest.raises(Invalid, match="claims 512 bytes, more bytes than were sent"):
        check_tar(out.getvalue()[:1023])


def test_content_whose_archive_is_being_erased_is_stored_under_another_name(world: World) -> None:
    first = saved(world)
    world.save(stored(world).with_(erased=True))
    again = saved(world)
    assert again.id == first.id and again.blob.startswith(f"{first.blob}-")
    assert (stored(world).blob, stored(world).erased) == (again.blob, False)
    assert world.plane.blobs.get(again.blob) == CONTENT


def test_an_archive_is_used_when_it_is_asked_for_and_that_is_noted_once_a_day(world: World) -> None:
    saved(world)
    began = world.at
    world.clock.at += DAY // 2 - 1
    archive_by_hash(world.plane, ANN, HASH)
    assert stored(world).used_at == began
    world.clock.at += 1
    archive_by_hash(world.plane, ANN, HASH)
    assert stored(world).used_at == world.at


def with_code(digest: str | None) -> RunSpec:
    return b.run_spec().with_(repo_code_hash=digest)


def test_a_run_uses_the_code_that_it_is_submitted_with(world: World) -> None:
    saved(world)
    world.clock.at += 3 * DAY
    use(world.plane, ANN.id, with_code(None))
    assert stored(world).used_at < world.at
    use(world.plane, ANN.id, with_code("0" * 64))
    use(world.plane, ANN.id, with_code(HASH))
    assert stored(world).used_at == world.at


def test_a_run_whose_code_is_being_erased_isnt_submitted(world: World) -> None:
    saved(world)
    world.save(stored(world).with_(erased=True))
    with pytest.raises(Refused, match="were just erased"):
        use(world.plane, ANN.id, with_code(HASH))
