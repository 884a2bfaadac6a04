"""The operator's prices, for accounts that may not read their provider's, and providers that say none: from a file, and
from a published catalogue (`published_prices.py`). Where both have a price, the file's counts. A row of the file
without a region is for all of them.

The file is CSV with a header. The columns `provider`, `instance_type`, `region`, `price` and `spot_price` are used, in
US dollars an hour; `currency`, if there is one, must say so. The file is reread whenever it has changed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from chalicelib.errors import Unfit

Priced = Mapping[tuple[str, str], tuple[float | None, float | None]]  # (type, region) → on demand, spot
UNKNOWN = (None, None)
USD = "USD"
COLUMNS = ("provider", "instance_type", "region", "price", "spot_price")


class PriceSource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str: ...

    def of(self, provider: str) -> Priced: ...


class OfflinePrices:
    def __init__(self, path: Path | None = None, published: PriceSource | None = None) -> None:
        self._path, self._published = path, published
        self._mark: tuple[int, int] | None = None
        self._read: dict[str, dict[tuple[str, str], tuple[float | None, float | None]]] = {}

    def of(self, provider: str) -> Priced:
        """Raises Unfit if the file or the catalogue can't be used, Transient if the catalogue can't be reached."""
        listed = self._published.of(provider) if self._published else {}
        return _over(self._of_file(self._path, provider), listed) if self._path else listed

    def _of_file(self, path: Path, provider: str) -> Priced:
        try:
            found = path.stat()
            mark = (found.st_mtime_ns, found.st_size)
            if mark != self._mark:
                with path.open(encoding="utf-8", newline="") as file:
                    self._read = _rows(csv.DictReader(file), path)
                self._mark = mark
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise Unfit(f"The prices in {path} can't be read: {error}.", hint="Correct the file.") from error
        return self._read.get(provider, {})

    @property
    def name(self) -> str:
        """For messages."""
        sources = ([str(self._path)] if self._path else []) + ([self._published.name] if self._published else [])
        return " and ".join(sources)

    @property
    def origin(self) -> str:
        """A text on where these prices are from, and how old they are."""
        listed = [self._published.origin] if self._published else []
        if self._path:
            at = self._mark[0] if self._mark else 0
            listed.insert(0, f"{self._path.name}, {datetime.fromtimestamp(at / 1e9, UTC):%Y-%m-%d}")
        return "; ".join(listed)


def _over(own: Priced, listed: Priced) -> Priced:
    """Both, on demand and spot by themselves: those of `own` where it has any for the type in the region, or in all."""
    found = {}
    for name, region in {**listed, **own}:
        usual, spot = own.get((name, region), UNKNOWN)
        everywhere, everywhere_spot = own.get((name, ""), UNKNOWN)
        listed_usual, listed_spot = listed.get((name, region), UNKNOWN)
        found[name, region] = (usual or everywhere or listed_usual, spot or everywhere_spot or listed_spot)
    return found


def _rows(
    reader: csv.DictReader[str], path: Path
) -> dict[str, dict[tuple[str, str], tuple[float | None, float | None]]]:
    lacking = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if lacking:
        raise Unfit(f"The prices in {path} lack the column {', '.join(lacking)}.", hint="Its first line names them.")
    found: dict[str, dict[tuple[str, str], tuple[float | None, float | None]]] = {}
    for row in reader:
        if (currency := (row.get("currency") or USD).strip().upper()) != USD:
            wrong = f"{path}, line {reader.line_num}: currency is {currency[:20]!r}."
            raise Unfit(wrong, hint=f"Convert the price to {USD}: that is what plans and budgets count.")
        prices = (_price(row, "price", reader, path), _price(row, "spot_price", reader, path))
        found.setdefault(row["provider"], {})[row["instance_type"], row["region"]] = prices
    return found


def _price(row: Mapping[str, str | None], column: str, reader: csv.DictReader[str], path: Path) -> float | None:
    text = (row[column] or "").strip()
    if not text:
        return None
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 < price < 100_000:
        wrong = f"{path}, line {reader.line_num}: {column} is {text[:20]!r}, not a number of dollars an hour."
        raise Unfit(wrong, hint="Correct it.")
    return price
