"""What is there before anything is bought: the subscription, what the login may do in it, and its resource groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from chalicelib.domain.instants import MINUTE
from tests.backends.azure.fake.api import SUBSCRIPTION, TENANT, Part, error, path_of
from tests.backends.azure.fake.shop import LOCATIONS, ZONES
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Answer, Call
from tests.backends.fakes.server import answers

EVERYTHING = {"actions": ["*"], "notActions": []}


class Account(Part):
    subscription_state = "Enabled"
    sees = True  # does the login see the subscription?
    rights: Any = (EVERYTHING,)
    rights_in: Mapping[str, Any] = {}  # by resource group, where they differ
    unregistered: frozenset[str] = frozenset()

    @answers("Subscriptions_list")
    def _subscriptions(self, call: Call) -> Any:
        body = {
            "id": f"/subscriptions/{SUBSCRIPTION}",
            "subscriptionId": SUBSCRIPTION,
            "displayName": "research",
            "tenantId": TENANT,
            "state": self.subscription_state,
        }
        return {"value": [body] if self.sees else []}

    @answers("Tenants_list")
    def _tenants(self, call: Call) -> Any:
        return {"value": [{"id": f"/tenants/{TENANT}", "tenantId": TENANT}]}

    @answers("Subscriptions_list_locations")
    def _locations(self, call: Call) -> Any:
        return {"value": [self._location(name) for name in LOCATIONS]}

    def _location(self, name: str) -> Any:
        zones = [{"logicalZone": number, "physicalZone": f"{name}-az{number}"} for number in ZONES[name]]
        return {"name": name, "displayName": name.title(), **({"availabilityZoneMappings": zones} if zones else {})}

    @answers("Providers_get")
    def _provider(self, call: Call) -> Any:
        name = call.path["resourceProviderNamespace"]
        state = "NotRegistered" if name in self.unregistered else "Registered"
        return {"namespace": name, "registrationState": state}

    @answers("Permissions_list_for_resource_group")
    def _permissions(self, call: Call) -> Any:
        self.in_group(path_of(call))
        return {"value": list(self.rights_in.get(call.path["resourceGroupName"], self.rights))}

    def allow(self, call: Call) -> None:
        """What changes machines, disks and networks. A resource's type alternates with its name."""
        verb = {"PUT": "/write", "DELETE": "/delete", "POST": "/action"}.get(call.operation.method)
        inside = call.operation.path.partition("/providers/")[2]
        if verb is None or not inside.startswith(("Microsoft.Compute/", "Microsoft.Network/")):
            return
        action = "/".join(part for part in inside.split("/") if not part.startswith("{")) + verb
        self._may(action, path_of(call))

    def _may(self, action: str, scope: str) -> None:
        for role in self.rights:
            given, taken = (any(_fits(each, action) for each in role[key]) for key in ("actions", "notActions"))
            if given and not taken:
                return
        text = f"The client does not have authorization to perform action '{action}' over scope '{scope}'."
        raise error(403, "AuthorizationFailed", text)

    @answers("UserAssignedIdentities_get")
    def _identity(self, call: Call) -> Any:
        made = self.found("identity", path_of(call))
        return {"id": made.facts["path"], "name": call.path["resourceName"], "location": "westeurope"}

    def with_identity(self, path: str) -> None:
        self.add("identity", path, (0, "there"))

    # --- resource groups ---------------------------------------------------------------------------------------------

    @answers("ResourceGroups_create_or_update")
    def _create_group(self, call: Call) -> Any:
        name, body = call.path["resourceGroupName"], call.body
        self._may("Microsoft.Resources/subscriptions/resourceGroups/write", path_of(call))
        self.check_tags(body)
        if not re.fullmatch(r"[-\w._()]{1,90}", name) or body["location"] not in LOCATIONS:
            raise error(400, "InvalidResourceGroup", "no such name, or no such location")
        made = self.existing("group", _group_path(name))
        if made is not None and made.state(self.now()) == "Deleting":
            raise error(409, "ResourceGroupBeingDeleted", "The resource group is being deleted.")
        if made is not None and made.facts["body"]["location"] != body["location"]:
            raise error(409, "InvalidResourceGroupLocation", "The resource group is in another location.")
        if made is None:
            made = self.with_group(name)
            made.facts["body"] = body
            return Answer(201, self._group(made))
        made.facts["body"] = body
        return self._group(made)

    def with_group(self, name: str, location: str = "westeurope") -> Resource:
        return self.add("group", _group_path(name), (0, "Succeeded"), body={"location": location})

    @answers("ResourceGroups_get")
    def _get_group(self, call: Call) -> Any:
        return self._group(self.in_group(_group_path(call.path["resourceGroupName"])))

    @answers("ResourceGroups_delete")
    def _delete_group(self, call: Call) -> Any:
        made = self.in_group(_group_path(call.path["resourceGroupName"]))
        call.query.get("forceDeletionTypes")
        prefix = made.facts["path"].lower() + "/"
        inside = [each for each in self.books.existing() if str(each.facts.get("path", "")).lower().startswith(prefix)]
        for each in (made, *inside):
            each.goes(self.now(), (0, "Deleting"), (5 * MINUTE, GONE))
        return Answer(202, None, {"location": f"https://management.azure.com{made.facts['path']}"})

    def _group(self, made: Resource) -> Any:
        path = made.facts["path"]
        return {
            "id": path,
            "name": path.rpartition("/")[2],
            "location": made.facts["body"]["location"],
            "tags": made.facts["body"].get("tags", {}),
            "properties": {"provisioningState": made.state(self.now())},
        }


def _fits(pattern: str, action: str) -> bool:
    return fnmatchcase(action.lower(), pattern.lower())


def _group_path(name: str) -> str:
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}"
