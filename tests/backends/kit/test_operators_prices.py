"""Prices of a provider whose API says none."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.backends.kit.operators_prices import OperatorsPrices, price_of
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.errors import Unfit


def prices(folder: Path, text: str) -> OperatorsPrices:
    file = folder / "prices.csv"
    file.write_text(f"provider,instance_type,region,price,spot_price\n{text}")
    return OperatorsPrices("example", "Example", OfflinePrices(file))


def test_a_row_without_a_region_is_for_all_of_them(tmp_path: Path) -> None:
    found = prices(tmp_path, "example,small,,1.5,\nexample,small,eu-1,2.5,\nother,big,,9,\n")
    known = found.known()
    assert [price_of(known, *of) for of in (("small", "eu-1"), ("small", "us-1"), ("big", "eu-1"))] == [2.5, 1.5, None]
    assert found.of_disk("small", "us-1") == 1.5


def test_types_without_a_price_are_named_beside_the_source(tmp_path: Path) -> None:
    found = prices(tmp_path, "example,small,,1.5,\n")
    source = found.origin(())
    assert found.origin({"b", "a"}) == f"{source}, without a, b"
    assert found.origin(["e", "d", "c", "b", "a"]) == f"{source}, without a, b, c and 2 more"


def test_without_any_price_it_says_how_to_give_some(tmp_path: Path) -> None:
    none = OperatorsPrices("example", "Example", None)
    for found in (none, prices(tmp_path, "other,big,,9,\n")):
        with pytest.raises(Unfit, match=r"Example's API says no prices.*DSTACK_CATALOG_FILE.*DSTACK_CATALOG_URL"):
            found.known()
    assert none.of_disk("ssd", "eu-1") is None


def test_a_volume_waits_for_no_source_that_cant_be_read(tmp_path: Path) -> None:
    broken = OperatorsPrices("example", "Example", OfflinePrices(tmp_path / "nowhere.csv"))
    with pytest.raises(Unfit, match=r"nowhere\.csv"):
        broken.known()
