"""The table of backends: one row for each `type` of `server/config.yml` and of the API.

A row names its parts by dotted path, so no code of a provider is imported before it is needed. The configuration model
and the class load without the provider's SDK; planning, listing and parsing need nothing else. The class declares what
the backend can do, so its module imports little: its parts are imported with the first object, and the SDK with the
first call. Before an object is created, the registry checks that the SDK is installed. A type without a class can be
parsed, and is refused by name.

On AWS, a function of the row's artefact does the work on a provider's accounts. `infra` generates the artefacts, their
functions and these functions' policies from the rows. A provider with a large SDK has its own artefact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from chalicelib.errors import NotSupported, Refused

if TYPE_CHECKING:
    from chalicelib.backends.spi import Backend
    from chalicelib.domain.facts import BackendFacts
    from chalicelib.domain.instants import Micros
    from chalicelib.domain.specs.reading import Spec


@dataclass(frozen=True)
class Row:
    """The parts of a type, each as `module:name`."""

    config: str
    backend: str = ""
    extra: str = ""  # the package extra that brings its SDK,
    sdk: tuple[str, ...] = ()  # and the modules that the provider's package imports from it
    artefact: str = ""  # the artefact of the functions that call it; CLOUDS by default
    trim: str = ""  # in AWS, removes from the SDK what the provider's package doesn't use
    permissions: str = ""  # likewise, for accounts that use the credentials of that function
    volume: str = ""  # the model of what users write for a volume there,
    options: str = ""  # for the choice among its offers,
    certificates: Mapping[str, str] = field(default_factory=dict)  # and for certificates that it keeps, by `type`


_HERE = __name__.rpartition(".")[0]
_KEY = f"{_HERE}.keyed:KeyBackendConfig"

CLOUDS = "clouds"  # the artefact of all providers without a large SDK

# Alphabetical. The simulated cloud isn't here: it has no configuration, and `dstack` is the hosted marketplace.
_ROWS: dict[str, Row] = {
    "amddevcloud": Row(f"{_HERE}.digitalocean.config:DigitalOceanBackendConfig"),
    "aws": Row(
        f"{_HERE}.aws.config:AWSBackendConfig",
        volume=f"{_HERE}.aws.specs:AWSVolumeConfiguration",
        certificates={"acm": f"{_HERE}.aws.specs:ACMGatewayCertificate"},
        backend=f"{_HERE}.aws.backend:AwsBackend",
        extra="aws",
        sdk=("boto3", "botocore"),
        permissions=f"{_HERE}.aws.permissions:PERMISSIONS",
    ),
    "azure": Row(
        f"{_HERE}.azure.config:AzureBackendConfig",
        volume=f"{_HERE}.azure.specs:AzureVolumeConfiguration",
        backend=f"{_HERE}.azure.backend:AzureBackend",
    ),
    "cloudrift": Row(_KEY),
    "crusoe": Row(
        f"{_HERE}.crusoe.config:CrusoeBackendConfig",
        volume=f"{_HERE}.crusoe.specs:CrusoeVolumeConfiguration",
        backend=f"{_HERE}.crusoe.backend:CrusoeBackend",
    ),
    "cudo": Row(f"{_HERE}.cudo.config:CudoBackendConfig"),
    "datacrunch": Row(f"{_HERE}.verda.config:VerdaBackendConfig"),
    "daytona": Row(_KEY, volume=f"{_HERE}.daytona.specs:DaytonaVolumeConfiguration"),
    "digitalocean": Row(f"{_HERE}.digitalocean.config:DigitalOceanBackendConfig"),
    "dstack": Row(f"{_HERE}.marketplace.config:SkyBackendConfig"),
    "gcp": Row(
        f"{_HERE}.gcp.config:GCPBackendConfig",
        volume=f"{_HERE}.gcp.specs:GCPVolumeConfiguration",
        certificates={"gcp-cm": f"{_HERE}.gcp.specs:GCPCertificateManagerGatewayCertificate"},
        backend=f"{_HERE}.gcp.backend:GcpBackend",
        extra="gcp",
        sdk=("google.cloud.compute_v1",),
        artefact="gcp",
        trim=f"{_HERE}.gcp.trimming:trim",
    ),
    "hotaisle": Row(f"{_HERE}.hotaisle.config:HotAisleBackendConfig"),
    "jarvislabs": Row(_KEY),
    "kubernetes": Row(
        f"{_HERE}.kubernetes.config:KubernetesBackendConfig",
        volume=f"{_HERE}.kubernetes.specs:KubernetesVolumeConfiguration",
        backend=f"{_HERE}.kubernetes.backend:KubernetesBackend",
        extra="kubernetes",
        sdk=("kubernetes",),
    ),
    "lambda": Row(
        f"{_HERE}.lambda_cloud.config:LambdaBackendConfig",
        backend=f"{_HERE}.lambda_cloud.backend:LambdaBackend",
    ),
    "lium": Row(_KEY, volume=f"{_HERE}.lium.specs:LiumVolumeConfiguration"),
    "nebius": Row(
        f"{_HERE}.nebius.config:NebiusBackendConfig",
        volume=f"{_HERE}.nebius.specs:NebiusVolumeConfiguration",
        backend=f"{_HERE}.nebius.backend:NebiusBackend",
        extra="nebius",
        sdk=("grpc", "google.protobuf"),
        artefact="nebius",
    ),
    "oci": Row(f"{_HERE}.oci.config:OCIBackendConfig"),
    "runpod": Row(
        f"{_HERE}.runpod.config:RunpodBackendConfig",
        volume=f"{_HERE}.runpod.specs:RunpodVolumeConfiguration",
        backend=f"{_HERE}.runpod.backend:RunpodBackend",
    ),
    "seeweb": Row(f"{_HERE}.seeweb.config:SeewebBackendConfig"),
    "slurm": Row(f"{_HERE}.slurm.config:SlurmBackendConfig"),
    "tensordock": Row(
        f"{_HERE}.tensordock.config:TensorDockBackendConfig",
        backend=f"{_HERE}.tensordock.backend:TensorDockBackend",
    ),
    "vastai": Row(
        f"{_HERE}.vastai.config:VastAIBackendConfig",
        options=f"{_HERE}.vastai.specs:VastAIProfileOptions",
        backend=f"{_HERE}.vastai.backend:VastAIBackend",
    ),
    "verda": Row(f"{_HERE}.verda.config:VerdaBackendConfig"),
    "vultr": Row(_KEY),
}

if list(_ROWS) != sorted(_ROWS):
    raise AssertionError("the table of backends isn't sorted")

BACKENDS: Mapping[str, Row] = MappingProxyType(_ROWS)


@contextmanager
def registered(name: str, row: Row) -> Iterator[None]:
    """Adds a backend to the table until the context ends. Enter it before the control plane is created."""
    if name in _ROWS:
        raise AssertionError(f"there is a backend {name} already")
    _ROWS[name] = row
    try:
        yield
    finally:
        del _ROWS[name]


class Models:
    """The providers' models, for parsing specs. Each is loaded on first use."""

    def names(self) -> Sequence[str]:
        return list(BACKENDS)

    def kinds(self, part: str) -> Sequence[str]:
        return list(_models(part))

    def model(self, part: str, kind: str) -> type[Spec]:
        found: type[Spec] = _loaded(_models(part)[kind])
        return found


def _models(part: str) -> dict[str, str]:
    """The paths of one part's models, by the value that selects among them."""
    if part == "certificate":
        return {kind: path for row in BACKENDS.values() for kind, path in row.certificates.items()}
    return {name: path for name, row in BACKENDS.items() if (path := getattr(row, part))}


def config_models() -> tuple[type[Spec], ...]:
    """The configuration models of all types by name, without duplicates."""
    found = {_loaded(row.config) for row in BACKENDS.values()}
    return tuple(sorted(found, key=lambda model: str(model.__name__)))


def keyed() -> tuple[str, ...]:
    """The types that need only a key."""
    return tuple(name for name, row in BACKENDS.items() if row.config == _KEY)


def built(table: Mapping[str, Row] = BACKENDS) -> frozenset[str]:
    """The types that have a class."""
    return frozenset(name for name, row in table.items() if row.backend)


def artefact_of(name: str, table: Mapping[str, Row] = BACKENDS) -> str:
    """The artefact of the functions that work on accounts of that type. A type that isn't in the table, such as the
    simulated cloud or work without a provider, has the default one."""
    row = table.get(name)
    return (row.artefact if row else "") or CLOUDS


def artefacts(table: Mapping[str, Row] = BACKENDS) -> Mapping[str, tuple[str, ...]]:
    """The providers' artefacts, each with the types that have a class and run from it."""
    found: dict[str, tuple[str, ...]] = {CLOUDS: ()}
    for name in sorted(built(table)):
        artefact = artefact_of(name, table)
        found[artefact] = (*found.get(artefact, ()), name)
    return found


def permissions_of(name: str, table: Mapping[str, Row] = BACKENDS) -> Sequence[Any]:
    """What accounts of that type need in AWS, if they use the credentials of the function that works on them. Each has
    `sid`, `actions`, `resources` and `condition`."""
    row = table[name]
    return tuple(_loaded(row.permissions)) if row.permissions else ()


def trims(types: Iterable[str], table: Mapping[str, Row] = BACKENDS) -> Sequence[Callable[[Path], None]]:
    """What removes from a folder with the SDKs of these types whatever isn't used there."""
    return [_loaded(table[name].trim) for name in types if table[name].trim]


def facts_of(name: str, table: Mapping[str, Row] = BACKENDS) -> BackendFacts:
    """What the backend can do. Needs no SDK and no credentials; an alias has the same facts under its own name."""
    from chalicelib.backends import spi

    return spi.facts_of(_loaded(_built_row(name, table).backend)).with_(name=name)


def offers_turn(table: Mapping[str, Row] = BACKENDS) -> Micros:
    """How often to see whose offers are due: as often as the shortest-lived are. Markets list none."""
    every = (facts_of(name, table) for name in built(table))
    return min(facts.offers_last for facts in every if not facts.live_offers)


def backend_class(name: str, table: Mapping[str, Row] = BACKENDS) -> type[Backend]:
    """The backend's class. Raises NotSupported for a type without one, Refused if its SDK isn't installed."""
    row = _built_row(name, table)
    if lacking := [module for module in row.sdk if not _is_installed(module)]:
        raise lacks_sdk(
            name,
            lacking[0],
            f"Install dstack-serverless there again, with its extra `{row.extra}`: see docs/install.md.",
        )
    found: type[Backend] = _loaded(row.backend)
    return found


def lacks_sdk(name: str, module: str, hint: str) -> Refused:
    message = f"The backend {name} needs the Python package {module}, which isn't installed where the server runs."
    return Refused(message, hint=hint)


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
