"""The IAM actions that this backend's calls need, on which resources, and how to test whether they are allowed.

Policies are generated from this table. What we create must have our tag from the start, and only resources with the tag
can be changed or deleted; reading is allowed everywhere. `check` uses calls without an effect: a read, a dry run that
would create something with the tag, or a dry run that would delete something with the tag. While nothing has the tag,
deleting can't be tested, because AWS treats what doesn't exist as untagged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.owner import ANY, OFFERED

OURS: Mapping[str, Any] = {"StringLike": {"aws:ResourceTag/dstack-install": ANY}}
THEIRS: Mapping[str, Any] = {"StringLike": {f"aws:ResourceTag/{OFFERED}": "*"}}  # which isn't there on other disks
MARKED: Mapping[str, Any] = {"StringLike": {"aws:RequestTag/dstack-install": ANY}}  # when it is created
PASSED = "dstack-machine"  # begins the name, or the path, of roles that machines may be given
CREATED = (
    *("elastic-ip", "instance", "network-interface", "placement-group", "security-group"),
    *("spot-instances-request", "volume"),
)
CREATIONS = ("RunInstances", "CreateVolume", "CreateSecurityGroup", "CreatePlacementGroup", "AllocateAddress")


@dataclass(frozen=True)
class Permission:
    """A statement of a policy. `resources` are the tails of ARNs, without region and account: `ec2:instance/*`."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    condition: Mapping[str, Any] = field(default_factory=dict)


PERMISSIONS: tuple[Permission, ...] = (
    Permission("Account", ("sts:GetCallerIdentity",)),
    Permission(
        "Catalog",
        (
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeSpotPriceHistory",
            "servicequotas:ListServiceQuotas",
        ),
    ),
    Permission("Prices", ("pricing:GetProducts",)),  # or prices from a file
    # What there is of ours: all that a sweep reads.
    Permission(
        "Listing",
        (
            "ec2:DescribeAddresses",
            "ec2:DescribeInstances",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribePlacementGroups",
            "ec2:DescribeVolumes",
        ),
    ),
    # Where something can be launched, and with what; and what becomes of a spot machine.
    Permission(
        "Placing",
        (
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeRegions",
            "ec2:DescribeRouteTables",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSpotInstanceRequests",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcs",
        ),
    ),
    Permission("Images", ("ssm:GetParameter",), ("ssm:parameter/aws/service/deeplearning/*",)),
    Permission(
        "Launch",
        ("ec2:RunInstances",),
        ("ec2:instance/*", "ec2:volume/*", "ec2:network-interface/*", "ec2:spot-instances-request/*"),
        MARKED,
    ),
    Permission(
        "LaunchInto",
        ("ec2:RunInstances",),
        (
            "ec2:image/*",
            "ec2:subnet/*",
            "ec2:security-group/*",
            "ec2:placement-group/*",
            "ec2:capacity-reservation/*",
        ),
    ),
    Permission(
        "Create",
        ("ec2:AllocateAddress", "ec2:CreatePlacementGroup", "ec2:CreateSecurityGroup", "ec2:CreateVolume"),
        ("ec2:elastic-ip/*", "ec2:placement-group/*", "ec2:security-group/*", "ec2:volume/*"),
        MARKED,
    ),
    Permission("CreateInto", ("ec2:CreateSecurityGroup",), ("ec2:vpc/*",)),
    Permission(
        "Tag",
        ("ec2:CreateTags",),
        tuple(f"ec2:{kind}/*" for kind in CREATED),
        {"StringEquals": {"ec2:CreateAction": list(CREATIONS)}},
    ),
    Permission(
        "Change",
        (
            "ec2:AssociateAddress",
            "ec2:AttachVolume",
            "ec2:AuthorizeSecurityGroupEgress",
            "ec2:AuthorizeSecurityGroupIngress",
            "ec2:DetachVolume",
        ),
        (
            "ec2:elastic-ip/*",
            "ec2:instance/*",
            "ec2:network-interface/*",
            "ec2:security-group/*",
            "ec2:volume/*",
        ),
        OURS,
    ),
    Permission(
        "End",
        (
            "ec2:DeleteNetworkInterface",
            "ec2:DeletePlacementGroup",
            "ec2:DeleteVolume",
            "ec2:DisassociateAddress",
            "ec2:ReleaseAddress",
            "ec2:TerminateInstances",
        ),
        (
            "ec2:elastic-ip/*",
            "ec2:instance/*",
            "ec2:network-interface/*",
            "ec2:placement-group/*",
            "ec2:volume/*",
        ),
        OURS,
    ),
    # A volume that somebody else created can be registered, if they offer it, and is then attached to our machines.
    Permission("AttachForeign", ("ec2:AttachVolume", "ec2:DetachVolume"), ("ec2:volume/*",), THEIRS),
    Permission("Profile", ("iam:GetInstanceProfile",), ("iam:instance-profile/*",)),
    # A machine's jobs have what its role may do. Whoever configures a backend can't hand out any role of the account,
    # only one that was named, or put under a path, for this: IAM is no reliable judge of a passed role's tags.
    Permission(
        "PassRole",
        ("iam:PassRole",),
        (f"iam:role/{PASSED}*",),
        {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},  # of each partition
    ),
    Permission(
        "Spot",
        ("iam:CreateServiceLinkedRole",),
        ("iam:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",),
        {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
    ),
)


def actions() -> tuple[str, ...]:
    """All actions, in alphabetical order."""
    return tuple(sorted({action for each in PERMISSIONS for action in each.actions}))


@dataclass(frozen=True)
class PermissionProbe:
    """A call without an effect that shows whether it is allowed. `creates`: what it would create without the dry
    run."""

    operation: str
    params: Mapping[str, Any] = field(default_factory=dict)
    creates: str = ""


@dataclass(frozen=True)
class OwnedListing:
    """A call that lists what we own of a kind, where in its answer that is, and the fields that name it."""

    operation: str
    key: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class ChangeProbe:
    """A call that changes or ends something of ours. `params` are made of the ids that it needs, by field."""

    operation: str
    ids: tuple[str, ...]
    params: Callable[..., Mapping[str, Any]]


OWNED = (
    OwnedListing("describe_instances", "Reservations", ("InstanceId",)),
    OwnedListing("describe_volumes", "Volumes", ("VolumeId",)),
    OwnedListing("describe_addresses", "Addresses", ("AllocationId", "AssociationId")),
    OwnedListing("describe_network_interfaces", "NetworkInterfaces", ("NetworkInterfaceId",)),
    OwnedListing("describe_placement_groups", "PlacementGroups", ("GroupName",)),
    OwnedListing("describe_security_groups", "SecurityGroups", ("GroupId",)),
)


def _to_itself(id: str) -> Mapping[str, Any]:
    return {"GroupId": id, "IpPermissions": [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": id}]}]}


CHANGES = (
    ChangeProbe("terminate_instances", ("InstanceId",), lambda id: {"InstanceIds": [id]}),
    ChangeProbe("delete_volume", ("VolumeId",), lambda id: {"VolumeId": id}),
    ChangeProbe("detach_volume", ("VolumeId",), lambda id: {"VolumeId": id}),
    ChangeProbe(
        "attach_volume",
        ("VolumeId", "InstanceId"),
        lambda id, to: {"VolumeId": id, "InstanceId": to, "Device": "/dev/sdf"},
    ),
    ChangeProbe("release_address", ("AllocationId",), lambda id: {"AllocationId": id}),
    ChangeProbe(
        "associate_address", ("AllocationId", "InstanceId"), lambda id, to: {"AllocationId": id, "InstanceId": to}
    ),
    ChangeProbe("disassociate_address", ("AssociationId",), lambda id: {"AssociationId": id}),
    ChangeProbe("delete_network_interface", ("NetworkInterfaceId",), lambda id: {"NetworkInterfaceId": id}),
    ChangeProbe("delete_placement_group", ("GroupName",), lambda id: {"GroupName": id}),
    ChangeProbe("authorize_security_group_ingress", ("GroupId",), _to_itself),
    ChangeProbe("authorize_security_group_egress", ("GroupId",), _to_itself),
)

_GROUP = {"GroupName": "dstack-check"}


def probes(zone: str, vpc: str) -> Sequence[PermissionProbe]:
    """Of a region, but for the launch and for what is of ours."""
    few = {"MaxResults": 5}
    return (
        PermissionProbe("describe_instances", few),
        PermissionProbe("describe_volumes", few),
        PermissionProbe("describe_addresses"),
        PermissionProbe("describe_network_interfaces", few),
        PermissionProbe("describe_placement_groups"),
        PermissionProbe("describe_security_groups", few),
        PermissionProbe("describe_images", {"Owners": ["self"]}),
        PermissionProbe("describe_instance_types", few),
        PermissionProbe("describe_instance_type_offerings", few),
        PermissionProbe("describe_capacity_reservations", few),
        PermissionProbe("describe_spot_instance_requests", few),
        PermissionProbe("create_security_group", _GROUP | {"Description": "check", "VpcId": vpc}, "security-group"),
        PermissionProbe("allocate_address", {"Domain": "vpc"}, "elastic-ip"),
        PermissionProbe("create_placement_group", _GROUP | {"Strategy": "cluster"}, "placement-group"),
        PermissionProbe("create_volume", {"AvailabilityZone": zone, "Size": 1, "VolumeType": "gp3"}, "volume"),
    )
