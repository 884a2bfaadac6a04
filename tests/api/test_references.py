"""`${{ … }}` in JSON, as clients and scripts send it: refused before anything is made, with the field."""

from __future__ import annotations

from collections.abc import Callable
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


SERVICE = {"type": "service", "port": 80}
EDITOR = {"type": "dev-environment", "ide": "vscode", "commands": None}
IMAGE = {"image": "ubuntu"}
WRITTEN: dict[str, Callable[[str], dict[str, Any]]] = {
    "env.A": lambda text: {"env": {"A": text}},
    "image": lambda text: {"image": f"ubuntu:{text}"},
    "working_dir": lambda text: {"working_dir": f"/{text}"},
    "user": lambda text: {"user": text},
    "entrypoint": lambda text: {**IMAGE, "entrypoint": text, "commands": None},
    "registry_auth.username": lambda text: {**IMAGE, "registry_auth": {"username": text, "password": "p"}},
    "registry_auth.password": lambda text: {**IMAGE, "registry_auth": {"username": "u", "password": text}},
    "volumes.0.instance_path": lambda text: {"volumes": [{"instance_path": f"/{text}", "path": "/x"}]},
    "regions.0": lambda text: {"regions": [text]},
    "init.0": lambda text: {**EDITOR, "init": [text]},
    "probes.0.url": lambda text: {**SERVICE, "probes": [{"type": "http", "url": f"/{text}"}]},
    "model.name": lambda text: {**SERVICE, "model": text},
}


@pytest.mark.parametrize("text", ["${{ secret.b }}", "${{ envs.B }}", "${{ secrets.b"])
@pytest.mark.parametrize("field", WRITTEN)
def test_every_field_is_looked_at(rig: Rig, field: str, text: str) -> None:
    spec = task(**WRITTEN[field](text))
    spec["configuration"] = {name: value for name, value in spec["configuration"].items() if value is not None}
    assert fields(rig, "P/runs/get_plan", {"run_spec": spec}) == [[field]]


@pytest.mark.parametrize(("field", "written"), [("ports.0", {"ports": [BAD]}), ("tags.a", {"tags": {"a": BAD}})])
def test_fields_whose_form_has_no_room_for_it_refuse_it_too(rig: Rig, field: str, written: dict[str, Any]) -> None:
    assert fields(rig, "P/runs/get_plan", {"run_spec": task(**written)})[0][:1] == [field]


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
