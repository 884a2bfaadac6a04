"""A further provider, which no file of the product knows: its row enters the table, and everything works through it.

Its machines, volumes and gateways are those of the simulated cloud, under its own name. Another has a market in place
of a list of offers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.backends.registry import BACKENDS, Row, registered
from chalicelib.backends.simulated.catalog import CONTAINERS
from chalicelib.backends.simulated.cloud import FACTS as SIMULATED
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.spi import CreateRequest
from chalicelib.configuration.parse import parse
from chalicelib.configuration.schema import configuration_schema
from chalicelib.domain.container_script import GATEWAY_IMAGE
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import HOUR, MINUTE, SECOND, from_iso
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer, OfferTerms
from chalicelib.domain.specs.credentials import ApiKeyCreds
from chalicelib.domain.specs.gateways import ProviderGatewayCertificate
from chalicelib.domain.specs.profiles import ProviderOptions
from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import VolumeConfiguration
from chalicelib.errors import BackendError, InsufficientCapacity, Invalid, MissingPermission, Transient
from tests.scenarios.stages import MAIN, Virtual
from tests.world.embedded import ConfiguredSite

# --- what a provider's package would hold -----------------------------------------------------------------------------

FACTS = SIMULATED.with_(name="nimbus", title="Nimbus", simulated=False)
ACCOUNTS: dict[str, FakeCloud] = {}  # at the provider, by key


class NimbusBackendConfig(RegionalBackend):
    """Nimbus."""

    type: Literal["nimbus"] = Field(description="`nimbus`.")
    creds: ApiKeyCreds = Field(description=CREDS)


class NimbusVolumeConfiguration(VolumeConfiguration):
    backend: Literal["nimbus"] = Field(default="nimbus", description="`nimbus`.")
    size: DiskSize = Field(description="Its size.")
    region: str = Field(description="The region it is in.")
    tier: Literal["fast", "slow"] = Field(default="slow", description="How fast it is.")


class NimbusGatewayCertificate(ProviderGatewayCertificate):
    """A certificate that Nimbus keeps."""

    BACKEND: ClassVar[str] = "nimbus"
    OWNER: ClassVar[str] = "Nimbus"

    type: Literal["nimbus-cert"] = Field(default="nimbus-cert", description="`nimbus-cert`.")
    ref: str = Field(description="Its reference.")


class NimbusOptions(ProviderOptions):
    """How to choose among Nimbus's offers."""

    type: Literal["nimbus"] = Field(description="`nimbus`.")
    green: bool = Field(default=False, description="Only with green power.")


class Nimbus(FakeCloud):
    """The backend of a configuration: the account of its key."""

    facts = FACTS

    def __init__(self, config: NimbusBackendConfig, prices: object = None) -> None:
        if config.creds.api_key not in ACCOUNTS:
            raise MissingPermission("Nimbus doesn't know this key.")
        self.__dict__ = ACCOUNTS[config.creds.api_key].__dict__

    def close(self) -> None:
        """It has nothing open."""


class Bazaar(Nimbus):
    """The same with a market: what it is asked for is offered as single machines."""

    facts = FACTS.with_(offers_last=MINUTE, gateways=False)
    requests: ClassVar[list[OfferRequest]] = []
    error: ClassVar[BackendError | None] = None
    taken: ClassVar[set[str]] = set()

    def offers(self) -> Sequence[Offer]:
        raise AssertionError("a market has no list")

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        Bazaar.requests.append(request)
        if Bazaar.error is not None:
            raise Bazaar.error
        fitting = [
            offer
            for offer in super().offers()
            if offer.region in (request.regions or (offer.region,)) and not offer.instance.resources.spot
        ]
        return [
            offer.with_(terms=OfferTerms(listing=f"{at}-{half}"), price=offer.price + half / 100)
            for at, offer in enumerate(fitting)
            for half in (0, 1)
        ]

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        if request.offer.terms.listing in Bazaar.taken:
            raise InsufficientCapacity("It was taken a moment ago.")
        return super().create(request)


class Arcade(Bazaar):
    """Its containers have addresses that the world reaches, so gateways run in them."""

    def create_gateway(self, request: CreateRequest) -> Iterator[Handle]:
        return super().create(request)


ROW = Row(
    f"{__name__}:NimbusBackendConfig",
    volume=f"{__name__}:NimbusVolumeConfiguration",
    options=f"{__name__}:NimbusOptions",
    certificates={"nimbus-cert": f"{__name__}:NimbusGatewayCertificate"},
    backend=f"{__name__}:Nimbus",
)

MARKET = replace(ROW, backend=f"{__name__}:Bazaar")
CONTAINER_MARKETS = {name: replace(ROW, backend=f"{__name__}:{name}") for name in ("Bazaar", "Arcade")}

# --- the tests --------------------------------------------------------------------------------------------------------

FLEET = "type: fleet\nname: pool\nnodes: 0..1\nbackends: [nimbus]\nregions: [sim-east]\n"
VOLUME = "type: volume\nname: data\nbackend: nimbus\nregion: sim-east\nsize: 1GB\ntier: fast\n"
TASK = "type: task\nname: work\nimage: ubuntu\nbackends: [nimbus]\ncommands: [echo done]\nvolumes: ['data:/data']\n"
GATEWAY = "type: gateway\nname: door\nbackend: nimbus\nregion: sim-north\ndomain: example.com\ncertificate: null\n"


class Site(ConfiguredSite):
    """`dstack server` with the accounts that its projects configure, and no others."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, FACTS.name)
        ACCOUNTS["a-key"] = self.cloud


@pytest.fixture
def nimbus() -> Iterator[None]:
    with registered("nimbus", ROW):
        yield
    assert "nimbus" not in BACKENDS


@pytest.fixture
def site(nimbus: None, tmp_path: Path) -> Iterator[Site]:
    found = Site("nimbus", tmp_path / "server")
    yield found
    ACCOUNTS.clear()
    found.close()


@pytest.fixture
def stage(site: Site, tmp_path: Path) -> Virtual:
    found = Virtual(site, tmp_path, MAIN)
    (tmp_path / "nimbus.yml").write_text("type: nimbus\ncreds: {type: api_key, api_key: a-key}\n")
    done(found, "backend", "add", "-f", "nimbus.yml")
    site.root.refresh_accounts()
    return found


def done(stage: Virtual, *args: str) -> str:
    text, code = stage.dstack(list(args))
    assert code == 0, text
    return text


def applied(stage: Virtual, name: str, text: str, *more: str) -> str:
    (stage.home / f"{name}.dstack.yml").write_text(text)
    return done(stage, "apply", "-f", f"{name}.dstack.yml", "-y", *more)


@pytest.mark.slow
def test_a_fleet_a_volume_and_a_task_run_there(stage: Virtual, site: Site) -> None:
    applied(stage, "fleet", FLEET)
    applied(stage, "volume", VOLUME)
    volume = stage.ask("volumes/get", {"name": "data"})
    assert volume["configuration"]["tier"] == "fast" and volume["status"] == "active", volume
    assert "done" in applied(stage, "task", TASK)
    run = stage.ask("runs/get", {"run_name": "work"})
    assert run["status"] == "done", run
    assert run["jobs"][0]["job_submissions"][-1]["job_provisioning_data"]["backend"] == "nimbus"
    done(stage, "fleet", "delete", "pool", "-y")
    done(stage, "volume", "delete", "data", "-y")
    stage.until("its end", lambda: not site.cloud.resources())


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Virtual]:
    with opened(MARKET, tmp_path) as (stage, _):
        yield stage


@contextmanager
def opened(row: Row, folder: Path, facts: BackendFacts | None = None) -> Iterator[tuple[Virtual, Site]]:
    """A server with a market of this row."""
    with registered("nimbus", row):
        site = Site("nimbus", folder / "server")
        site.cloud.facts = facts or site.cloud.facts
        stage = Virtual(site, folder, MAIN)
        (folder / "nimbus.yml").write_text("type: nimbus\ncreds: {type: api_key, api_key: a-key}\n")
        done(stage, "backend", "add", "-f", "nimbus.yml")
        site.root.refresh_accounts()
        yield stage, site
        Bazaar.error = None
        Bazaar.requests.clear()
        Bazaar.taken.clear()
        ACCOUNTS.clear()
        site.close()


PLAIN = TASK.replace("volumes: ['data:/data']\n", "")


@pytest.mark.slow
def test_a_market_is_asked_for_a_plan_and_for_a_purchase(market: Virtual) -> None:
    applied(market, "fleet", FLEET)
    assert not Bazaar.requests, "a fleet that buys nothing by itself asks nobody"
    assert "done" in applied(market, "task", PLAIN)
    plan, purchase = Bazaar.requests
    assert plan == purchase and plan.regions == ("sim-east",)
    run = market.ask("runs/get", {"run_name": "work"})
    assert run["status"] == "done", run
    offer = run["jobs"][0]["job_submissions"][-1]["job_runtime_data"]["offer"]
    assert offer["backend"] == "nimbus" and offer["backend_data"] == {}
    (ordered,) = [each for each in market.events() if "ordered" in each["message"]]
    assert " UTC for cpu=2.. memory=8GB.. disk=100GB.., on-demand, in sim-east: " in ordered["message"]


@pytest.mark.slow
def test_the_next_machine_is_bought_if_somebody_else_was_quicker(market: Virtual) -> None:
    applied(market, "fleet", FLEET)
    Bazaar.taken.update(f"{at}-0" for at in range(99))
    assert "done" in applied(market, "task", PLAIN)
    assert len(Bazaar.requests) == 3, "for the plan, for the purchase, and after it had failed"


@pytest.mark.slow
def test_a_market_that_fails_or_has_nothing_costs_a_plan_a_line(market: Virtual) -> None:
    applied(market, "fleet", FLEET)
    Bazaar.error = Transient("Nimbus is closed on Sundays.")
    plan = market.ask("runs/get_plan", {"run_spec": {"configuration": {"type": "task", "commands": ["true"]}}})
    assert plan["job_plans"][0]["offers"] == []
    (asked,) = plan["offers_asked"]
    assert asked == {
        "backend": "nimbus",
        "request": "cpu=2.. memory=8GB.. disk=100GB.., on-demand, in sim-east",
        "asked_at": asked["asked_at"],
        "seconds": 0.0,
        "offers": 0,
        "error": "Nimbus is closed on Sundays",
        "lacking": None,
    }
    assert from_iso(asked["asked_at"]) // SECOND == market.site.time.at // SECOND
    assert plan["offers_as_of"] == [], "there is no list that could be old"
    Bazaar.error = InsufficientCapacity("Both stalls are empty.")
    plan = market.ask("runs/get_plan", {"run_spec": {"configuration": {"type": "task", "commands": ["true"]}}})
    (empty,) = plan["offers_asked"]
    assert (empty["error"], empty["lacking"], empty["offers"]) == (None, "Both stalls are empty", 0)
    Bazaar.error = None
    plan = market.ask("runs/get_plan", {"run_spec": {"configuration": {"type": "task", "commands": ["true"]}}})
    (sold,) = plan["offers_asked"]
    assert (sold["error"], sold["lacking"]) == (None, None)
    assert sold["offers"] >= plan["job_plans"][0]["total_offers"] > 0


@pytest.fixture
def pods(site: Site) -> None:
    """It sells containers, too, in a region of its own."""
    site.cloud.facts = FACTS.with_(containers=True)


@pytest.mark.slow
def test_a_task_and_its_volume_are_in_a_container_there(pods: None, stage: Virtual, site: Site) -> None:
    applied(stage, "fleet", FLEET.replace("sim-east", CONTAINERS))
    applied(stage, "volume", VOLUME.replace("sim-east", CONTAINERS))
    applied(stage, "task", TASK.replace("echo done", "sleep 600"), "-d")
    stage.until("its start", lambda: stage.ask("runs/get", {"run_name": "work"})["status"] == "running")
    (machine,) = site.cloud.machines()
    (volume,) = site.cloud.disks.all()
    assert machine["container"]["image"] == "ubuntu"
    assert machine["container"]["mounts"] == [[volume["id"], "/data", False]]
    assert list(volume["attached"]) == [machine["id"]]
    done(stage, "stop", "work", "-y")
    stage.until("its end", lambda: not site.cloud.resources())
    stage.until("that it has left", lambda: not site.cloud.disks.all()[0]["attached"])
    assert stage.ask("volumes/get", {"name": "data"})["status"] == "active"


@pytest.mark.slow
def test_a_dev_environment_gets_a_container_of_its_image_there(pods: None, stage: Virtual, site: Site) -> None:
    applied(stage, "fleet", FLEET.replace("sim-east", CONTAINERS))
    applied(stage, "dev", "type: dev-environment\nname: dev\nide: vscode\nbackends: [nimbus]\n", "-d")
    stage.until("its container", lambda: bool(site.cloud.machines()))
    (machine,) = site.cloud.machines()
    dev = stage.ask("runs/get", {"run_name": "dev"})
    assert machine["container"]["image"] == dev["jobs"][0]["job_spec"]["image_name"]
    done(stage, "stop", "dev", "-y")
    stage.until("its end", lambda: not site.cloud.resources())


@pytest.mark.slow
def test_a_gateway_gets_a_machine_there(stage: Virtual, site: Site) -> None:
    applied(stage, "gateway", GATEWAY)
    assert stage.ask("gateways/get", {"name": "door"})["status"] == "running"
    assert [machine["open_ports"] for machine in site.cloud.machines()] == [[80]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Arcade", "Bazaar"])
def test_a_gateway_gets_a_container_where_the_class_can_do_that_and_is_refused_where_not(
    kind: str, tmp_path: Path
) -> None:
    facts = FACTS.with_(containers=True, gateways=False, offers_last=MINUTE)
    with opened(CONTAINER_MARKETS[kind], tmp_path, facts) as (stage, site):
        wanted = GATEWAY.replace("sim-north", CONTAINERS)
        if kind == "Bazaar":
            (stage.home / "door.dstack.yml").write_text(wanted)
            text, code = stage.dstack(["apply", "-f", "door.dstack.yml", "-y"])
            assert code and "gateways in the backend nimbus aren't supported yet" in text
            return
        Bazaar.error = InsufficientCapacity("Both stalls are empty.")
        applied(stage, "door", wanted, "-d")
        site.time.run(site.time.at + SECOND)
        empty = "the backend `nimbus` was asked for offers and has nothing that fits now: Both stalls are empty"
        assert stage.ask("gateways/get", {"name": "door"})["status_message"] == empty
        Bazaar.error = None
        stage.until("its container", lambda: stage.ask("gateways/get", {"name": "door"})["status"] == "running")
        (machine,) = site.cloud.machines()
        assert (machine["open_ports"], machine["container"]["image"]) == ([80], GATEWAY_IMAGE)
        assert [request.regions for request in Bazaar.requests] == [(CONTAINERS,)] * 2
        found = stage.ask("gateways/get", {"name": "door"})
        assert found["hostname"] == machine["id"], "as the provider names it, and not as its agent does"
        done(stage, "gateway", "delete", "door", "-y")
        stage.until("its end", lambda: not site.cloud.resources())


@pytest.mark.slow
def test_a_sweep_ends_what_belongs_to_nobody_there(stage: Virtual, site: Site) -> None:
    lost = derive("nobody", "instance")
    project = site.call("/api/projects/main/get")
    owner = {"install": site.root.install_id, "project": project["project_id"], "instance": lost, "epoch": "0"}
    request = CreateRequest(
        token="t",
        name="lost",
        tags=tuple((f"dstack-{name}", text) for name, text in owner.items()),
        offer=site.cloud.offers()[0],
        instance_id=lost,
        user_data="",
        disk_mib=1024,
    )
    next(site.cloud.create(request))  # its disk; whoever asked for the machine died then
    assert len(site.cloud.resources()) == 1
    site.time.run(site.time.at + HOUR)
    assert not site.cloud.resources()


def test_what_it_has_of_its_own_is_read_like_what_others_have(nimbus: None) -> None:
    assert isinstance(parse(VOLUME), NimbusVolumeConfiguration)
    gateway_text = GATEWAY.replace("null", "{type: nimbus-cert, ref: r}")
    gateway: Any = parse(gateway_text)
    assert isinstance(gateway.certificate, NimbusGatewayCertificate)
    task: Any = parse(TASK + "backend_options: [{type: nimbus, green: true}, {type: vastai}]\n")
    assert isinstance(task.backend_options[0], NimbusOptions)
    for text, where, what in (
        (TASK.replace("[nimbus]", "[nimbos]"), "backends.0", "did you mean `nimbus`?"),
        (VOLUME.replace("nimbus", "nimbos"), "backend", "did you mean `nimbus`?"),
        (VOLUME.replace("tier", "teir"), "teir", "did you mean `tier`?"),
        (gateway_text.replace("ref", "reff"), "certificate.reff", "did you mean `ref`?"),
        (
            gateway_text.replace("backend: nimbus", "backend: vultr"),
            "certificate",
            "`nimbus-cert` is a certificate of Nimbus",
        ),
        (TASK + "backend_options: [{type: nimbus, gren: true}]\n", "backend_options.0.gren", "did you mean `green`?"),
    ):
        with pytest.raises(Invalid) as caught:
            parse(text)
        assert any(problem.path == where and what in problem.render() for problem in caught.value.problems), text


@pytest.mark.slow
def test_editors_know_it(nimbus: None) -> None:
    schema = configuration_schema()
    assert {"NimbusVolumeConfiguration", "NimbusGatewayCertificate", "NimbusOptions"} <= schema["$defs"].keys()
    backends = schema["$defs"]["TaskConfiguration"]["properties"]["backends"]["anyOf"][0]["items"]["enum"]
    assert "nimbus" in backends


def test_without_its_row_there_is_no_such_backend() -> None:
    with pytest.raises(Invalid, match="isn't possible here"):
        parse(TASK)
