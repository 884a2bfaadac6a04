import pytest

from chalicelib.domain import names


@pytest.mark.parametrize("name", ["ab", "a-", "train-2", "a" * 41])
@pytest.mark.parametrize("noun", ["run", "fleet", "volume", "gateway"])
def test_names_of_things(name: str, noun: str) -> None:
    assert names.problem(name, noun) is None


@pytest.mark.parametrize("name", ["", "a", "A1", "1a", "-a", "a_b", "a b", "ä1", "a" * 42, "ab\n"])
def test_not_names_of_things(name: str) -> None:
    assert names.problem(name, "run")


@pytest.mark.parametrize(("noun", "longest"), [("project", 50), ("user", 60), ("secret", 200)])
def test_names_of_people_and_places(noun: str, longest: int) -> None:
    for name in ("a", "A_b-1", "9", "x" * longest):
        assert names.problem(name, noun) is None
    for name in ("", "a b", "a.b", "x" * (longest + 1)):
        assert names.problem(name, noun)


def test_a_refusal_names_one_that_would_do() -> None:
    assert "`my-run`" in str(names.problem("?", "run"))
    assert "`bad-name`" in str(names.problem("Bad_Name", "run"))
    assert "42 characters" in str(names.problem("a" * 42, "run"))


def test_of_many_names_a_message_has_the_first() -> None:
    some = list("abcdef")
    assert [names.those("run", some[:count]) for count in (1, 2)] == ["the run a", "the runs a, b"]
    assert [names.first_of(some[:count]) for count in (0, 5, 6)] == ["", "a, b, c, d, e", "a, b, c, d, e and 1 more"]


def test_made_up_names_are_the_same_for_the_same_number_and_good_ones() -> None:
    assert names.generated_stem(7) == names.generated_stem(7)
    found = {names.generated_stem(number) for number in range(len(names.ADJECTIVES) * len(names.ANIMALS))}
    assert len(found) == len(names.ADJECTIVES) * len(names.ANIMALS) >= 10_000
    assert not any(names.problem(f"{name}-1", "run") for name in found)


def test_a_fleet_gets_a_number_only_if_it_must() -> None:
    stem = names.generated_stem(3)
    assert names.generated_name(3, {f"{stem}-2"}.__contains__) == stem
    assert names.generated_name(3, {stem, f"{stem}-2"}.__contains__) == f"{stem}-3"


def test_a_run_gets_the_first_free_number() -> None:
    stem = names.generated_stem(3)
    assert names.generated_run_name(3, {f"{stem}-1", f"{stem}-2", f"{stem}-4"}.__contains__) == f"{stem}-3"
