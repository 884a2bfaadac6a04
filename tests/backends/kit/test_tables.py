"""What is read from the tables beside the backends, and that each word in them has one meaning."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure
from chalicelib.backends.kit.rpc import code_of
from chalicelib.backends.kit.tables import FOLDER, table
from chalicelib.errors import Bug, Gone, InUse, QuotaExceeded, Throttled, Transient, Unfit

ERRORS = sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.glob("*/errors.toml"))


@pytest.mark.parametrize("name", ERRORS)
def test_each_code_has_one_meaning(name: str) -> None:
    ErrorTable.read("Example", name)  # each kind is an error of ours, and each pattern one of Python's
    codes = Counter(code for listed in table(name)["codes"].values() for code in listed.split())
    assert codes and not [code for code, times in codes.items() if times > 1]
    assert not set(table(name)) - {"codes", "texts", "statuses"}


def test_a_table_says_what_codes_texts_and_statuses_mean(tmp_path: Path) -> None:
    file = tmp_path / "errors.toml"
    file.write_text(
        """
        [codes]
        Throttled = "slow-down too-many"
        QuotaExceeded = "quota"

        [texts]
        InUse = '\\bbusy\\b'

        [statuses]
        409 = "Unfit"
        """
    )
    found = ErrorTable.read("Example", str(file))
    for failure, kind in (
        (ProviderFailure("too-many", "", 409), Throttled),
        (ProviderFailure("quota", "busy"), QuotaExceeded),
        (ProviderFailure("new", "it is busy", 409), InUse),
        (ProviderFailure("new", "", 409), Unfit),
        (ProviderFailure("new", "", 404), Gone),  # as ever
        (ProviderFailure("new", "", 500), Transient),
    ):
        assert found.kind(failure) is kind


@pytest.mark.parametrize("name", ["Exception", "Bug", "Goen"])
def test_a_meaning_that_is_no_error_of_a_provider_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "errors.toml"
    file.write_text(f'[codes]\n{name} = "x"\n')
    with pytest.raises(Bug, match=name):
        ErrorTable.read("Example", str(file))


def test_rpc_codes_are_by_number() -> None:
    assert [code_of(number) for number in (0, 1, 8, 16, 17, -1)] == [
        *("", "CANCELLED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "17", "-1")
    ]
