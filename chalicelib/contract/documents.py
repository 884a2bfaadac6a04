"""What the command line prints with `--json`.

Our own documents begin with their version, `shape`. It changes when a key is removed or changes its meaning; keys may
be added within a version. Documents that the genuine client also prints keep its keys exactly, and so carry none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from chalicelib.contract.backends import Backend
from chalicelib.contract.configurations import Automation
from chalicelib.contract.events import Event
from chalicelib.contract.fleets import Fleet, Join
from chalicelib.contract.gateways import Gateway, GatewayWithCertificates
from chalicelib.contract.observations import Series
from chalicelib.contract.offers import Availability, FloatRange, IntRange, Offer, OffersAge, OffersAsked
from chalicelib.contract.presets import Preset
from chalicelib.contract.projects import Export, Import, Member, Quota, Secret
from chalicelib.contract.runs import Run
from chalicelib.contract.server import ServerCost, ServerSlo, ServerUsage
from chalicelib.contract.specs import RequiredResources
from chalicelib.contract.users import AccessToken, PublicKey, ScimToken, User
from chalicelib.contract.v1.services import V1Service
from chalicelib.contract.volumes import Volume


class AutomationList(TypedDict):
    """Stored configurations, without their contents, and who stored each."""

    shape: Literal[1]
    project: str
    automations: list[Automation]


class CheckedBackend(TypedDict):
    name: str
    works: bool
    error: str | None
    """Everything that is wrong."""


class BackendCheck(TypedDict):
    """Whether each backend works."""

    shape: Literal[1]
    project: str
    backends: list[CheckedBackend]


class BackendList(TypedDict):
    """Backends of the project, without credentials, and the age of their offers."""

    shape: Literal[1]
    project: str
    backends: list[Backend]


class EventList(TypedDict):
    """Events, oldest first; `dstack event` prints the same."""

    shape: Literal[1]
    project: str
    events: list[Event]


class ExportList(TypedDict):
    """What the project shares, and with which projects."""

    shape: Literal[1]
    project: str
    exports: list[Export]


class FleetList(TypedDict):
    """Fleets, newest first."""

    shape: Literal[1]
    project: str
    fleets: list[Fleet]


class FleetJoins(TypedDict):
    """The commands with which machines join a fleet, oldest first."""

    shape: Literal[1]
    fleet: str
    joins: list[Join]


class GatewayList(TypedDict):
    """Gateways, oldest first."""

    project: str
    gateways: list[Gateway]


class ImportList(TypedDict):
    """What other projects share with this one."""

    shape: Literal[1]
    project: str
    imports: list[Import]


class JobSamples(TypedDict):
    job: str
    metrics: list[Series]


class Metrics(TypedDict):
    """The samples of each job in the last hour, newest first."""

    shape: Literal[1]
    project: str
    run: str
    jobs: list[JobSamples]


class OfferRequirements(TypedDict):
    resources: RequiredResources
    max_price: float | None
    spot: bool | None
    reservation: str | None


class OfferList(TypedDict):
    """Available offers, cheapest first."""

    project: str
    user: str
    requirements: OfferRequirements
    offers: list[Offer]
    total_offers: int
    offers_as_of: list[OffersAge]
    offers_asked: list[OffersAsked]
    """An entry for each request to a backend that lists none."""


class OfferGroup(TypedDict):
    """One kind of GPU. KEYS decides which location keys have a value; the others are null."""

    backends: list[str] | None
    backend: str | None
    regions: list[str] | None
    region: str | None
    name: str
    memory_mib: int
    vendor: str
    availability: list[Availability]
    spot: list[Literal["spot", "on-demand"]]
    count: IntRange
    price: FloatRange
    """Dollars an hour for one GPU."""
    offer_price: FloatRange
    """Dollars an hour for the whole machine."""


class OfferGroups(TypedDict):
    """The same by accelerator."""

    project: str
    requirements: OfferRequirements
    group_by: list[str]
    gpus: list[OfferGroup]
    offers_as_of: list[OffersAge]
    offers_asked: list[OffersAsked]


class KnownProject(TypedDict):
    project: str
    url: str
    default: bool
    user: NotRequired[str]
    """With `-v`: whose token it is, or why that isn't known."""


class ProjectList(TypedDict):
    """The projects that this machine knows."""

    shape: Literal[1]
    projects: list[KnownProject]


class ProjectMembers(TypedDict):
    """Who is a member of a project, and in which role."""

    shape: Literal[1]
    project: str
    members: list[Member]


class PresetList(TypedDict):
    """Presets on this machine, newest first."""

    presets: list[Preset]


class ProjectQuota(TypedDict):
    """The limits of a project and of its users, and what is used of them."""

    shape: Literal[1]
    project: str
    quota: Quota


class Ps(TypedDict):
    """Runs, newest first, each job with its latest submission only."""

    project: str
    runs: list[Run]


class SecretGet(Secret):
    """One secret with its value."""

    shape: Literal[1]


class SecretList(TypedDict):
    """Secrets, without `value`."""

    shape: Literal[1]
    project: str
    secrets: list[Secret]


class ServerInfoDocument(ServerUsage):
    """What a server's data takes, in bytes, and how many days it keeps things."""

    shape: Literal[1]


class ServerCostDocument(ServerCost):
    """What a server in AWS costs a month: its `lines` by what drives them."""

    shape: Literal[1]


class ServerSloDocument(ServerSlo):
    """How a server keeps its `objectives`, by its own measure."""

    shape: Literal[1]


class TokenCreate(TypedDict):
    """The new access token, with its text, which is shown this once."""

    shape: Literal[1]
    access_token: AccessToken
    token: str


class TokenList(TypedDict):
    """Your valid access tokens, newest first."""

    shape: Literal[1]
    access_tokens: list[AccessToken]


class ScimTokenCreate(TypedDict):
    """The new SCIM token, with its text, which is shown this once."""

    shape: Literal[1]
    scim_token: ScimToken
    token: str


class ScimTokenList(TypedDict):
    """The server's SCIM tokens, newest first."""

    shape: Literal[1]
    scim_tokens: list[ScimToken]


class UserCreate(TypedDict):
    """The new user, with the token that is shown this once."""

    shape: Literal[1]
    user: User
    token: str


class UserKeys(TypedDict):
    """Your public keys, newest first."""

    shape: Literal[1]
    keys: list[PublicKey]


class UserList(TypedDict):
    """Users, newest first."""

    shape: Literal[1]
    users: list[User]


class VolumeList(TypedDict):
    """Volumes, oldest first."""

    shape: Literal[1]
    project: str
    volumes: list[Volume]


class ErrorPlace(TypedDict):
    """One problem. `line` and `column` are 0 where they aren't known."""

    message: str
    hint: str
    field: str
    file: str
    line: int
    column: int


class ErrorDetails(TypedDict):
    message: str
    hint: str
    exit_code: int
    problems: list[ErrorPlace]


class ErrorDocument(TypedDict):
    """What went wrong, and in `problems` where."""

    shape: Literal[1]
    error: ErrorDetails


PRINTED: Mapping[str, Any] = MappingProxyType(
    {
        "apply": Run | Fleet | Volume | Gateway | Preset,
        "automation list": AutomationList,
        "backend check": BackendCheck,
        "backend list": BackendList,
        "event list": EventList,
        "export list": ExportList,
        "fleet get": Fleet,
        "fleet list": FleetList,
        "fleet joins": FleetJoins,
        "import list": ImportList,
        "metrics": Metrics,
        "offer": OfferList,
        "offer --group-by": OfferGroups,
        "preset get": Preset,
        "preset list": PresetList,
        "project list": ProjectList,
        "project quota": ProjectQuota,
        "project members": ProjectMembers,
        "ps": Ps,
        "run get": Run,
        "scim token create": ScimTokenCreate,
        "scim token list": ScimTokenList,
        "secret get": SecretGet,
        "secret list": SecretList,
        "server info": ServerInfoDocument,
        "server info --cost": ServerCostDocument,
        "server slo": ServerSloDocument,
        "service get": V1Service,
        "token create": TokenCreate,
        "token list": TokenList,
        "user create": UserCreate,
        "user keys": UserKeys,
        "user list": UserList,
        "gateway get": GatewayWithCertificates,
        "gateway list": GatewayList,
        "volume get": Volume,
        "volume list": VolumeList,
    }
)
"""The document of each command."""
