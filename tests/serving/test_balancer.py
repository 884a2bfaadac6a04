"""Which replica is asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.serving import Served, ServedReplica
from chalicelib.serving.balancer import LEFT_OUT, Balancer
from tests.serving.door import service


def replica(name: str, *, ready: bool = True, draining: bool = False) -> ServedReplica:
    return ServedReplica(job_id=name, instance_id="i", port=1, address="10.0.0.1", ready=ready, draining=draining)


def of(*names: str) -> Served:
    return service([replica(name) for name in names])


def chosen(choice: Balancer, served: Served, now: float = 0.0, tried: tuple[str, ...] = ()) -> str:
    found = choice.choose(served, now, tried)
    assert found is not None
    choice.begins(found.job_id)
    return found.job_id


def test_all_get_the_same_share() -> None:
    choice, served = Balancer(), of("a", "b", "c")
    assert sorted(chosen(choice, served) for _ in range(9)) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


def test_among_equals_the_one_that_has_waited_longest() -> None:
    choice, served = Balancer(), of("a", "b", "c")
    order = []
    for _ in range(6):
        order.append(chosen(choice, served))
        choice.ends(order[-1])
    assert order[:3] == order[3:] and len(set(order)) == 3


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 5), min_size=1))
def test_never_one_that_is_busier_than_another(busy: dict[str, int]) -> None:
    choice = Balancer()
    for name, count in busy.items():
        for _ in range(count):
            choice.begins(name)
    assert busy[chosen(choice, of(*busy))] == min(busy.values())


def test_neither_unready_nor_draining_ones() -> None:
    served = service([replica("young", ready=False), replica("old", draining=True)])
    assert Balancer().choose(served, 0.0) is None


def test_one_that_was_tried_only_if_there_is_no_other() -> None:
    choice = Balancer()
    assert chosen(choice, of("a", "b"), tried=("a",)) == "b"
    assert chosen(choice, of("a"), tried=("a",)) == "a"
    assert chosen(choice, of("a", "b"), tried=("a", "b")) in ("a", "b")


def test_after_a_failure_one_on_another_host_comes_first() -> None:
    elsewhere = replica("c").with_(instance_id="j")
    served = service([replica("a"), replica("b"), elsewhere])
    assert Balancer().choose(served, 0.0, tried=("a",)) == elsewhere
    assert Balancer().choose(served, 0.0, tried=("a", "c")) == served.replicas[1]


def test_others_are_those_that_may_get_it_instead() -> None:
    first, second = replica("a"), replica("b")
    assert Balancer.has_alternative(service([first, second]), first, ())
    assert not Balancer.has_alternative(service([first, second]), first, ("b",))
    for unfit in (replica("b", ready=False), replica("b", draining=True)):
        assert not Balancer.has_alternative(service([first, unfit]), first, ())


def test_two_failures_in_a_row_are_five_seconds_out() -> None:
    choice, served = Balancer(), of("a", "b")
    choice.failed("a", 0.0)
    choice.begins("b")
    assert choice.choose(served, 0.0) == served.replicas[0]  # one failure is none
    choice.failed("a", 1.0)
    assert {chosen(choice, served, 1.0 + LEFT_OUT / 2) for _ in range(4)} == {"b"}
    assert choice.choose(served, 1.0 + LEFT_OUT) == served.replicas[0]


def test_an_answer_forgives_and_so_does_the_failure_of_all() -> None:
    choice, served = Balancer(), of("a", "b")
    choice.failed("a", 0.0)
    choice.answered("a")
    choice.failed("a", 0.0)
    assert "a" in {chosen(choice, served) for _ in range(2)}
    for name in ("a", "a", "b", "b"):
        choice.failed(name, 0.0)
    assert choice.choose(served, 0.0) is not None


def test_nothing_is_kept_of_what_has_gone() -> None:
    choice = Balancer()
    choice.begins("a")
    choice.failed("a", 0.0)
    choice.ends("a")
    choice.forget("a")
    assert not choice.under_way
    assert chosen(choice, of("a", "b"), tried=()) == "a"
