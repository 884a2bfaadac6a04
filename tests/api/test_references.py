"""`${{ … }}` in JSON, as clients and scripts send it: refused before anything is made, with the field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.rig import Rig, submit, task

BAD = "${{ secret.b }}"


def fields(rig: Rig, path: str, body: Any) -> list[list[str]]:
    reply = rig.call(path.replace("P/", f"/api/project/{rig.project.name}/", 1), body)
    assert reply.status == 400, reply.body
    return [each["fields"] for each in reply.json["detail"]]


@pytest.mark.parametrize("call", ["get_plan", "apply"])
def test_a_run_is_refused_by_both_calls(rig: Rig, call: str) -> None:
    spec = task(commands=["true", "x ${{ secrets.b }}"], env={"A": BAD}, working_dir="/${{ env.B }}", image="i:${{")
    body = {"run_spec": spec} if call == "get_plan" else {"plan": {"run_spec": spec}}
    assert sorted(fields(rig, f"P/runs/{call}", body)[0]) == ["commands.1", "env.A", "image", "working_dir"]
    assert rig.ok("/api/runs/list", {}) == []


def test_a_value_of_a_profile_is_refused_where_it_is_written(rig: Rig) -> None:
    spec = {**task(), "profile": {"name": "p", "regions": [BAD]}}
    assert fields(rig, "P/runs/get_plan", {"run_spec": spec}) == [["profile.regions.0"]]


def test_fleets_and_volumes_too(rig: Rig) -> None:
    fleet = {"type": "fleet", "name": "gpus", "nodes": 1, "env": {"A": BAD}, "regions": [BAD]}
    assert sorted(fields(rig, "P/fleets/get_plan", {"spec": {"configuration": fleet}})[0]) == ["env.A", "regions.0"]
    volume = {"type": "volume", "name": "data", "backend": "aws", "region": BAD, "size": "1GB"}
    assert fields(rig, "P/volumes/create", {"configuration": volume}) == [["region"]]


def test_a_secret_that_isnt_there_is_refused_and_one_with_nearly_its_name_is_told(rig: Rig) -> None:
    spec = task(env={"A": "${{ secrets.hf_token }}"})
    assert "the project has no secret `hf_token` (set it with" in rig.refused("P/runs/get_plan", {"run_spec": spec})
    rig.ok("P/secrets/create_or_update", {"name": "HF-TOKEN", "value": "x"})
    assert "did you mean `HF-TOKEN`?" in rig.refused("P/runs/get_plan", {"run_spec": spec})
    rig.ok("P/secrets/create_or_update", {"name": "hf_token", "value": "x"})
    assert submit(rig, spec)["status"] == "submitted"
    fleet = {"type": "fleet", "name": "gpus", "nodes": 1, "env": {"A": "${{ secrets.no }}"}}
    assert fields(rig, "P/fleets/get_plan", {"spec": {"configuration": fleet}}) == [["env.A"]]


def test_what_the_genuine_client_left_of_an_escape_is_text(rig: Rig) -> None:
    assert submit(rig, task(commands=["echo ${{ github.ref }} ${{ x }}", "echo $${{ secrets.b }}"]))


def test_only_so_many_secrets_can_be_named(rig: Rig) -> None:
    spec = task(env={f"A{number}": f"${{{{ secrets.s{number} }}}}" for number in range(201)})
    assert "more than 200 secrets are named" in rig.refused("P/runs/get_plan", {"run_spec": spec})
