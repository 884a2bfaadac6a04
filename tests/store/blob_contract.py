"""What every blob store must do. A test class inherits `BlobContract` and gives it `blobs`."""

from __future__ import annotations

import time

import pytest

from chalicelib.domain.instants import SECOND
from chalicelib.errors import Invalid
from chalicelib.store.blobs import Blobs
from tests.harness.conformance import Conformance

NAMES = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", ".a", "a/.b"]
NAMES += ["a\\b", "a b", "a\0", "ü", "a\n", "x" * 513]


class BlobContract(Conformance):
    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError

    def test_what_is_put_comes_back(self, blobs: Blobs) -> None:
        for data in (b"", b"x", bytes(range(256)) * 4000):
            blobs.put("code/a", data)
            assert blobs.get("code/a") == data

    def test_what_is_not_there_is_none(self, blobs: Blobs) -> None:
        blobs.put("code/a", b"1")
        assert blobs.get("code/b") is None
        assert blobs.get("code") is None
        assert blobs.get("code/a/b") is None
        blobs.delete("code/b")
        blobs.delete("code")
        blobs.delete("code/a/b")
        assert blobs.get("code/a") == b"1"

    def test_delete(self, blobs: Blobs) -> None:
        blobs.put("code/a", b"1")
        blobs.delete("code/a")
        blobs.delete("code/a")
        assert blobs.get("code/a") is None
        assert blobs.list("") == []

    def test_delete_many(self, blobs: Blobs) -> None:
        names = [f"n/{n:02d}" for n in range(25)]
        for name in names:
            blobs.put(name, b"1")
        blobs.delete(*names[5:], "n/none")
        assert blobs.list("") == names[:5]
        blobs.delete()
        with pytest.raises(Invalid):
            blobs.delete("n/00", "../n/01")
        assert blobs.list("") == names[:5]

    def test_list_is_in_text_order_by_prefix(self, blobs: Blobs) -> None:
        names = ["a-b", "a.b/c", "a/b", "a/c/d", "a/ca", "ab", "b"]
        for name in reversed(names):
            blobs.put(name, b"1")
        assert blobs.list("") == sorted(names)
        assert blobs.list("a/") == ["a/b", "a/c/d", "a/ca"]
        assert blobs.list("a/c") == ["a/c/d", "a/ca"]
        assert blobs.list("a") == [name for name in sorted(names) if name.startswith("a")]
        assert blobs.list("nothing/here") == []

    def test_list_goes_on_after_a_name(self, blobs: Blobs) -> None:
        names = [f"n/{n:02d}" for n in range(25)]
        for name in names:
            blobs.put(name, b"1")
        assert blobs.list("n/", "n/09", 10) == names[10:20]
        assert blobs.list("n/", "n/09x", 100) == names[10:]
        assert blobs.list("n/", "n/24") == []
        assert blobs.list("n/", limit=0) == []

    def test_names_come_with_the_time_of_their_last_put(self, blobs: Blobs) -> None:
        began = int(time.time()) * SECOND
        for name in ("n/a", "n/b", "n/c", "o"):
            blobs.put(name, b"1")
        found = blobs.dated("n/", "n/a")
        assert [name for name, _ in found] == ["n/b", "n/c"]
        assert all(began <= at <= (time.time() + 1) * SECOND for _, at in found)
        assert [name for name, _ in blobs.dated("n/", limit=2)] == ["n/a", "n/b"]
        assert blobs.dated("p/") == []

    def test_tidying_takes_no_blob(self, blobs: Blobs) -> None:
        blobs.put("n/a", b"1")
        blobs.tidy(int(time.time() + 60) * SECOND)
        assert blobs.get("n/a") == b"1"

    @pytest.mark.parametrize("name", NAMES)
    def test_a_name_that_could_lead_elsewhere_is_refused(self, blobs: Blobs, name: str) -> None:
        for operation in (blobs.get, blobs.delete, lambda name: blobs.put(name, b"1")):
            with pytest.raises(Invalid, match="can't name a blob"):
                operation(name)
        assert blobs.list("") == []

    def test_a_prefix_does_not_lead_elsewhere(self, blobs: Blobs) -> None:
        for prefix in ("../", "/etc/", "a/../../"):
            with pytest.raises(Invalid):
                blobs.list(prefix)
