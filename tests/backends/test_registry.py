"""The table of backends: every type has its row, nothing of a row needs an SDK, and nobody opts out of the suite."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import chalicelib.backends
import tests.backends
from chalicelib.backends import kit, registry, spi
from chalicelib.backends.registry import (
    BACKENDS,
    Models,
    Row,
    backend_class,
    built,
    config_models,
    facts_of,
    offers_turn,
)
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.credentials import types_of
from chalicelib.domain.specs.gateways import ProviderGatewayCertificate
from chalicelib.domain.specs.secrecy import secrets_of
from chalicelib.errors import NotSupported, Refused
from tests.backends.conformance import BackendConformance
from tests.backends.kit.backend import CirrusBackend

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Each is named as its module, but for one.
SERVER = [*PROJECT["dependencies"], *EXTRAS["server"]]
BROUGHT_ALONG = {re.split(r"[^\w-]", line)[0] for line in SERVER} - {"pyyaml"} | {"yaml"}
KIT = f"{kit.__name__}."
NOT_PROVIDERS = {
    "accounts",
    "configs",
    "keyed",
    "kit",
    "price_file",
    "published_prices",
    "registry",
    "simulated",
    "spi",
}
MODELS = {"config", "specs"}
TABLE = {
    "nimbus": Row(
        "chalicelib.backends.keyed:KeyBackendConfig",
        "chalicelib.backends.simulated.cloud:FakeCloud",
        extra="nimbus",
        sdk=("json", "nimbus.sdk"),
    )
}


def providers(folder: Path) -> dict[str, bool]:
    """The providers' packages, and whether there is more in them than models of what people write."""
    packages = [path for path in folder.iterdir() if path.stem not in NOT_PROVIDERS and not path.stem.startswith("_")]
    return {path.stem: {file.stem for file in path.glob("*.py")} - MODELS > {"__init__"} for path in packages}


def listed() -> dict[str, bool]:
    """The packages that the table names, and whether a class is named there."""
    found = {}
    for row in BACKENDS.values():
        for path in filter(None, (row.config, row.volume)):
            package = path.removeprefix("chalicelib.backends.").partition(":")[0].partition(".")[0]
            if package not in NOT_PROVIDERS:
                found[package] = bool(row.backend)
    return found


def joined() -> set[str]:
    """Backend names whose tests inherit the suite, with none of its cases taken out."""
    names = set()
    for found in pkgutil.iter_modules(tests.backends.__path__):
        if not found.name.startswith("test_"):
            continue
        module = importlib.import_module(f"tests.backends.{found.name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, BackendConformance) and kind.__name__.startswith("Test"):
                cases = [name for name in dir(BackendConformance) if name.startswith("test_")]
                if all(getattr(kind, name) is getattr(BackendConformance, name) for name in cases):
                    names.add(kind.backend_name)
    return names


@pytest.mark.slow
def test_every_backend_joins_the_suite() -> None:
    assert built() | {FakeCloud.facts.name} <= joined()


def test_every_package_is_in_the_table() -> None:
    assert providers(Path(chalicelib.backends.__file__).parent) == listed()


def test_a_package_that_has_not_joined_is_found(tmp_path: Path) -> None:
    for name in ("__init__.py", "config.py", "cloud.py"):
        (tmp_path / "newcloud").mkdir(exist_ok=True)
        (tmp_path / "newcloud" / name).touch()
    (tmp_path / "spi.py").touch()
    (tmp_path / "stray.py").touch()
    assert providers(tmp_path) == {"newcloud": True, "stray": False}


def test_every_type_of_a_model_has_its_row() -> None:
    assert {kind for model in config_models() for kind in types_of(model)} == set(BACKENDS)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_row_holds_together(name: str) -> None:
    row = BACKENDS[name]
    (model,) = [model for model in config_models() if name in types_of(model)]
    assert row.config.partition(":")[2] == model.__name__


@pytest.mark.parametrize(("part", "field"), [("volume", "backend"), ("options", "type"), ("certificate", "type")])
def test_a_model_is_for_what_its_row_says_and_holds_no_secret(part: str, field: str) -> None:
    """A secret in a part of a spec is found by the types of the spec, which don't name the providers' models."""
    kinds = Models().kinds(part)
    for kind in kinds:
        model = Models().model(part, kind)
        assert typing.get_args(model.model_fields[field].annotation) == (kind,)
        assert model.model_config["extra"] == "forbid" and not secrets_of(model)
        if issubclass(model, ProviderGatewayCertificate):
            assert kind in BACKENDS[model.BACKEND].certificates and model.OWNER
    assert kinds


def test_every_class_and_its_facts_are_there() -> None:
    for name in built():
        assert facts_of(name).name == name
        assert backend_class(name).__name__


@pytest.mark.parametrize("name", sorted(built() - {"kubernetes"}))  # whose configuration has the addresses
def test_something_can_stand_in_for_every_provider(name: str) -> None:
    assert "endpoint" in inspect.signature(backend_class(name)).parameters


def test_an_alias_has_its_own_name() -> None:
    assert facts_of("nimbus", TABLE) == spi.facts_of(FakeCloud).with_(name="nimbus")


class Stall(FakeCloud):
    """A market."""

    facts = FakeCloud.facts.with_(name="stall", offers_last=SECOND)

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        return []


def test_a_market_sets_no_schedule_of_lists() -> None:
    with_market = {**TABLE, "stall": Row("chalicelib.backends.keyed:KeyBackendConfig", f"{__name__}:Stall")}
    assert facts_of("stall", with_market).live_offers
    assert offers_turn(with_market) == offers_turn(TABLE) == FakeCloud.facts.offers_last


def test_what_a_class_implements_is_among_its_facts() -> None:
    cloud, plain = spi.facts_of(FakeCloud), spi.facts_of(CirrusBackend)
    assert (cloud.volumes, cloud.placement_groups) == (True, True)
    assert (plain.volumes, plain.placement_groups) == (False, False)


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotSupported, match="vultr"):
        backend_class("nimbus")


def test_a_type_without_a_class_is_refused() -> None:
    (unbuilt, *_) = sorted(set(BACKENDS) - built())
    for read in (backend_class, facts_of):
        with pytest.raises(NotSupported, match=f"{unbuilt} isn't built yet"):
            read(unbuilt)


def test_missing_sdk_names_the_extra() -> None:
    with pytest.raises(Refused, match=r"package nimbus\.sdk,.* with its extra `nimbus`"):
        backend_class("nimbus", TABLE)


@pytest.mark.parametrize("name", sorted(built()))
@pytest.mark.slow
def test_a_row_names_every_module_that_its_package_imports_from_elsewhere(name: str) -> None:
    """So a class exists only where all that its calls need is installed."""
    row = BACKENDS[name]
    package = importlib.import_module(row.backend.partition(":")[0].rpartition(".")[0])
    tops, folder = {module.partition(".")[0] for module in row.sdk}, Path(package.__path__[0])
    itself, through_kit = imported(folder.rglob("*.py")), imported(kit_modules(folder))
    assert itself - BROUGHT_ALONG <= tops <= itself | through_kit
    assert not row.sdk or row.extra in EXTRAS


def test_the_readme_names_the_extras_that_backends_need() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [
        row.extra for row in map(BACKENDS.get, built()) if row and row.extra and f"[{row.extra}]" not in readme
    ] == []


def imported(files: Iterable[Path]) -> set[str]:
    """The tops of what is imported anywhere in the files, without Python's own modules and ours."""
    tops = {name.partition(".")[0] for path in files for name in imports(path)}
    return tops - set(sys.stdlib_module_names) - {"chalicelib"}


def kit_modules(folder: Path) -> set[Path]:
    """The files of the kit that modules of the folder import."""
    names = {name for path in folder.rglob("*.py") for name in imports(path)}
    return {Path(kit.__path__[0], f"{name.removeprefix(KIT)}.py") for name in names if name.startswith(KIT)}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def test_an_import_inside_a_function_is_found(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("import json\n\ndef call():\n    from nimbus.sdk import Client\n")
    assert imported(tmp_path.rglob("*.py")) == {"nimbus"}


# --- without any cloud's SDK ------------------------------------------------------------------------------------------

# By the top of their names. The plane's own in AWS, boto3 and what comes with it, is made with the first client.
SDKS = (
    "azure", "boto3", "botocore", "google", "googleapiclient", "grpc", "kubernetes", "msal", "msrest", "nebius", "oci",
    "paramiko", "pynamodb", "s3transfer",
)  # fmt: skip
BLOCK = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SDKS!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
"""
CLASSES = """
from chalicelib.backends.registry import BACKENDS, backend_class, built
from chalicelib.errors import Refused

for name in (name for name in built() if BACKENDS[name].sdk):
    try:
        backend_class(name)
    except Refused as error:
        assert f"its extra `{BACKENDS[name].extra}`" in error.hint, error
    else:
        raise AssertionError(f"{name} has a class without its SDK")
"""
ROWS = """
import sys

from chalicelib.backends.registry import BACKENDS, built, config_models, facts_of
from chalicelib.configuration.server import parse_server

facts = [facts_of(name) for name in built()]
parts = {name.rpartition(".")[2] for name in sys.modules if name.startswith("chalicelib.backends.aws.")}
assert parts == {"backend", "facts"}, parts  # a cold start that asks what backends can do loads no more
print(len(config_models()), facts)
parse_server("projects: [{name: main, backends: [{type: aws, creds: {type: default}}]}]")
"""

# `app` loads a route with its first request, so every module of the plane is imported by itself, and each function too.
PLANE = """
import importlib, pkgutil
import chalicelib, functions

for package in (chalicelib, functions):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.startswith("chalicelib.store.dynamo") and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [ROWS, CLASSES, "import app", PLANE], ids=["rows", "classes", "app", "plane"])
def test_nothing_imports_an_sdk(code: str) -> None:
    command = [sys.executable, "-c", BLOCK + code]
    done = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_block_holds() -> None:
    command = [sys.executable, "-c", BLOCK + "import boto3"]
    done = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert "boto3 is blocked" in done.stderr


@pytest.mark.slow
def test_the_registry_loads_no_provider() -> None:
    code = (
        f"import sys, {registry.__name__}; print(*(n for n in sys.modules if n.endswith('.config') and 'chalice' in n))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
