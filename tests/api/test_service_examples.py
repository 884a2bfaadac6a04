"""The examples of services are planned: the server accepts each, and finds a machine that fits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chalicelib.configuration.parse import parse
from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import Gpu
from chalicelib.store import nouns
from tests.api.rig import Rig
from tests.api.test_nodes import cluster
from tests.world import nouns as b

FOLDER = Path(__file__).parents[2] / "examples" / "services"
ROUTED = "prefill-decode"
EVERY = sorted(path.name.removesuffix(".dstack.yml") for path in FOLDER.glob("*.dstack.yml"))
EXAMPLES = [name for name in EVERY if name != ROUTED]
WITHOUT_GPU = ("hello-openai", "ollama")
CARD = Gpu(name="L40S", memory_mib=46_068, vendor="nvidia")


def host(rig: Rig, *gpus: Gpu) -> None:
    (made,) = cluster(rig, 1)
    known = nouns.find(rig.world.plane.store, Instance, keys.instance(made.id))
    assert known is not None
    has = b.resources(cpus=32, gb=256).with_(gpus=gpus)
    rig.save(known.with_(offer=known.offer.with_(instance=known.offer.instance.with_(resources=has))))


def plan(rig: Rig, name: str) -> Any:
    configuration = parse((FOLDER / f"{name}.dstack.yml").read_text()).model_dump(mode="json")
    if name == "nim":
        rig.ok("P/secrets/create_or_update", {"name": "ngc_api_key", "value": "x"})
    return rig.ok("P/runs/get_plan", {"run_spec": {"configuration": configuration}})


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_on_a_machine_with_a_gpu_of_the_middle_class(rig: Rig, name: str) -> None:
    host(rig, CARD)
    made = plan(rig, name)
    (job,) = made["job_plans"]
    assert job["offers"], f"no machine for {name}"
    spec = job["job_spec"]
    assert spec["probes"], "it gets requests before its model is loaded"
    assert name == "nim" or "$DSTACK_SERVICE_PORT" in spec["commands"][-1], "two on one machine want the same port"
    model = made["effective_run_spec"]["configuration"]["model"]["name"]
    assert name == "hello-openai" or model in (
        *spec["env"].values(),
        spec["image_name"].rpartition("nim/")[2].split(":")[0],
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_commands_are_shell(rig: Rig, name: str) -> None:
    host(rig, CARD)
    commands = plan(rig, name)["job_plans"][0]["job_spec"]["commands"]
    assert not commands or subprocess.run(["bash", "-n", "-c", commands[-1]], check=False).returncode == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_a_gpu_it_says_so(rig: Rig, name: str) -> None:
    host(rig)
    (job,) = plan(rig, name)["job_plans"]
    assert bool(job["offers"]) == (name in WITHOUT_GPU)


def test_prefill_and_decode_have_gpus_their_router_needs_none_and_only_a_router_is_asked_for_a_word(rig: Rig) -> None:
    host(rig, CARD)
    made = {job["job_spec"]["replica_group"]: job for job in plan(rig, ROUTED)["job_plans"]}
    assert list(made) == ["router", "prefill", "decode"] and all(job["offers"] for job in made.values())
    specs = {name: job["job_spec"] for name, job in made.items()}
    assert [bool(spec["probes"]) for spec in specs.values()] == [True, False, False]
    roles = [
        re.findall(r"--(?:pd-disaggregation|disaggregation-mode \w+)", each["commands"][-1]) for each in specs.values()
    ]
    assert roles == [["--pd-disaggregation"], ["--disaggregation-mode prefill"], ["--disaggregation-mode decode"]]
    for spec in specs.values():
        assert "--host 0.0.0.0 --port $DSTACK_SERVICE_PORT" in spec["commands"][-1]
        assert subprocess.run(["bash", "-n", "-c", spec["commands"][-1]], check=False).returncode == 0


def test_the_page_of_the_examples_names_each_and_pins_their_images() -> None:
    page = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"^\| \[([a-z-]+)]\(\1\.dstack\.yml\)", page, re.M)) == EVERY
    for name in EVERY:
        images = re.findall(r"^ *image: (\S+)$", (FOLDER / f"{name}.dstack.yml").read_text(), re.M)
        assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images), f"{name} runs whatever is newest"
