"""Values that decisions make and copy without validation are the same as those that validation makes."""

from __future__ import annotations

import pytest

from chalicelib.domain.events import Target, Trade
from chalicelib.domain.instances import Claim
from chalicelib.domain.noun import Value
from chalicelib.domain.offers import Resources

VALUES = [
    (Target, {"name": "train", "type": "run", "id": "1"}),
    (Claim, {"blocks": (0, 1), "run_id": "r", "job_id": "j"}),
    (Trade, {"act": "bought", "price": 1.5, "backend": "b", "region": "r", "type": "t", "cpus": 2, "memory_mib": 1}),
    (Resources, {"memory_mib": 1024, "cpus": 2}),
]


@pytest.mark.parametrize(("kind", "fields"), VALUES)
def test_an_unvalidated_value_equals_a_validated_one(kind: type[Value], fields: dict[str, object]) -> None:
    plain, validated = kind.unvalidated(**fields), kind(**fields)
    assert plain == validated
    assert hash(plain) == hash(validated)
    assert repr(plain) == repr(validated)
    assert plain.model_dump_json() == validated.model_dump_json()


def test_a_field_that_is_unknown_or_missing_is_named() -> None:
    with pytest.raises(TypeError, match="Target can't be made: nmae is unknown or missing"):
        Target.unvalidated(type="run", id="1", name="train", nmae="typo")
    with pytest.raises(TypeError, match="Target can't be made: name is unknown or missing"):
        Target.unvalidated(type="run", id="1")


def test_a_copy_differs_in_what_was_changed_only() -> None:
    claim = Claim(job_id="j", run_id="r", blocks=(0,))
    moved = claim.with_(blocks=(1,), job_num=2)
    assert moved == Claim(job_id="j", run_id="r", blocks=(1,), job_num=2)
    assert moved.model_fields_set == {"job_id", "run_id", "blocks", "job_num"}
    assert claim.blocks == (0,)


def test_a_copy_takes_no_misspelt_name() -> None:
    claim = Claim(job_id="j", run_id="r", blocks=(0,))
    with pytest.raises(AttributeError, match=r"Claim has no field \['block'\]"):
        claim.with_(block=(1,))
