"""The machines' network: a region's VPC, one subnet per zone, and the security group for traffic inside a cluster.

Nothing connects to a machine from outside, so the group opens no port. It allows traffic between its members, and all
outgoing traffic. EFA needs the rule for members in both directions. A gateway's machine is also in another group, which
opens its ports to the world. Groups are free and shared by an installation's machines in a VPC, so they aren't deleted.
A configured group is used instead, and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.aws.client import PAGE, Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.places import Body, filters, tagged, usual_zone
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.errors import AlreadyThere, Gone, MissingPermission, Transient, Unfit

SHOWS: Micros = MINUTE  # after which AWS knows a group, and the tags that policies ask for, wherever it is asked
_MEMBERS = "dstack: machines of one installation reach each other"
_DOOR = "dstack: everybody reaches the gateways"


@dataclass(frozen=True)
class Network:
    """A region's VPC, and a subnet in each zone that machines can be in."""

    vpc: str
    subnets: Mapping[str, str]
    group: str = ""  # the security group that was given for it


class Networks:
    def __init__(self, clients: Clients, config: AWSBackendConfig, now: Now) -> None:
        self._clients, self._config = clients, config
        self._networks: LookupCache[Network] = LookupCache(now)
        self._groups: LookupCache[str] = LookupCache(now)
        self._now = now
        self._created: dict[str, Micros] = {}  # groups, and when

    def of(self, region: str) -> Network:
        """Raises Unfit if the region has no VPC, or none with a subnet that fits."""
        return self._networks.get(region, lambda: self._find(region))

    def group(self, region: str, install: str, tags: Mapping[str, str]) -> str:
        """The id of the configured security group, or of the installation's own, which is created if it doesn't
        exist."""
        network = self.of(region)
        if network.group:
            return network.group
        vpc = network.vpc
        return self._groups.get(f"{region} {vpc} {install}", lambda: self._members(region, vpc, install, tags))

    def door(self, region: str, install: str, tags: Mapping[str, str], ports: Sequence[int]) -> str:
        """The id of the group that opens these ports of a gateway's machine. Each set of ports has its own group."""
        vpc, name = self.of(region).vpc, f"dstack-{install}-gateway-{'-'.join(map(str, ports))}"
        return self._groups.get(f"{region} {vpc} {name}", lambda: self._door(region, vpc, install, name, tags, ports))

    def forget(self) -> None:
        """Drops what is cached, because it is out of date."""
        self._networks.clear()
        self._groups.clear()

    # --- subnets -----------------------------------------------------------------------------------------------------

    def _find(self, region: str) -> Network:
        vpc = self._vpc(region)
        inside = filters(vpc_id=vpc)
        tables = list(
            self._clients.pages("ec2", region, "describe_route_tables", "RouteTables", Filters=inside, MaxResults=100)
        )
        found = self._clients.pages(
            "ec2",
            region,
            "describe_subnets",
            "Subnets",
            Filters=[*inside, *filters(state="available")],
            MaxResults=PAGE,
        )
        fits = _is_public if self._config.public_ips else is_private
        subnets: dict[str, str] = {}
        for subnet in sorted(found, key=lambda each: str(each["SubnetId"])):  # so that a repeated launch names the same
            zone = subnet["AvailabilityZone"]
            if usual_zone(zone) and fits(table_of(subnet["SubnetId"], tables)):
                subnets.setdefault(zone, subnet["SubnetId"])
        if not subnets:
            raise Unfit(_no_subnet(vpc, region, public=self._config.public_ips))
        return Network(vpc, subnets, self._given_group(region, vpc))

    def _vpc(self, region: str) -> str:
        config = self._config
        if given := (config.vpc_ids or {}).get(region):
            chosen, description = filters(vpc_id=given), f"the VPC {given} that `vpc_ids` names"
        elif config.vpc_name:
            chosen, description = [{"Name": "tag:Name", "Values": [config.vpc_name]}], f"a VPC named {config.vpc_name}"
        elif config.default_vpcs:
            chosen, description = filters(is_default="true"), "a default VPC"
        else:
            raise Unfit(
                f"No VPC is set for {region}.", hint="Name one in `vpc_ids`, or take the region out of `regions`."
            )
        vpcs = self._clients.call("ec2", region, "describe_vpcs", Filters=chosen)["Vpcs"]
        if not vpcs:
            raise Unfit(
                f"{region} doesn't have {description}.",
                hint="Create it, name another, or take the region out of `regions`.",
            )
        if len(vpcs) > 1:
            raise Unfit(f"{region} has several VPCs named {config.vpc_name}.", hint="Name them by id in `vpc_ids`.")
        return str(vpcs[0]["VpcId"])

    def _given_group(self, region: str, vpc: str) -> str:
        given = (self._config.security_group_ids or {}).get(region, "")
        if given and self._find_group(region, vpc, group_id=given) is None:
            hint = "Correct `security_group_ids`, or the VPC."
            raise Unfit(f"{vpc} in {region} has no security group {given}.", hint=hint)
        return given

    # --- the security group ------------------------------------------------------------------------------------------

    def _members(self, region: str, vpc: str, install: str, tags: Mapping[str, str]) -> str:
        group = self._group(region, vpc, install, f"dstack-{install}", _MEMBERS, tags)
        self._open(region, group)
        return str(group["GroupId"])

    def _door(
        self, region: str, vpc: str, install: str, name: str, tags: Mapping[str, str], ports: Sequence[int]
    ) -> str:
        group = self._group(region, vpc, install, name, _DOOR, tags)
        there = {rule.get("FromPort") for rule in group.get("IpPermissions", ())}
        for port in [port for port in ports if port not in there]:
            everybody = {"IpRanges": [{"CidrIp": "0.0.0.0/0"}], "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}
            rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **everybody}
            self._authorize(region, "authorize_security_group_ingress", group, [rule])
        return str(group["GroupId"])

    def _group(self, region: str, vpc: str, install: str, name: str, why: str, tags: Mapping[str, str]) -> Body:
        group = self._find_group(region, vpc, group_name=name)
        if group is None:
            try:
                created = self._clients.call(
                    "ec2",
                    region,
                    "create_security_group",
                    GroupName=name,
                    Description=why,
                    VpcId=vpc,
                    TagSpecifications=tagged(["security-group"], {**tags, "Name": name, "dstack-install": install}),
                )
                group = {"GroupId": created["GroupId"]}
                self._created[created["GroupId"]] = self._now()
            except AlreadyThere as error:
                group = self._find_group(region, vpc, group_name=name)
                if group is None:
                    raise Transient(f"The security group {name} of {region} is being created.") from error
        return group

    def _find_group(self, region: str, vpc: str, **known: str) -> Body | None:
        found = self._clients.call("ec2", region, "describe_security_groups", Filters=filters(vpc_id=vpc, **known))[
            "SecurityGroups"
        ]
        return next(iter(found), None)

    def _open(self, region: str, group: Body) -> None:
        """Allows traffic between the group's members, in both directions. Existing rules stay as they are."""
        itself = group["GroupId"]
        rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": itself}]}]
        for rules, operation in (
            ("IpPermissions", "authorize_security_group_ingress"),
            ("IpPermissionsEgress", "authorize_security_group_egress"),
        ):
            if not any(_of_members(each, itself) for each in group.get(rules, ())):
                self._authorize(region, operation, group, rule)

    def _authorize(self, region: str, operation: str, group: Body, rules: list[dict[str, Any]]) -> None:
        try:
            self._clients.call("ec2", region, operation, GroupId=group["GroupId"], IpPermissions=rules)
        except AlreadyThere as error:
            if error.provider_code != "InvalidPermission.Duplicate":
                raise
        except (Gone, MissingPermission) as error:
            created_at = self._created.get(group["GroupId"])
            if created_at is None or self._now() - created_at >= SHOWS:
                raise
            text = f"AWS doesn't know {group['GroupId']} in {region} everywhere yet, or not its tags: {error}"
            raise Transient(text) from error


def _of_members(rule: Mapping[str, Any], group: str) -> bool:
    return rule.get("IpProtocol") == "-1" and any(
        pair.get("GroupId") == group for pair in rule.get("UserIdGroupPairs", ())
    )


def table_of(subnet: str, tables: list[dict[str, Any]]) -> Body:
    """The subnet's own route table, or else the VPC's main one."""
    main: Body = {}
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                main = table
    return main


def _ways_out(table: Body) -> list[Body]:
    return [
        route
        for route in table.get("Routes", ())
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State") != "blackhole"
    ]


def _is_public(table: Body) -> bool:
    return any(str(route.get("GatewayId", "")).startswith("igw-") for route in _ways_out(table))


def is_private(table: Body) -> bool:
    """Is it private, with a route out that isn't the internet gateway? Without a route, the agent could never
    report."""
    return bool(_ways_out(table)) and not _is_public(table)


def _no_subnet(vpc: str, region: str, *, public: bool) -> str:
    if public:
        return (
            f"{vpc} in {region} has no public subnet: none has a route for 0.0.0.0/0 to an internet gateway. "
            "Add one, or set `public_ips: false` if machines should reach the internet through a NAT gateway."
        )
    return (
        f"{vpc} in {region} has no private subnet with a route to the internet: none has one for 0.0.0.0/0 through a "
        "NAT gateway, a transit gateway or a peering. Add one, or set `public_ips: true`."
    )
