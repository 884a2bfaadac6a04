"""Prices from a file, for accounts that may not read their provider's prices.

It is CSV with a header. The columns `provider`, `instance_type`, `region`, `price` and `spot_price` are used, in
dollars per hour. The file is reread whenever it has changed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from chalicelib.errors import Unfit

Priced = Mapping[tuple[str, str], tuple[float | None, float | None]]  # (type, region) → on demand, spot
COLUMNS = ("provider", "instance_type", "region", "price", "spot_price")


class OfflinePrices:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: tuple[int, int] | None = None
        self._read: dict[str, dict[tuple[str, str], tuple[float | None, float | None]]] = {}

    def of(self, provider: str) -> Priced:
        """Raises Unfit if the file can't be used."""
        try:
            found = self.path.stat()
            mark = (found.st_mtime_ns, found.st_size)
            if mark != self._mark:
                with self.path.open(encoding="utf-8", newline="") as file:
                    self._read = _rows(csv.DictReader(file), self.path)
                self._mark = mark
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise Unfit(f"The prices in {self.path} can't be read: {error}.", hint="Correct the file.") from error
        return self._read.get(provider, {})

    @property
    def origin(self) -> str:
        """A text on where these prices are from, and how old they are."""
        at = self._mark[0] if self._mark else 0
        return f"{self.path.name}, {datetime.fromtimestamp(at / 1e9, UTC):%Y-%m-%d}"


def _rows(
    reader: csv.DictReader[str], path: Path
) -> dict[str, dict[tuple[str, str], tuple[float | None, float | None]]]:
    lacking = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if lacking:
        raise Unfit(f"The prices in {path} lack the column {', '.join(lacking)}.", hint="Its first line names them.")
    found: dict[str, dict[tuple[str, str], tuple[float | None, float | None]]] = {}
    for row in reader:
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
