"""Prices from a published catalogue, and from the operator's file beside it."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.kit.rest import NoAnswer
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.backends.published_prices import LIFETIME, PAUSE, Published, PublishedPrices, got
from chalicelib.domain.instants import SECOND, from_iso
from chalicelib.errors import Transient, Unfit
from tests.backends.clock import Clock

HEAD = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags\n"
ROWS = """\
m.large,east,0.5,2,8,0,,,False,,,
m.large,east,0.2,2,8,0,,,True,,,
m.large,east,0.3,2,8,0,,,True,,,
m.huge,east,0.0,64,256,0,,,False,,,
m.huge,west,,64,256,0,,,False,,,
"""
AT = from_iso("2026-11-20T08:00:00Z")


def archive(rows: str = ROWS, provider: str = "nimbus", head: str = HEAD) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr(f"{provider}.csv", head + rows)
    return made.getvalue()


def damaged(made: bytes) -> bytes:
    return made[:45] + bytes(each ^ 0xFF for each in made[45:60]) + made[60:]


def encrypted(made: bytes) -> bytes:
    """By its flags."""
    entry = made.index(b"PK\x01\x02")
    return made[:6] + b"\x01" + made[7 : entry + 8] + b"\x01" + made[entry + 9 :]


class Site:
    """What is published, and what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.down = False

    def publish(self, version: str, body: bytes) -> None:
        self.files |= {"nimbus/version": f"{version}\n".encode(), f"nimbus/{version}/catalog.zip": body}

    def get(self, address: str) -> Published | None:
        name = address.removeprefix("https://prices.example.com/v1/")
        self.asked.append(name)
        if self.down:
            raise NoAnswer("it is down")
        return Published(self.files[name], AT) if name in self.files else None


@pytest.fixture
def site() -> Site:
    found = Site()
    found.publish("20261120-1", archive())
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def prices(site: Site, clock: Clock) -> PublishedPrices:
    return PublishedPrices("https://prices.example.com/v1/", clock.now, site.get)


def test_a_price_that_isnt_known_is_none_and_never_0(prices: PublishedPrices) -> None:
    assert prices.of("nimbus") == {("m.large", "east"): (0.5, 0.3)}
    assert prices.origin == "prices.example.com, 2026-11-20"


def test_a_provider_that_isnt_published_has_none(prices: PublishedPrices, site: Site) -> None:
    assert prices.of("stratus") == {}
    assert site.asked == ["stratus/version"]


def test_a_newer_version_is_read_in_time_and_the_same_one_isnt_again(
    prices: PublishedPrices, site: Site, clock: Clock
) -> None:
    prices.of("nimbus")
    prices.of("nimbus")
    assert len(site.asked) == 2
    clock.passes(LIFETIME / SECOND)
    prices.of("nimbus")
    assert site.asked[2:] == ["nimbus/version"]
    site.publish("20261121-1", archive("m.large,east,0.7,2,8,0,,,False,,,\n"))
    clock.passes(LIFETIME / SECOND)
    assert prices.of("nimbus") == {("m.large", "east"): (0.7, None)}


def test_while_it_is_down_the_last_prices_serve(prices: PublishedPrices, site: Site, clock: Clock) -> None:
    site.down = True
    with pytest.raises(Transient, match=r"prices of nimbus in the catalogue https://prices\.example\.com/v1"):
        prices.of("nimbus")
    site.down = False
    clock.passes(PAUSE / SECOND)
    known = prices.of("nimbus")
    site.down = True
    clock.passes(LIFETIME / SECOND)
    assert prices.of("nimbus") == known
    site.down = False
    site.publish("2", archive("m.large,east,0.7,2,8,0,,,False,,,\n"))
    assert prices.of("nimbus") == known
    clock.passes(PAUSE / SECOND)
    assert prices.of("nimbus") == {("m.large", "east"): (0.7, None)}


@pytest.mark.parametrize("read_before", [True, False])
def test_after_a_failure_it_is_left_alone_for_a_while(
    prices: PublishedPrices, site: Site, clock: Clock, read_before: bool
) -> None:
    """Each call may take as long as its deadline."""
    if read_before:
        prices.of("nimbus")
        clock.passes(LIFETIME / SECOND)
    site.asked.clear()
    site.down = True
    for _ in range(10):
        with nullcontext() if read_before else pytest.raises(Transient, match="can't be read: it is down"):
            assert prices.of("nimbus") == {("m.large", "east"): (0.5, 0.3)}
    assert site.asked == ["nimbus/version"]


def test_what_is_missing_for_a_while_doesnt_take_the_last_prices_away(
    prices: PublishedPrices, site: Site, clock: Clock
) -> None:
    """A bucket that refuses, and a version that is being replaced by one that can't be read."""
    known = prices.of("nimbus")
    for body in (None, b"", b"<html>Sign in</html>", b"2"):
        site.files.pop("nimbus/version", None)
        site.files |= {} if body is None else {"nimbus/version": body}
        site.files["nimbus/2/catalog.zip"] = b"<html>"
        clock.passes(LIFETIME / SECOND)
        assert prices.of("nimbus") == known
    site.publish("3", archive("m.large,east,0.7,2,8,0,,,False,,,\n"))
    clock.passes(PAUSE / SECOND)
    assert prices.of("nimbus") == {("m.large", "east"): (0.7, None)}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "not a zip file"),
        (archive(provider="other"), "no item named 'nimbus.csv'"),
        (archive(head="instance_name,price\n"), "lacks the column location, spot"),
        (archive("m.large,east,-1,2,8,0,,,False,,,\n"), "'-1' is no number of dollars an hour"),
        (archive("m.large,east,inf,2,8,0,,,False,,,\n"), "'inf' is no number"),
        (archive("m.large,east,cheap,2,8,0,,,False,,,\n"), "could not convert"),
        (archive("m.large,east,0.1\n"), r"nimbus\.csv, line 2 has too few columns"),
        (damaged(archive(ROWS * 50)), "invalid|incorrect|Bad CRC"),
        (encrypted(archive()), "encrypted"),
    ],
)
def test_what_cant_be_used_says_where_and_why(prices: PublishedPrices, site: Site, body: bytes, said: str) -> None:
    site.publish("2", body)
    with pytest.raises(Unfit, match=r"nimbus/2/catalog\.zip can't be read: .*" + said):
        prices.of("nimbus")


def test_a_version_that_is_a_page_or_a_path_is_refused(prices: PublishedPrices, site: Site, clock: Clock) -> None:
    for version in ("<html>Sign in</html>", "../../secret"):
        site.files["nimbus/version"] = version.encode()
        with pytest.raises(Unfit, match="isn't one"):
            prices.of("nimbus")
        clock.passes(PAUSE / SECOND)
    site.files = {"nimbus/version": b"7"}
    with pytest.raises(Transient, match="there is no"):
        prices.of("nimbus")


def test_the_files_price_counts_where_both_have_one(prices: PublishedPrices, tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("provider,instance_type,region,price,spot_price,currency\nnimbus,m.large,west,0.9,,usd\n")
    both = OfflinePrices(file, prices)
    assert both.of("nimbus") == {("m.large", "west"): (0.9, None), ("m.large", "east"): (0.5, 0.3)}
    assert both.origin.startswith("own.csv, ") and both.origin.endswith("; prices.example.com, 2026-11-20")
    assert both.name == f"{file} and the catalogue https://prices.example.com/v1"
    file.write_text("provider,instance_type,region,price,spot_price\nnimbus,m.large,east,0.41,\n")
    assert both.of("nimbus") == {("m.large", "east"): (0.41, 0.3)}, "each of its prices by itself"
    file.write_text("provider,instance_type,region,price,spot_price\nnimbus,m.large,,0.41,\nnimbus,m.large,west,,0.2\n")
    everywhere = {("m.large", ""): (0.41, None), ("m.large", "west"): (0.41, 0.2)}
    assert both.of("nimbus") == {**everywhere, ("m.large", "east"): (0.41, 0.3)}
    assert OfflinePrices(None, prices).of("nimbus") == {("m.large", "east"): (0.5, 0.3)}


def test_a_price_in_another_currency_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    rows = "nimbus,m.large,west,0.9,,USD\nnimbus,m.large,east,0.9,,EUR\n"
    file.write_text(f"provider,instance_type,region,price,spot_price,currency\n{rows}")
    with pytest.raises(Unfit, match=r"own\.csv, line 3: currency is 'EUR'.*Convert the price to USD"):
        OfflinePrices(file).of("nimbus")


# --- where it is -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "nimbus" / "3"
    place.mkdir(parents=True)
    (place.parent / "version").write_text("3\n")
    (place / "catalog.zip").write_bytes(archive())
    return tmp_path


def test_it_may_be_in_a_folder(folder: Path, clock: Clock) -> None:
    prices = PublishedPrices(f"file://{folder}", clock.now)
    assert prices.of("nimbus") == {("m.large", "east"): (0.5, 0.3)}
    assert prices.of("stratus") == {}
    (folder / "stratus").mkdir()
    (folder / "stratus" / "version").mkdir()
    with pytest.raises(NoAnswer, match="Is a directory"):
        got(f"file://{folder}/stratus/version")


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if "denied" in self.path or "broken" in self.path:
            self.send_error(403 if "denied" in self.path else 500)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: Handler(*given, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_it_may_be_at_an_address(address: str, folder: Path, clock: Clock) -> None:
    prices = PublishedPrices(address, clock.now)
    assert prices.of("nimbus") == {("m.large", "east"): (0.5, 0.3)}
    found = got(f"{address}/nimbus/version")
    modified = (folder / "nimbus" / "version").stat().st_mtime
    assert found is not None and found.modified is not None and abs(found.modified / SECOND - modified) <= 1
    assert (got(f"{address}/none"), got(f"{address}/denied")) == (None, None)
    with pytest.raises(NoAnswer, match="answers 500"):
        got(f"{address}/broken")
