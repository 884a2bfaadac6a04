"""Configurations that rules apply are stored as they are sent to be applied, or as people write them."""

from __future__ import annotations

from tests.api.rig import Rig

WRITTEN = "# nightly\ntype: task\nname: nightly\nenv: [SEED=7]\ncommands:\n  - python evaluate.py\n"


def test_one_is_stored_as_it_is_written(rig: Rig) -> None:
    stored = rig.ok("P/automations/add", {"text": WRITTEN})
    assert (stored["name"], stored["type"]) == ("nightly", "task")
    assert [each["name"] for each in rig.ok("P/automations/list")] == ["nightly"]
    fleet = "type: fleet\nname: pool\nnodes: 0..2\nbackends: [aws]\n"
    assert rig.ok("P/automations/add", {"text": fleet})["type"] == "fleet"


def test_what_is_wrong_with_a_text_is_said_with_its_line(rig: Rig) -> None:
    assert "4:1: command" in rig.refused(
        "P/automations/add", {"text": "type: task\nname: nightly\nenv: []\ncommand: [ls]\n"}
    )
    assert "name" in rig.refused("P/automations/add", {"text": "type: task\ncommands: [ls]\n"})
    for body in ({}, {"text": WRITTEN, "spec": {}}):
        assert "not both" in rig.refused("P/automations/add", body)
    assert rig.ok("P/automations/list") == []
