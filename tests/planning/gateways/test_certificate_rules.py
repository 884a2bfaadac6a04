"""What the lint says of certificates: each case is right but for one thing."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.certificates import Certificate, CertificateStatus
from chalicelib.planning.gateways.certificates import (
    AUTHORITY,
    AnswerChallenge,
    CollectCertificate,
    LookAtOrder,
    PlaceOrder,
)
from chalicelib.planning.gateways.invariants import certificates
from chalicelib.planning.kernel.lint import Known
from chalicelib.planning.kernel.plan import Step
from tests.planning.situations.certificates import ORDER, PAIR, PROVED, certificate
from tests.world import nouns as b


def broken_by(step: Step, known: Known | None = None) -> list[str]:
    return list(certificates(step, known or {}))


def test_a_certificate_is_asked_for_as_it_is_committed() -> None:
    for status, effect in (
        ("waiting", PlaceOrder),
        ("ordered", AnswerChallenge),
        ("validating", LookAtOrder),
        ("finalizing", CollectCertificate),
    ):
        one = certificate(status, heard=True, act_until=b.NOW + 1)
        call = effect(one.unit, AUTHORITY, b.NOW + 1)
        assert broken_by(Step((one,), effects=(call,))) == []
        expected = [f"{one.unit} is to {effect.__name__} without committing it"]
        for other in CertificateStatus:
            if other.value not in (status, "dropped", "issued"):
                assert broken_by(Step((certificate(other.value, act_until=b.NOW + 1),), effects=(call,))) == expected
        assert broken_by(Step((), effects=(call,))) == expected
        assert broken_by(Step((one.with_(act_until=b.NOW),), effects=(call,))) == expected


def test_an_authority_looks_only_where_its_challenge_is_answered() -> None:
    def answered(**fields: Any) -> list[str]:
        one = certificate("ordered", act_until=b.NOW + 1, **fields)
        return broken_by(Step((one,), effects=(AnswerChallenge(one.unit, AUTHORITY, b.NOW + 1),)))

    assert answered() == ["the authority is to look at chat.example.com, which doesn't answer yet"]
    assert answered(heard=True) == answered(order=PROVED) == answered(order=None) == []


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (certificate("dropped", order=ORDER, due_at=None), "is dropped with its key"),
        (certificate("dropped", pair=PAIR, due_at=None), "is dropped with its key"),
        (certificate("dropped", due_at=None), ""),
        (certificate("waiting", due_at=None), "is waiting, but nothing will look at it again"),
        (certificate("issued"), "is issued, and isn't there"),
        (certificate("issued", pair=PAIR), ""),
    ],
)
def test_a_certificate_is_there_and_looked_at_until_it_is_dropped(made: Certificate, rule: str) -> None:
    assert broken_by(Step((made,))) == ([f"the certificate of chat.example.com {rule}"] if rule else [])


def test_a_certificate_isnt_given_up_for_its_successor() -> None:
    for old, new, lost in ((PAIR, None, True), (PAIR, PAIR, False), (None, None, False)):
        before, after = (certificate("finalizing", pair=pair) for pair in (old, new))
        found = broken_by(Step((after,)), {(Certificate, before.id): before})
        assert found == ["the certificate of chat.example.com is given up before its successor is there"] * lost
    before = certificate("issued", pair=PAIR)
    assert broken_by(Step((certificate("dropped", due_at=None),)), {(Certificate, before.id): before}) == []
