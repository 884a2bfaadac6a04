"""The route to a service: a gateway, or the server itself. It is chosen when the service is applied, and stored with
the run. Another default gateway moves no service, and another domain moves a service only when it is applied again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.domain.tenants import Project
from chalicelib.errors import Problem, Refused
from chalicelib.planning.gateways.hostnames import MODELS, url_of
from chalicelib.store import nouns
from chalicelib.store.port import Change
from chalicelib.usecases.ports import RecordPorts, RunPlanPorts
from chalicelib.usecases.services.certificates import kind_of

_FIELD, _HTTPS = "configuration.gateway", "configuration.https"


class ServiceRoute(NamedTuple):
    """A service's gateway and URL, as stored with the run."""

    gateway_id: str | None = None  # None: the server
    url: str = ""


def route_of(run: Run) -> ServiceRoute:
    return ServiceRoute(run.gateway_id, run.url)


AT_THE_SERVER = ServiceRoute()


@dataclass(frozen=True)
class FoundGateway:
    gateway: Gateway | None = None
    route: ServiceRoute = AT_THE_SERVER
    problems: tuple[Problem, ...] = ()


def find(plane: RunPlanPorts, project: Project, spec: RunSpec) -> FoundGateway:
    """The route that the spec asks for, given the project's gateways."""
    config = spec.configuration
    if not isinstance(config, ServiceConfiguration):
        return FoundGateway()
    found = _chosen(plane, project, config)
    if isinstance(found, Problem):
        return FoundGateway(problems=(found,))
    if found is None:
        return FoundGateway(problems=tuple(_at_the_server(config)))
    problems = tuple(_obstacles(found, spec.run_name or "", config))
    if problems:
        return FoundGateway(found, problems=problems)
    url = url_of(found, spec.run_name or "", https=_https(found, config))
    return FoundGateway(found, ServiceRoute(found.id, url))


def held(plane: RecordPorts, found: FoundGateway) -> list[Change]:
    """A write of the unchanged gateway: a concurrent deletion sees the run, or the run isn't written."""
    if found.gateway is None:
        return []
    now = nouns.find(plane.store, Gateway, keys.gateway(found.gateway.id))
    if now is None or now.ending:
        raise Refused(f"The gateway {found.gateway.name} is being deleted.", hint="Name another one, or try again.")
    return [nouns.put(now)]


def _chosen(plane: RunPlanPorts, project: Project, config: ServiceConfiguration) -> Gateway | Problem | None:
    wanted = config.gateway
    if wanted is False:
        return None
    if wanted is None or wanted is True:
        default = plane.read.default_gateway(project.id)
        if default is None and wanted:
            text = f"project {project.name} has no default gateway"
            return Problem(text, path=_FIELD, hint=_alternatives(plane, project), code="missing")
        return default
    if wanted.project not in (None, project.name):
        text = f"{wanted} is a gateway of another project, and those can't be shared yet"
        return Problem(text, path=_FIELD, hint=_alternatives(plane, project), code="unsupported")
    named = next((each for each in plane.read.gateways(project.id) if each.name == wanted.name), None)
    if named is None:
        text = f"there is no gateway {wanted.name} in project {project.name}"
        return Problem(text, path=_FIELD, hint=_alternatives(plane, project), code="missing")
    return named


def _alternatives(plane: RunPlanPorts, project: Project) -> str:
    """What the user can write instead."""
    names = [each.name for each in plane.read.gateways(project.id) if not each.ending]
    if names:
        return f"write `gateway: {names[0]}`" + (f", or one of {', '.join(names[1:])}" if names[1:] else "")
    return "apply a configuration with `type: gateway` first" + (
        ", or write `gateway: false`: the server itself is the door then" if plane.serves else ""
    )


def _at_the_server(config: ServiceConfiguration) -> Iterator[Problem]:
    if config.https is False:
        text, hint = "only gateways can do without", "remove it: a service is reached as its server is"
        yield Problem(text, path=_HTTPS, hint=hint, code="unsupported")


def _obstacles(gateway: Gateway, run_name: str, config: ServiceConfiguration) -> Iterator[Problem]:
    if gateway.ending:
        hint = "name another one, or wait and create it again"
        yield Problem(f"gateway {gateway.name} is being deleted", path=_FIELD, hint=hint, code="exclusive")
    if not gateway.domain:
        text = f"gateway {gateway.name} has no domain, so a service has no name there"
        hint = f"give it one: dstack gateway update {gateway.name} --domain example.com"
        yield Problem(text, path=_FIELD, hint=hint, code="missing")
    if run_name == MODELS:
        text = f"at a gateway, the host `{MODELS}.…` has the models of the whole project"
        yield Problem(text, path="configuration.name", hint="choose another name", code="invalid-name")
    if config.https is True and gateway.https_port is None:
        text, hint = (
            f"gateway {gateway.name} serves no https",
            "write `https: auto`, or create it again with a `certificate`",
        )
        yield Problem(text, path=_HTTPS, hint=hint, code="exclusive")


def _https(gateway: Gateway, config: ServiceConfiguration) -> bool:
    """Does the service use https? If it doesn't say, it follows the gateway."""
    if isinstance(config.https, bool):
        return config.https
    return bool(kind_of(gateway))
