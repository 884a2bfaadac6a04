"""Prices from a published catalogue, for clouds whose API says none, or wants credentials for them.

The catalogue has the form of gpuhunt's: under its address, `<provider>/version` names the newest version, and
`<provider>/<version>/catalog.zip` contains `<provider>.csv`. Of its columns, these are used: `instance_name`,
`location`, `price`, in US dollars an hour, and `spot`. A price of 0 means that nobody knows it. The address may be that
of a folder (`file://`).
"""

from __future__ import annotations

import csv
import io
import logging
import math
import re
import threading
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.rest import HttpSender, NoAnswer, RestCall
from chalicelib.backends.price_file import Priced
from chalicelib.domain.instants import HOUR, MINUTE, Micros, iso
from chalicelib.errors import BackendError, Transient, Unfit

log = logging.getLogger(__name__)

LIFETIME = 4 * HOUR  # after which its version is looked up again
PAUSE = 5 * MINUTE  # and after a failure
DEADLINE = 60.0  # seconds
LARGEST = 64 << 20, 512 << 20  # bytes of an archive, and of what is in it
COLUMNS = ("instance_name", "location", "price", "spot")
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)  # an archive: damaged, cut or encrypted
_VERSION = re.compile(r"[\w.-]{1,64}")


class Published(NamedTuple):
    """A file of the catalogue."""

    body: bytes
    modified: Micros | None = None


Getter = Callable[[str], Published | None]  # None: there is no such file. Raises NoAnswer


@dataclass
class _Prices:
    """A provider's, as they were last read."""

    due_at: Micros  # when its version is looked up again
    version: str = ""  # empty: the catalogue has none of this provider
    modified: Micros | None = None
    rows: Priced = field(default_factory=dict)
    failure: tuple[type[BackendError], str] | None = None  # why none could be read so far


class PublishedPrices:
    def __init__(self, address: str, now: Now = system_time, get: Getter | None = None) -> None:
        self._address, self._now, self._get = address.rstrip("/"), now, get or got
        self._known: dict[str, _Prices] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return f"the catalogue {self._address}"

    @property
    def origin(self) -> str:
        """A text on where these prices are from, and how old they are: those of all providers that were read."""
        with self._lock:
            read = [each for each in self._known.values() if each.version]
        ages = {iso(each.modified)[:10] if each.modified else f"version {each.version}" for each in read}
        return ", ".join([urlsplit(self._address).hostname or urlsplit(self._address).path, *sorted(ages)])

    def of(self, provider: str) -> Priced:
        """Empty if the catalogue has none. Prices that were read before are used while it can't be reached, or can't be
        used. If there are none, raises Transient or Unfit."""
        with self._lock:
            known = self._known.get(provider)
        if known is None or self._now() >= known.due_at:
            known = self._renewed(provider, known)
            with self._lock:
                self._known[provider] = known
        if known.failure is not None:
            kind, text = known.failure
            raise kind(text)
        return known.rows

    def _renewed(self, provider: str, known: _Prices | None) -> _Prices:
        try:
            return self._read(provider, known)
        except NoAnswer as error:
            failure: BackendError = Transient(f"The prices of {provider} in {self.name} can't be read: {error}")
        except Unfit as error:
            failure = error
        again = self._now() + PAUSE
        if known is None or known.failure is not None:
            return _Prices(again, failure=(type(failure), failure.message))
        log.warning("the prices of %s are those of version %s: %s", provider, known.version or "none", failure.message)
        return replace(known, due_at=again)

    def _read(self, provider: str, known: _Prices | None) -> _Prices:
        newest, due_at = self._get(f"{self._address}/{provider}/version"), self._now() + LIFETIME
        version = "" if newest is None else newest.body[:1000].decode(errors="replace").strip()
        if not version and known is not None and known.version:  # a bucket's answer, too, while it can't be read
            raise NoAnswer(f"there is no {self._address}/{provider}/version any more")
        if not version:
            return _Prices(due_at)
        if not _VERSION.fullmatch(version):
            raise Unfit(f"The version of the prices of {provider} in {self.name} isn't one: {version[:40]!r}.")
        if known is not None and known.version == version:
            return replace(known, due_at=due_at)
        place = f"{self._address}/{provider}/{version}/catalog.zip"
        archive = self._get(place)
        if archive is None:
            raise NoAnswer(f"there is no {place}")
        try:
            rows = _rows(archive.body, provider)
        except (*UNREADABLE, KeyError, csv.Error, ValueError) as error:
            raise Unfit(f"The prices in {place} can't be read: {error}.") from error
        return _Prices(due_at, version, archive.modified, rows)


def _rows(archive: bytes, provider: str) -> Priced:
    """Of a type that is listed more than once in a place, by zone for instance, the dearest counts."""
    with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
        listed = zipped.getinfo(f"{provider}.csv")
        if listed.file_size > LARGEST[1]:
            raise ValueError(f"{listed.filename} has {listed.file_size} bytes")
        with zipped.open(listed) as file:
            reader = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            if lacking := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
                raise ValueError(f"{listed.filename} lacks the column {', '.join(lacking)}")
            found: dict[tuple[str, str], tuple[float | None, float | None]] = {}
            for row in reader:
                if any(row[name] is None for name in COLUMNS):
                    raise ValueError(f"{listed.filename}, line {reader.line_num} has too few columns")
                price = _price(row["price"])
                if price is not None:
                    key = row["instance_name"], row["location"]
                    usual, spot = found.get(key, (None, None))
                    if row["spot"].strip().lower() == "true":
                        found[key] = usual, max(price, spot or 0.0)
                    else:
                        found[key] = max(price, usual or 0.0), spot
    return found


def _price(text: str | None) -> float | None:
    """None: it isn't known."""
    price = float(text or "nan")
    if math.isnan(price) or price == 0:
        return None
    if not 0 < price < 100_000:
        raise ValueError(f"{text!r} is no number of dollars an hour")
    return price


def got(address: str) -> Published | None:
    """The file at the address. A bucket that nobody may list answers 403 for what it doesn't have."""
    url = urlsplit(address)
    if url.scheme == "file":
        try:
            file = Path(unquote(url.path))
            return Published(file.read_bytes(), file.stat().st_mtime_ns // 1000)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NoAnswer(str(error)) from error
    send = HttpSender(1, LARGEST[0])
    try:
        answer = send(RestCall("GET", f"{url.scheme}://{url.netloc}", url.path), DEADLINE)
    finally:
        send.close()
    if answer.status in (403, 404):
        return None
    if answer.status != 200:
        raise NoAnswer(f"{address} answers {answer.status}")
    return Published(answer.body, _modified(answer.headers.get("last-modified", "")))


def _modified(text: str) -> Micros | None:
    try:
        return round(parsedate_to_datetime(text).timestamp() * 1_000_000)
    except ValueError:
        return None
