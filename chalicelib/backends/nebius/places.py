"""Where things are: a project of the account's tenant for each region, and a subnet in each project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.domain.instants import Micros
from chalicelib.errors import MissingPermission, Unfit

DEFAULT = "default"  # how the names of the projects and subnets begin that Nebius makes by itself
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Subnet:
    id: str
    network: str


class Places:
    def __init__(self, client: NebiusClient, config: NebiusBackendConfig, now: Callable[[], Micros]) -> None:
        self._client, self._config = client, config
        self._tenants = LookupCache[str](now)
        self._visible = LookupCache[Sequence[Body]](now)
        self._projects = LookupCache[Mapping[str, str]](now)
        self._subnets = LookupCache[Subnet](now)

    def tenant(self) -> str:
        return self._tenants.get("", self._found_tenant)

    def projects(self) -> Mapping[str, str]:
        """The id of the project for each region that is used."""
        return self._projects.get("", self._found_projects)

    def project(self, region: str) -> str:
        found = self.projects().get(region)
        if found is None:
            raise Unfit(f"The account has no project in {region}: it has some in {', '.join(sorted(self.projects()))}.")
        return found

    def listed(self, service: str, region: str) -> list[Body]:
        """What there is in all projects of the region: another one may have been used before. One in which the account
        may not even look has nothing of ours."""
        used, found = self.project(region), list[Body]()
        for project in sorted(_id(each) for each in self._all() if _region(each) == region):
            try:
                found += self._client.listed(service, {"parent_id": project}, region=region)
            except MissingPermission:
                if project == used:
                    raise
        return found

    def subnet(self, region: str) -> Subnet:
        return self._subnets.get(region, lambda: self._found_subnet(region))

    def forget(self) -> None:
        for cache in (self._tenants, self._visible, self._projects, self._subnets):
            cache.clear()

    def _all(self) -> Sequence[Body]:
        parent = {"parent_id": self.tenant()}
        return self._visible.get("", lambda: list(self._client.listed("iam.v1.ProjectService", parent)))

    def _found_tenant(self) -> str:
        found = sorted(_id(each) for each in self._client.listed("iam.v1.TenantService", {}))
        if not found:
            raise MissingPermission(
                "The service account sees no tenant.", hint="Add it to a group with the role `viewer` or `editor`."
            )
        if len(found) > 1:
            raise Unfit(
                f"The service account sees several tenants: {', '.join(found)}.",
                hint="Use a service account of the tenant whose machines you want.",
            )
        return found[0]

    def _found_projects(self) -> Mapping[str, str]:
        listed = self._all()
        wanted, allowed = self._config.projects, self._config.regions
        if wanted and (unknown := sorted(set(wanted).difference(map(_id, listed)))):
            raise Unfit(f"The tenant has no project {', '.join(unknown)}.", hint="Correct `projects`.")
        regions: dict[str, list[Body]] = {}
        for each in listed:
            region = _region(each)
            if (_id(each) in wanted if wanted else True) and (not allowed or region in allowed):
                regions.setdefault(region, []).append(each)
        if missing := sorted(set(allowed or ()).difference(regions)):
            raise Unfit(
                f"The account has no project in {', '.join(missing)}.",
                hint="Create one there, or take the region out of `regions`.",
            )
        return {region: _id(_chosen(region, found)) for region, found in sorted(regions.items())}

    def _found_subnet(self, region: str) -> Subnet:
        listed = list(self._client.listed("vpc.v1.SubnetService", {"parent_id": self.project(region)}, region=region))
        preferred = [each for each in listed if _name(each).startswith(f"{DEFAULT}-subnet")]
        found = sorted(preferred or listed, key=_name)
        if not found or (not preferred and len(found) > 1):
            which = f"several: {', '.join(map(_name, found))}" if found else "none"
            raise Unfit(
                f"The project {self.project(region)} in {region} needs a subnet whose name begins with "
                f"`{DEFAULT}-subnet`, or a single one; it has {which}.",
                hint="Create it in the project's network, or name another project in `projects`.",
            )
        return Subnet(_id(found[0]), str(found[0]["spec"]["network_id"]))


def _chosen(region: str, projects: Sequence[Body]) -> Body:
    preferred = [each for each in projects if _name(each).startswith(DEFAULT)]
    found = projects if len(projects) == 1 else preferred
    if len(found) != 1:
        names = ", ".join(sorted(f"{_id(each)} ({_name(each)})" for each in projects))
        raise Unfit(f"{region} has several projects: {names}.", hint="Name the one to use in `projects`.")
    return found[0]


def _id(body: Body) -> str:
    return str(body["metadata"]["id"])


def _name(body: Body) -> str:
    return str(body["metadata"].get("name", ""))


def _region(project: Body) -> str:
    return str(project.get("status", {}).get("region", ""))
