"""Where things are: a project of the account's tenant for each region, and a subnet in each project.

What is created goes to the project that the settings choose for its region. What exists is looked for in all projects
that the account sees, because the settings may have been others before.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.errors import MissingPermission, Unfit

log = logging.getLogger(__name__)

DEFAULT = "default"  # how the names of the projects and subnets begin that Nebius makes by itself
OURS = "dstack-install"  # a label
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Subnet:
    id: str
    network: str


class Places:
    def __init__(self, client: NebiusClient, config: NebiusBackendConfig, now: Now) -> None:
        self._client, self._config = client, config
        self._tenants = LookupCache[Sequence[str]](now)
        self._visible = LookupCache[Sequence[Body]](now)
        self._subnets = LookupCache[Subnet](now)
        self._holding, self._closed = set[str](), set[str]()  # projects with something of ours, and unreadable ones

    def tenant(self) -> str:
        found = self._seen_tenants()
        if len(found) > 1:
            raise Unfit(
                f"The service account sees several tenants: {', '.join(found)}.",
                hint="Use a service account of the tenant whose machines you want.",
            )
        return found[0]

    def projects(self) -> Mapping[str, str]:
        """The id of the project for each region that is used."""
        self.tenant()
        listed, allowed = self._all(), self._config.regions
        if unknown := sorted(set(self._config.projects or ()).difference(map(_id, listed))):
            raise Unfit(f"The tenant has no project {', '.join(unknown)}.", hint="Correct `projects`.")
        regions = [region for region in self.regions() if self._usable(region)]
        if missing := sorted(set(allowed or ()).difference(regions)):
            raise Unfit(
                f"The account has no project in {', '.join(missing)}.",
                hint="Create one there, or take the region out of `regions`.",
            )
        return {region: self.project(region) for region in regions}

    def project(self, region: str) -> str:
        """What is wrong with another region doesn't matter."""
        self.tenant()
        found = self._usable(region)
        if not found:
            usable = ", ".join(each for each in self.regions() if self._usable(each))
            raise Unfit(f"The account has no project in {region}: it has some in {usable}.")
        return _id(_chosen(region, found, named=bool(self._config.projects)))

    def regions(self) -> tuple[str, ...]:
        """Where the account sees projects, whether they are used or not."""
        return tuple(sorted({_region(each) for each in self._all()}))

    def listed(self, service: str, region: str) -> list[Body]:
        """What there is in all projects of the region. One that isn't used, and in which the account may not look, is
        left out, unless something of ours was seen there: an account may see the projects of others."""
        projects = sorted(_id(each) for each in self._all() if _region(each) == region)
        if not projects:
            raise Unfit(
                f"The account sees no project in {region} any more.", hint="Let it read those that it has used."
            )
        found, used = list[Body](), set(map(_id, self._usable(region)))
        with contextlib.suppress(Unfit):  # which of them is used is a question
            used = {self.project(region)}
        for project in projects:
            try:
                here = list(self._client.listed(service, {"parent_id": project}, region=region))
            except MissingPermission as error:
                if project in used | self._holding:
                    raise
                self._leave_out(project, error)
                continue
            if any(OURS in each["metadata"].get("labels", {}) for each in here):
                self._holding.add(project)
            found += here
        return found

    def _leave_out(self, project: str, error: MissingPermission) -> None:
        if project not in self._closed:
            log.warning("what is in the project %s isn't listed, though it may be billed: %s", project, error)
        self._closed.add(project)

    def subnet(self, region: str) -> Subnet:
        return self._subnets.get(region, lambda: self._found_subnet(region))

    def forget(self) -> None:
        for cache in (self._tenants, self._visible, self._subnets):
            cache.clear()

    def _all(self) -> Sequence[Body]:
        """Projects that the account sees, of whichever tenant."""

        def ask() -> Sequence[Body]:
            parents = self._seen_tenants()
            return [
                one for each in parents for one in self._client.listed("iam.v1.ProjectService", {"parent_id": each})
            ]

        return self._visible.get("", ask)

    def _usable(self, region: str) -> list[Body]:
        """The projects of a region from which the settings let one be chosen."""
        wanted, allowed = self._config.projects, self._config.regions
        if allowed and region not in allowed:
            return []
        return [each for each in self._all() if _region(each) == region and (not wanted or _id(each) in wanted)]

    def _seen_tenants(self) -> Sequence[str]:
        return self._tenants.get("", self._found_tenants)

    def _found_tenants(self) -> Sequence[str]:
        found = sorted(_id(each) for each in self._client.listed("iam.v1.TenantService", {}))
        if not found:
            raise MissingPermission(
                "The service account sees no tenant.", hint="Add it to a group with the role `viewer` or `editor`."
            )
        return found

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


def _chosen(region: str, projects: Sequence[Body], *, named: bool) -> Body:
    """`named`: the settings name each of them."""
    preferred = [] if named else [each for each in projects if _name(each).startswith(DEFAULT)]
    found = projects if len(projects) == 1 else preferred
    if len(found) != 1:
        names = ", ".join(sorted(f"{_id(each)} ({_name(each)})" for each in projects))
        if named:
            raise Unfit(f"`projects` names several of {region}: {names}.", hint="Name one project a region.")
        raise Unfit(f"{region} has several projects: {names}.", hint="Name the one to use in `projects`.")
    return found[0]


def _id(body: Body) -> str:
    return str(body["metadata"]["id"])


def _name(body: Body) -> str:
    return str(body["metadata"].get("name", ""))


def _region(project: Body) -> str:
    return str(project.get("status", {}).get("region", ""))
