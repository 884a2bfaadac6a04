"""Checks of accounts, and what is good to know and not needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.backends.kit.checking import check_regions, must_exist, problems, report
from chalicelib.backends.kit.hints import hint
from chalicelib.errors import BackendError, Gone, InvalidCredentials, MissingPermission, Throttled, Transient, Unfit


def raising(error: Exception) -> Callable[[], str]:
    def call() -> str:
        raise error

    return call


def test_all_problems_are_found_and_what_is_denied_is_said_first() -> None:
    found = problems(raising(Unfit("no subnet")), str, raising(MissingPermission("no list")))
    assert [str(each) for each in found] == ["no subnet", "no list"]
    with pytest.raises(MissingPermission, match=r"^no list Ask for it\.$"):
        report([*found, MissingPermission("no list")], hint="Ask for it.")
    with pytest.raises(Unfit, match=r"^no subnet no region$"):
        report([Unfit("no subnet"), Unfit("no region"), Unfit("no subnet")])
    report([])


@pytest.mark.parametrize("error", [Transient("no answer"), InvalidCredentials("no"), Throttled("later")])
def test_no_answer_is_no_problem_that_a_check_finds(error: BackendError) -> None:
    with pytest.raises(type(error)):
        problems(raising(error))


def test_a_hint_without_the_right_to_it_stays_unknown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert hint(lambda: "many", "none", "quotas") == "many"
    assert hint(raising(MissingPermission("no right")), "none", "quotas") == "none"
    assert "quotas stay unknown: no right" in caplog.text
    with pytest.raises(Transient):
        hint(raising(Transient("no answer")), "none", "quotas")
    assert hint(raising(Transient("no answer")), "none", "quotas", BackendError) == "none"
    with pytest.raises(InvalidCredentials):
        hint(raising(InvalidCredentials("no")), "none", "quotas", BackendError)


def test_what_the_settings_name_and_is_gone_says_how_to_mend_them() -> None:
    assert must_exist(lambda: "it", "There is no such image.") == "it"
    with pytest.raises(Unfit, match=r"^There is no such image\. Correct `image`\.$"):
        must_exist(raising(Gone("404")), "There is no such image.", "Correct `image`.")
    with pytest.raises(Transient):
        must_exist(raising(Transient("no answer")), "There is no such image.")


def test_regions_that_a_provider_lacks_are_named_with_those_that_it_has() -> None:
    check_regions("Example", None, {"b", "a"})
    check_regions("Example", ["a"], {"b", "a"})
    with pytest.raises(Unfit, match=r"^Example has no location c, d\. `regions` can have a, b\.$"):
        check_regions("Example", ["c", "a", "d"], {"b", "a"}, "location")
