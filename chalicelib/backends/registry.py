"""The table of backends: a row for each `type` of `server/config.yml` and of the wire.

A row names its parts by dotted path, so that nothing of a provider is imported before it is needed. The configuration
model and the facts load without the provider's SDK, and planning, listing and parsing need nothing else. A class
imports its SDK with its first call, so whether that is installed is asked before there is an object to call. A type
without a class is parsed and refused by name.

In AWS, work on a provider's accounts is done by a function of the row's artefact, and `infra` renders the artefacts,
their functions and these functions' policies from the rows: a provider whose SDK is large has one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from chalicelib.backends.spi import Backend
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.specs.reading import Spec
from chalicelib.errors import NotSupported, Refused


@dataclass(frozen=True)
class Row:
    """The parts of a type, each as `module:name`. A class and its facts come together."""

    config: str
    facts: str = ""
    backend: str = ""
    extra: str = ""  # the package extra that brings its SDK,
    sdk: tuple[str, ...] = ()  # and the modules that the provider's package imports from it
    artefact: str = ""  # of the functions that call it; CLOUDS unless it says otherwise
    permissions: str = ""  # in AWS, for accounts that use the credentials of that function


_HERE = "chalicelib.backends"
_KEY = Row(f"{_HERE}.configs:KeyBackendConfig")

CLOUDS = "clouds"  # the artefact of all providers that need no large SDK

# Alphabetical. The simulated cloud isn't here: it has no configuration, and `dstack` is the hosted marketplace.
BACKENDS: Mapping[str, Row] = {
    "amddevcloud": Row(f"{_HERE}.digitalocean.config:DigitalOceanBackendConfig"),
    "aws": Row(
        f"{_HERE}.aws.config:AWSBackendConfig",
        facts=f"{_HERE}.aws.facts:FACTS",
        backend=f"{_HERE}.aws.backend:AwsBackend",
        extra="aws",
        sdk=("boto3", "botocore"),
        permissions=f"{_HERE}.aws.permissions:PERMISSIONS",
    ),
    "azure": Row(f"{_HERE}.azure.config:AzureBackendConfig"),
    "cloudrift": _KEY,
    "crusoe": Row(f"{_HERE}.crusoe.config:CrusoeBackendConfig"),
    "cudo": Row(f"{_HERE}.cudo.config:CudoBackendConfig"),
    "datacrunch": Row(f"{_HERE}.verda.config:VerdaBackendConfig"),
    "daytona": _KEY,
    "digitalocean": Row(f"{_HERE}.digitalocean.config:DigitalOceanBackendConfig"),
    "dstack": Row(f"{_HERE}.marketplace.config:SkyBackendConfig"),
    "gcp": Row(f"{_HERE}.gcp.config:GCPBackendConfig"),
    "hotaisle": Row(f"{_HERE}.hotaisle.config:HotAisleBackendConfig"),
    "jarvislabs": _KEY,
    "kubernetes": Row(f"{_HERE}.kubernetes.config:KubernetesBackendConfig"),
    "lambda": _KEY,
    "lium": _KEY,
    "nebius": Row(f"{_HERE}.nebius.config:NebiusBackendConfig"),
    "oci": Row(f"{_HERE}.oci.config:OCIBackendConfig"),
    "runpod": Row(f"{_HERE}.runpod.config:RunpodBackendConfig"),
    "seeweb": Row(f"{_HERE}.seeweb.config:SeewebBackendConfig"),
    "slurm": Row(f"{_HERE}.slurm.config:SlurmBackendConfig"),
    "tensordock": Row(f"{_HERE}.tensordock.config:TensorDockBackendConfig"),
    "vastai": Row(f"{_HERE}.vastai.config:VastAIBackendConfig"),
    "verda": Row(f"{_HERE}.verda.config:VerdaBackendConfig"),
    "vultr": _KEY,
}

if list(BACKENDS) != sorted(BACKENDS):
    raise AssertionError("the table of backends isn't sorted")


@cache
def config_models() -> tuple[type[Spec], ...]:
    """The models of all types, each once, by name."""
    found = {_loaded(row.config) for row in BACKENDS.values()}
    return tuple(sorted(found, key=lambda model: str(model.__name__)))


def built(table: Mapping[str, Row] = BACKENDS) -> frozenset[str]:
    """The types that have a class."""
    return frozenset(name for name, row in table.items() if row.backend)


def artefact_of(name: str, table: Mapping[str, Row] = BACKENDS) -> str:
    """Of the functions that work on accounts of that type, or of one that isn't in the table: of the simulated cloud,
    or of work that is no provider's."""
    row = table.get(name)
    return (row.artefact if row else "") or CLOUDS


def artefacts(table: Mapping[str, Row] = BACKENDS) -> Mapping[str, tuple[str, ...]]:
    """The artefacts of providers, each with the types that have a class and run from it."""
    found: dict[str, tuple[str, ...]] = {CLOUDS: ()}
    for name in sorted(built(table)):
        artefact = artefact_of(name, table)
        found[artefact] = (*found.get(artefact, ()), name)
    return found


def permissions_of(name: str, table: Mapping[str, Row] = BACKENDS) -> Sequence[Any]:
    """What accounts of that type need in AWS, if they use the credentials of the function that works on them. Each has
    `sid`, `actions`, `things` and `only_if`."""
    row = table[name]
    return tuple(_loaded(row.permissions)) if row.permissions else ()


def facts_of(name: str, table: Mapping[str, Row] = BACKENDS) -> BackendFacts:
    """What the backend can do. Needs no SDK and no credentials; an alias has the same facts under its own name."""
    found: BackendFacts = _loaded(_built_row(name, table).facts)
    return found.with_(name=name)


def backend_class(name: str, table: Mapping[str, Row] = BACKENDS) -> type[Backend]:
    """The backend's class. Raises NotSupported for a type without one, Refused if its SDK isn't installed."""
    row = _built_row(name, table)
    if lacking := [module for module in row.sdk if not _is_installed(module)]:
        raise lacks_sdk(name, lacking[0], f"Install it there: pip install 'dstack-serverless[{row.extra}]'")
    found: type[Backend] = _loaded(row.backend)
    return found


def lacks_sdk(name: str, module: str, hint: str) -> Refused:
    said = f"The backend {name} needs the Python package {module}, which isn't installed where the server runs."
    return Refused(said, hint=hint)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in isn't
        return False


def _built_row(name: str, table: Mapping[str, Row]) -> Row:
    row = table.get(name)
    if row is None:
        raise NotSupported(f"There is no backend {name!r}.", hint=f"Known backends: {', '.join(table)}.")
    if not row.backend:
        raise NotSupported(f"The backend {name} isn't built yet.")
    return row


def _loaded(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
