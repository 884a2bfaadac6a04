"""`server/config.yml`: every type of backend is read, all problems are reported together, no secret is repeated."""

from __future__ import annotations

import json
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from chalicelib.backends.registry import BACKENDS as TABLE
from chalicelib.backends.registry import config_models
from chalicelib.configuration.schema import server_schema
from chalicelib.configuration.server import ServerFile, parse_server, parse_server_bytes
from chalicelib.configuration.server_spec import AESKey, ServerConfig
from chalicelib.domain.specs.credentials import types_of
from chalicelib.domain.tenants import Permissions
from chalicelib.errors import Invalid, Problem
from tests.harness.examples import many

ROOT = Path(__file__).parents[2]
SCHEMA = jsonschema.Draft202012Validator(server_schema())
AES = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
KEY = {"type": "api_key", "api_key": "hush"}
PAIR = {"type": "access_key", "access_key": "hush", "secret_key": "hush"}

# Every type, with every field of it at least once.
BACKENDS: list[dict[str, Any]] = [
    {"type": "aws", "creds": PAIR, "regions": ["us-east-1"], "vpc_name": "v", "vpc_ids": {"us-east-1": "vpc-1"}}
    | {"default_vpcs": False, "public_ips": False, "iam_instance_profile": "p", "tags": {"team": "ml"}}
    | {"os_images": {"cpu": {"name": "n", "user": "u"}, "nvidia": {"name": "n", "user": "u", "owner": 123456789012}}}
    | {"experimental_instance_types": ["p9"], "security_group_ids": {"us-east-1": "sg-1"}},
    {"type": "azure", "tenant_id": "t", "subscription_id": "s", "resource_group": "g", "vpc_ids": {"eastus": "g/n"}}
    | {"subnet_ids": {"westus": "g/n/s"}, "public_ips": False, "vm_managed_identity": "g/i", "tags": {"a": "b"}}
    | {"creds": {"type": "client", "client_id": "i", "client_secret": "hush", "tenant_id": "t"}, "regions": None},
    {"type": "gcp", "project_id": "p", "creds": {"type": "service_account", "filename": "~/key.json"}, "tpu": True}
    | {"vpc_name": "v", "subnetworks": {"us-west1": "s"}, "extra_vpcs": list("abcd"), "roce_vpcs": ["r"]}
    | {"nat_check": False, "gpudirect": {"a3-highgpu-8g": {"image": "projects/p/global/images/family/a3"}}}
    | {"vpc_project_id": "q", "public_ips": False, "vm_service_account": "a@b", "preview_features": ["g4"]}
    | {"tags": {"a": "b"}, "regions": ["us-west1"]},
    {"type": "gcp", "project_id": "p", "creds": {"type": "service_account", "data": "{}"}},
    {"type": "kubernetes", "kubeconfig": {"filename": "~/.kube/config"}}
    | {"contexts": ["one", {"name": "two", "proxy_jump": {"hostname": "h", "port": 32000}}]},
    {"type": "kubernetes", "kubeconfig": {"data": "hush"}, "proxy_jump": {"hostname": "h"}, "namespace": "jobs"},
    {
        "type": "slurm",
        "clusters": [
            {"name": "a", "hostname": "h", "port": 2222, "user": "u", "private_key": {"path": "~/.ssh/id"}}
            | {"gpu_partitions": [{"gpu": "nvidia:H100:80GB", "partitions": ["gpu"]}], "cpu_partitions": ["cpu"]},
            {"name": "b", "hostname": "h", "user": "u", "private_key": {"content": "hush"}},
        ],
    },
    {"type": "nebius", "creds": {"type": "service_account", "filename": "~/nebius.json"}}
    | {"projects": ["p"], "fabrics": ["f"], "tags": {"a": "b"}, "regions": ["eu-north1"]},
    {
        "type": "nebius",
        "creds": {"type": "service_account", "service_account_id": "i", "public_key_id": "k"}
        | {"private_key_file": "~/key.pem"},
    },
    {"type": "runpod", "creds": KEY, "community_cloud": True, "regions": ["EU"]},
    {"type": "vastai", "creds": KEY, "community_cloud": False},
    {"type": "crusoe", "project_id": "p", "creds": PAIR},
    {"type": "oci", "creds": {"type": "default", "file": "~/.oci/other", "profile": "ML"}, "compartment_id": "c"}
    | {"experimental_instance_types": ["x"]},
    {
        "type": "oci",
        "creds": {"type": "client", "user": "u", "tenancy": "t", "key_file": "~/k", "pass_phrase": "hush"}
        | {"fingerprint": "f", "region": "r"},
    },
    {"type": "verda", "creds": {"type": "api_key", "client_id": "i", "client_secret": "hush"}},
    {"type": "datacrunch", "creds": {"type": "api_key", "client_id": "i", "client_secret": "hush"}},
    {"type": "hotaisle", "team_handle": "t", "bare_metal": True, "creds": KEY},
    {"type": "digitalocean", "project_name": "p", "creds": KEY},
    {"type": "amddevcloud", "creds": KEY},
    *({"type": kind, "creds": KEY} for kind in ("lambda", "cloudrift", "vultr", "jarvislabs", "daytona", "lium")),
    {"type": "seeweb", "creds": {"type": "api_token", "api_token": "hush"}},
    {"type": "tensordock", "creds": {"type": "api_key", "api_key": "hush", "api_token": "hush"}},
    {"type": "cudo", "project_id": "p", "creds": KEY},
    {"type": "dstack", "base_backends": ["aws"]},
    {"type": "aws", "creds": {"type": "default"}},
]


def written(*backends: dict[str, Any], **fields: Any) -> str:
    return yaml.safe_dump({"projects": [{"name": "main", "backends": list(backends)}], **fields}, sort_keys=False)


def read(text: str) -> ServerFile:
    return parse_server(text, filename="config.yml")


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(Invalid) as caught:
        read(text)
    return caught.value.problems


def only(text: str) -> Problem:
    (problem,) = problems(text)
    return problem


# --- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend["type"])
def test_a_backend_is_read_and_an_editor_takes_it(backend: dict[str, Any]) -> None:
    text = written(backend)
    (project,) = read(text).config.projects
    (found,) = project.backends or ()
    dumped = found.model_dump(mode="json", exclude_unset=True)
    if backend["type"] not in ("aws", "kubernetes"):  # those have a short form, or a number that becomes text
        assert dumped == backend
    assert json.loads(found.model_dump_json()).items() >= {"type": backend["type"]}.items()
    errors = list(SCHEMA.iter_errors(yaml.safe_load(text)))
    assert errors == []


def test_every_type_and_every_field_is_in_an_example() -> None:
    assert {backend["type"] for backend in BACKENDS} == set(TABLE)
    for model in config_models():
        used = {field for backend in BACKENDS if backend["type"] in types_of(model) for field in backend}
        missing = set(model.model_fields) - used
        assert missing <= {"regions"}, (model.__name__, missing)


def test_short_forms_and_defaults() -> None:
    found = read(written(BACKENDS[0], BACKENDS[4])).config.projects[0].backends or ()
    aws, kubernetes = found
    assert isinstance(aws, AWSBackendConfig) and isinstance(kubernetes, KubernetesBackendConfig)
    assert aws.os_images and aws.os_images.cpu and aws.os_images.nvidia
    assert (aws.os_images.cpu.owner, aws.os_images.nvidia.owner) == ("self", "123456789012")
    assert [context.name for context in kubernetes.contexts or ()] == ["one", "two"]


def test_the_whole_file() -> None:
    config = read(
        "projects:\n  - name: main\n  - {name: other, backends: []}\n"
        f"encryption:\n  keys:\n    - {{type: aes, name: k1, secret: {AES}}}\n    - type: identity\n"
        "default_permissions:\n  allow_non_admins_create_projects: false\n  allow_managers_manage_secrets: yes\n"
        "registries: ['registry.lan:5000', '[fd00::1]:443', mirror.lan]\nplugins: [quota]\n"
    ).config
    assert [project.name for project in config.projects] == ["main", "other"]
    assert config.encryption and isinstance(config.encryption.keys[0], AESKey)
    assert config.encryption.keys[0].raw == bytes(range(32))
    assert config.default_permissions and config.default_permissions.meant == Permissions(
        allow_non_admins_create_projects=False, allow_managers_manage_secrets=True
    )
    assert config.registries == ("registry.lan:5000", "[fd00::1]:443", "mirror.lan")
    assert config.plugins == ("quota",)


def test_a_place_is_known_after_reading() -> None:
    file = read(written(BACKENDS[0]))
    problem = file.problem(("projects", 0, "backends", 0, "type"), "no", "", "unsupported")
    assert problem.render() == "config.yml:4:5: projects.0.backends.0.type: no"


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_every_problem_of_a_file_at_once_in_its_order() -> None:
    found = problems(
        "projects:\n"
        "- name: my project\n"
        "  backends:\n"
        "  - type: awz\n"
        "  - type: aws\n"
        "    creds: {type: acess_key}\n"
        "    region: [us-east-1]\n"
        "  - type: runpod\n"
        "    api_key: hush\n"
        "  - type: gcp\n"
        "    creds: {type: service_account, filename: a, data: b}\n"
        "default_permision: {}\n"
        "encryption:\n"
        "  keys:\n"
        "  - {type: aes, name: a-b, secret: hush}\n"
    )
    places = [(p.line, p.path, p.code) for p in found]
    assert places == [
        (2, "projects.0.name", "invalid-name"),
        (4, "projects.0.backends.0.type", "unknown-value"),
        (6, "projects.0.backends.1.creds.type", "unknown-value"),
        (7, "projects.0.backends.1.region", "unknown-key"),
        (8, "projects.0.backends.2.creds", "missing"),
        (9, "projects.0.backends.2.api_key", "unknown-key"),
        (10, "projects.0.backends.3.project_id", "missing"),
        (11, "projects.0.backends.3.creds.data", "exclusive"),
        (12, "default_permision", "unknown-key"),
        (15, "encryption.keys.0.name", "invalid-value"),
        (15, "encryption.keys.0.secret", "invalid-value"),
    ]
    hints = {p.path: p.hint for p in found}
    assert hints["projects.0.backends.0.type"] == "did you mean `aws`?"
    assert hints["projects.0.backends.1.creds.type"] == "did you mean `access_key`?"
    assert hints["projects.0.backends.1.region"] == "did you mean `regions`?"
    assert hints["projects.0.backends.2.api_key"] == "it belongs under `creds`, with `type: api_key`"
    assert hints["default_permision"] == "did you mean `default_permissions`?"
    assert hints["encryption.keys.0.secret"] == "make one: openssl rand -base64 32"


SLURM = {"name": "a", "hostname": "h", "user": "u", "private_key": {"path": "k"}}


@pytest.mark.parametrize(
    ("backend", "code", "path", "message"),
    [
        ({"type": "aws", "creds": PAIR | {"type": "default"}}, "unknown-key", "creds.access_key", ""),
        ({"type": "aws", "creds": {"type": "access_key", "access_key": "a"}}, "missing", "creds.secret_key", ""),
        ({"type": "lambda", "creds": PAIR | {"type": "access_key"}}, "unknown-value", "creds.type", "it must be"),
        ({"type": "lambda", "creds": {"type": "api_key", "api_key": ""}}, "too-small", "creds.api_key", "empty"),
        (
            {"type": "aws", "creds": PAIR, "os_images": {"cpu": {"name": "n", "user": "u", "owner": "me"}}},
            "invalid-value",
            "os_images.cpu.owner",
            "`self` or `123456789012`",
        ),
        (BACKENDS[0] | {"tags": {f"t{n}": "" for n in range(26)}}, "too-large", "tags", "at most 25"),
        (BACKENDS[1] | {"vpc_ids": {"e": "net"}}, "invalid-value", "vpc_ids.e", "`my-group/my-network`"),
        (BACKENDS[1] | {"subnet_ids": {"eastus": "g/n/s"}}, "exclusive", "subnet_ids.eastus", "`vpc_ids` too"),
        (BACKENDS[1] | {"vpc_ids": None, "subnet_ids": None}, "missing", "public_ips", "add `vpc_ids`"),
        (BACKENDS[2] | {"vpc_name": None}, "missing", "subnetworks", "add `vpc_name`"),
        (BACKENDS[2] | {"roce_vpcs": ["a", "b"]}, "too-large", "roce_vpcs", "at most 1"),
        (BACKENDS[2] | {"preview_features": ["g5"]}, "unknown-value", "preview_features.0", "`g4`"),
        ({"type": "kubernetes", "kubeconfig": {}}, "missing", "kubeconfig", "`filename` or `data`"),
        (BACKENDS[4] | {"namespace": "x"}, "exclusive", "namespace", "`contexts`"),
        (BACKENDS[4] | {"contexts": ["a", "a"]}, "duplicate", "contexts.1", "twice"),
        (BACKENDS[4] | {"regions": ["a"]}, "unknown-key", "regions", "known here"),
        ({"type": "slurm", "clusters": []}, "too-small", "clusters", "empty"),
        ({"type": "slurm", "clusters": [SLURM, SLURM]}, "duplicate", "clusters.1.name", "another name"),
        (
            {"type": "slurm", "clusters": [SLURM | {"gpu_partitions": [{"gpu": "a:b:c", "partitions": ["p"]}]}]},
            "invalid-value",
            "clusters.0.gpu_partitions.0.gpu",
            "nvidia:H100:80GB",
        ),
        (
            {"type": "nebius", "creds": {"type": "service_account", "filename": "f", "public_key_id": "k"}},
            "exclusive",
            "creds.public_key_id",
            "keep one",
        ),
        (BACKENDS[13] | {"creds": BACKENDS[13]["creds"] | {"key_content": "k"}}, "exclusive", "creds.key_content", ""),
        ({"type": "remote"}, "unknown-value", "type", "one of"),
        ({"creds": KEY}, "missing", "type", "`type` is needed"),
    ],
)
def test_a_wrong_backend(backend: dict[str, Any], code: str, path: str, message: str) -> None:
    found = problems(written(backend))
    problem = next(p for p in found if p.code == code)
    assert problem.path == ".".join(filter(None, ("projects.0.backends.0", path)))
    assert message in problem.render() and problem.line > 1


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", "wrong-type", "expected a mapping"),
        ("encryption: {}\nprojects: []\n", "missing", "`keys` is needed"),
        ("plugins: []\n", "missing", "`projects` is needed"),
        ("projects: main\n", "wrong-type", "expected a list"),
        ("projects: [{name: a}, {name: a}]\n", "duplicate", "the project `a` appears twice"),
        ("projects: []\nbackends: []\n", "unknown-key", "backends belong to a project"),
        (written({"type": "dstack"}, {"type": "dstack"}), "duplicate", "the backend `dstack` appears twice"),
        ("projects: []\nencryption: {keys: [{type: identity}, {type: identity}]}\n", "duplicate", "twice"),
        ("projects: []\ndefault_permissions: {allow_managers_manage_secrets: maybe}\n", "wrong-type", "`maybe`"),
        ("projects: []\nregistries: ['https://registry.lan:5000']\n", "invalid-value", "isn't the host of a registry"),
        ("projects: []\nregistries: ['registry.lan:70000']\n", "invalid-value", "isn't the host of a registry"),
        ("projects: [a\n", "yaml-syntax", "never closed"),
        ("projects: []\nhosts: [a]\n", "unknown-key", "`hosts` isn't a known key"),
    ],
)
def test_a_wrong_file(text: str, code: str, message: str) -> None:
    problem = only(text)
    assert problem.code == code and message in problem.render()
    assert "ssh_config" not in problem.hint


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(Invalid) as caught:
        parse_server_bytes(b"projects: \xff\n", filename="config.yml")
    assert caught.value.problems[0].code == "not-utf8"


# --- secrets ----------------------------------------------------------------------------------------------------------

_PLACES = (
    "projects: [{{name: main, backends: [{{type: runpod, creds: {0}}}]}}]",
    "projects: [{{name: main, backends: [{0}]}}]",
    "projects: [{{name: main, backends: [{{type: runpod, api_key: {0}}}]}}]",
    "projects: [{{name: main, backends: [{{type: runpod, creds: {{type: {0}, api_key: x}}}}]}}]",
    "projects: [{{name: main, backends: [{{type: aws, creds: {{type: {0}}}}}]}}]",
    "projects: [{{name: main, backends: [{{type: runpod, creds: {{type: api_key, api_key: [{0}]}}}}]}}]",
    "projects: [{{name: main, backends: [{{type: runpod, creds: {{type: api_key, api_key: {0}, y: 1}}}}]}}]",
    "projects: [{{name: main, backends: [{{type: oci, creds: {{type: client, key_file: a, key_content: {0}}}}}]}}]",
    "projects: [{{name: main, backends: [{{type: kubernetes, kubeconfig: {0}}}]}}]",
    "projects: [{{name: main, backends: [{{type: slurm, clusters: [{{private_key: {0}}}]}}]}}]",
    "projects: []\nencryption: {{keys: [{0}]}}",
    "projects: []\nencryption: {{keys: {0}}}",
    "projects: []\nencryption: {0}",
    "projects: []\nencryption: {{keys: [{{type: {0}}}]}}",
    "projects: []\nencryption: {{keys: [{{type: aes, name: a, secret: {0}}}]}}",
    "projects: []\nencryption: {{keys: [{{type: aes, name: {0}, secret: ''}}]}}",
)
_PASTED = (
    "sk-7Hq2Zx9Lm4",
    "'7Hq2`Zx9`Lm4'",
    "0x7Hq2", "0x74221", "74221_98813", "74221988137422198813742", "7422:19", "74.2210", "74221e11",
    "!Zx9Lm4 x", "!!Zx9Lm4 x",
    "742219",
)  # fmt: skip


@pytest.mark.parametrize("pasted", _PASTED)
def test_a_secret_is_not_repeated(pasted: str) -> None:
    for place in _PLACES:
        try:
            file = read(place.format(pasted))
        except Invalid as error:
            text = str(error) + "".join(map(repr, error.problems))
            assert error.__context__ is None, place  # or a traceback would show what the other error quotes
        else:
            text = repr(file) + str(file.config)
        for part in ("7Hq2", "Zx9", "Lm4", "7422", "74.2", "19881", "98813"):
            assert part not in text, (place, text)


_letters = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHJK023456789", min_size=12, max_size=30)


@given(st.sampled_from(_PLACES), _letters)
@example("projects: []\nencryption: {{keys: [{{type: {0}}}]}}", "0000iDEntity")  # nearly a known word
@pytest.mark.slow
def test_no_secret_at_all_is_repeated(place: str, secret: str) -> None:
    """A message may name all that is known, so a secret that happens to be a known word stands there in any case."""
    assert secret not in _error_of(place, secret) or secret in _error_of(place, secret[::-1])


def _error_of(place: str, secret: str) -> str:
    try:
        read(place.format(f'"{secret}"'))
    except Invalid as error:
        return str(error)
    return ""


def test_a_model_never_prints_what_is_secret() -> None:
    for backend in BACKENDS:
        config = read(written(backend)).config
        assert "hush" not in repr(config) + str(config)


# --- no input raises anything else ------------------------------------------------------------------------------------


def _fields(model: Any, seen: set[Any]) -> set[str]:
    if isinstance(model, type) and issubclass(model, BaseModel) and model not in seen:
        seen.add(model)
        inner = (_fields(field.annotation, seen) for field in model.model_fields.values())
        return set(model.model_fields).union(*inner)
    return set().union(*(_fields(part, seen) for part in typing.get_args(model)))


_keys = st.sampled_from(sorted(_fields(ServerConfig, set())))
_texts = st.sampled_from([*TABLE, "remote", "default", "api_key", "aes", AES, "a/b", "a", "1.10", "", "x:1"])
_scalars = _texts | st.text(max_size=8) | st.integers() | st.booleans() | st.none() | st.floats()
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4), max_leaves=8
)


@settings(max_examples=many(300))
@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@pytest.mark.slow
def test_any_bytes_are_refused_in_our_words(raw: bytes) -> None:
    try:
        parse_server_bytes(raw)
    except Invalid as error:
        assert error.problems


@settings(max_examples=many(200))
@given(
    st.sampled_from(BACKENDS), st.dictionaries(_keys, _values, max_size=4), st.dictionaries(_keys, _values, max_size=3)
)
@pytest.mark.slow
def test_any_values_are_refused_in_our_words(backend: dict[str, Any], fields: dict[str, Any], rest: Any) -> None:
    text = yaml.safe_dump({"projects": [{"name": "a", "backends": [backend | fields]}], **rest}, allow_unicode=True)
    try:
        read(text)
    except Invalid as error:
        for problem in error.problems:
            assert problem.message and "Input should" not in problem.message
            assert "?" not in problem.path


# --- the schema -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        written({"type": "awz"}),
        written({"type": "runpod", "creds": PAIR}),
        written({"type": "aws", "creds": {"type": "access_key", "access_key": "a"}}),
        written({"type": "kubernetes", "kubeconfig": {"filename": "f"}, "regions": ["a"]}),
        "projects: []\nplugin: []\n",
        "encryption: {keys: []}\n",
        "projects: []\nencryption: {keys: [{type: aes}]}\n",
    ],
)
def test_an_editor_marks_what_is_wrong(text: str) -> None:
    assert not SCHEMA.is_valid(yaml.safe_load(text))


@pytest.mark.slow
def test_every_field_is_explained() -> None:
    for name, definition in server_schema()["$defs"].items():
        schema: dict[str, Any] = next((arm for arm in definition.get("anyOf", [definition]) if "properties" in arm), {})
        for field, described in schema.get("properties", {}).items():
            assert described.get("description"), f"{name}.{field}"


@pytest.mark.slow
def test_the_schema_is_printed() -> None:
    command = [sys.executable, "-m", "chalicelib.configuration.schema", "server"]
    printed = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True).stdout
    assert json.loads(printed) == json.loads(json.dumps(server_schema()))
