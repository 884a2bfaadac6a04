"""Every field of a `type: preset` has an effect, which a test shows, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.specs.presets import PresetConfiguration
from chalicelib.domain.specs.profiles import ProfileParams
from tests.cli.presets.conftest import Work

PASSED_ON: dict[str, tuple[str, Any]] = {  # how it is written, and what each of its services has
    "backends": ("[aws]", ["aws"]),
    "regions": ("[us-east-1]", ["us-east-1"]),
    "availability_zones": ("[us-east-1a]", ["us-east-1a"]),
    "instance_types": ("[p4de]", ["p4de"]),
    "reservation": ("res-1", "res-1"),
    "spot_policy": ("auto", "auto"),
    "retry": ("{on_events: [no-capacity], duration: 10m}", {"on_events": ["no-capacity"], "duration": 600}),
    "max_duration": ("20m", 1200),
    "stop_duration": ("1m", 60),
    "max_price": ("3.5", 3.5),
    "creation_policy": ("reuse", "reuse"),
    "idle_duration": ("2m", 120),
    "utilization_policy": (
        "{min_gpu_utilization: 5, time_window: 10m}",
        {"min_gpu_utilization": 5, "time_window": 600},
    ),
    "startup_order": ("any", "any"),
    "stop_criteria": ("all-done", "all-done"),
    "fleets": ("[cloud]", ["cloud"]),
    "instances": ("[gpu-0]", ["gpu-0"]),
    "tags": ("{team: a}", {"team": "a"}),
    "backend_options": (
        "[{type: vastai, offer_order: price}]",
        [{"type": "vastai", "offer_order": "price", "min_reliability": None, "min_score": None}],
    ),
    "gateway": ("door", "door"),
}
REFUSED = {"schedule"}  # `test_creation` shows it
ELSEWHERE = {  # `test_creation`, `test_search`, `test_benchmark` and `test_language_model` show these
    "type", "name", "model", "base", "repo", "prompt", "min_context_length", "max_ttft", "trials", "concurrency",
    "previous", "input_tokens", "output_tokens", "shared_prefix_tokens", "dataset", "baseline", "agent", "env",
}  # fmt: skip


def test_every_field_is_accounted_for() -> None:
    assert set(PresetConfiguration.model_fields) == {*PASSED_ON, *REFUSED, *ELSEWHERE}
    assert set(ProfileParams.model_fields) <= {*PASSED_ON, *REFUSED}


@pytest.mark.parametrize("field", PASSED_ON)
def test_where_a_service_runs_is_passed_on(work: Work, field: str) -> None:
    written, wanted = PASSED_ON[field]
    work.write(f"{field}: {written}\n", trials="1")
    ended = work("apply", "-f", "qwen.dstack.yml", "-y")
    assert ended.code == 0, ended
    assert _plain(work.cloud.specs[0]["configuration"][field]) == wanted
    if field != "gateway":
        asked = work.plane.bodies("/runs/get_plan")[0]["run_spec"]["configuration"][field]
        assert _plain(asked) == _plain(wanted), "the plan's offers are those that a trial may have"


def _plain(found: Any) -> Any:
    """Without the keys that nobody wrote, and one name for an entity."""
    if isinstance(found, list):
        return [_plain(each) for each in found]
    if (
        isinstance(found, dict)
        and found.get("name")
        and not any(v for k, v in found.items() if k not in ("name", "type"))
    ):
        return found["name"]
    return found
