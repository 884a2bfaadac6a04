"""A table in one test. Where a row takes less time than pytest takes for a test, each by itself would double it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | Sequence[str], rows: Iterable[Any], *, ids: Callable[[Any], str] = str) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, in one test that runs all rows and shows each that fails. What a row changes
    others see, and none can be skipped."""
    own, all_ = names.split(", ") if isinstance(names, str) else list(names), list(rows)

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def whole(**fixtures: Any) -> None:
            failures: list[Exception] = []
            for row in all_:
                try:
                    test(**fixtures, **dict(zip(own, row if len(own) > 1 else (row,), strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failure = error if isinstance(error, Exception) else AssertionError(str(error))
                    failure.add_note(f"row: {ids(row)}")
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(all_)} rows failed", failures)

        signature = inspect.signature(test)
        others = [parameter for parameter in signature.parameters.values() if parameter.name not in own]
        whole.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # pytest's fixtures
        return whole

    assert all_, "a table without rows proves nothing"
    return decorate
