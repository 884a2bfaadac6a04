"""Translates AWS's error codes into our errors. The text names the action that failed, and where.

A code that isn't in the table has an unknown outcome, and the text contains it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure, cleaned
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InsufficientCapacity,
    InUse,
    InvalidCredentials,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)

_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)
_DENIED = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)")
_VALUES = re.compile(r", value: .*?(?=, (?:type|valid)|$)", re.MULTILINE)  # they may be secrets: user data has a token

_CODES: tuple[tuple[type[BackendError], str], ...] = (
    (
        InsufficientCapacity,
        """InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity InsufficientAddressCapacity
        InsufficientReservedInstanceCapacity InsufficientVolumeCapacity UnfulfillableCapacity SpotMaxPriceTooLow
        ReservationCapacityExceeded IdempotentInstanceTerminated""",
    ),
    (
        QuotaExceeded,
        """VcpuLimitExceeded InstanceLimitExceeded MaxSpotInstanceCountExceeded AddressLimitExceeded
        NetworkInterfaceLimitExceeded VolumeLimitExceeded MaxIOPSLimitExceeded PlacementGroupLimitExceeded
        SecurityGroupLimitExceeded RulesPerSecurityGroupLimitExceeded ResourceLimitExceeded
        SecurityGroupsPerInstanceLimitExceeded""",
    ),
    (
        InvalidCredentials,
        """AuthFailure InvalidClientTokenId SignatureDoesNotMatch MissingAuthenticationToken RequestExpired
        ExpiredToken ExpiredTokenException UnrecognizedClientException InvalidAccessKeyId IncompleteSignature""",
    ),
    (
        MissingPermission,
        """UnauthorizedOperation AccessDenied AccessDeniedException OptInRequired Blocked TagPolicyViolation
        AuthFailure.ServiceLinkedRoleCreationNotPermitted NotAuthorized""",
    ),
    (
        Throttled,
        """RequestLimitExceeded Throttling ThrottlingException ThrottledException TooManyRequestsException
        EC2ThrottledException ResourceCountExceeded BandwidthLimitExceeded SlowDown""",
    ),
    (
        Gone,
        """InvalidInstanceID.NotFound InvalidInstanceID.Malformed InvalidInstanceID InvalidVolume.NotFound
        InvalidVolumeID.Malformed InvalidVolume.Malformed InvalidAllocationID.NotFound InvalidAddress.NotFound
        InvalidAddressID.NotFound InvalidPlacementGroup.Unknown InvalidGroup.NotFound InvalidNetworkInterfaceID.NotFound
        InvalidNetworkInterface.NotFound""",
    ),
    (
        AlreadyThere,
        """IdempotentParameterMismatch InvalidGroup.Duplicate InvalidPlacementGroup.Duplicate
        InvalidPermission.Duplicate Resource.AlreadyAssociated""",
    ),
    (
        InUse,
        """VolumeInUse InvalidPlacementGroup.InUse DependencyViolation InvalidIPAddress.InUse
        InvalidNetworkInterface.InUse InvalidParameterValue.InUse""",
    ),
    (
        NotYet,
        """IncorrectState IncorrectInstanceState InvalidState InvalidCapacityReservationState.PendingActivation
        PendingVerification""",
    ),
    (
        Unfit,
        """Unsupported UnsupportedOperation UnsupportedInstanceAttribute VolumeTypeNotAvailableInZone
        InsufficientFreeAddressesInSubnet InvalidParameterValue InvalidParameterCombination InvalidParameter
        MissingParameter UnknownParameter InvalidInstanceType InvalidInstanceType.NotFound InvalidBlockDeviceMapping
        InvalidVolume.ZoneMismatch AttachmentLimitExceeded TagLimitExceeded InvalidAMIID.NotFound
        InvalidAMIID.Unavailable InvalidAMIID.Malformed InvalidSubnetID.NotFound InvalidSubnet InvalidVpcID.NotFound
        InvalidKeyPair.NotFound VPCIdNotSpecified DefaultVpcDoesNotExist InvalidUserData.Malformed
        InvalidCapacityReservationId.NotFound InvalidCapacityReservationId.Malformed InvalidZone.NotFound
        OperationNotPermitted ParameterNotFound NoSuchEntity InvalidTagKey.Malformed InvalidAvailabilityZone
        TooManyTags InvalidID ValidationError""",
    ),
    (
        Transient,
        """InternalError InternalFailure ServerInternal Unavailable ServiceUnavailable ConcurrentTagAccess
        RequestTimeout""",
    ),
)
# Why AWS ended a machine before it ran.
LATE: Mapping[str, type[BackendError]] = {
    "Server.InsufficientInstanceCapacity": InsufficientCapacity,
    "Client.VolumeLimitExceeded": QuotaExceeded,
    "Client.InternalError": Unfit,  # of its disk: mostly a key that the account may not use
    "Client.InvalidSnapshot.NotFound": Unfit,
}
TABLE = ErrorTable("AWS", _CODES, statuses={})

# Of a launch: another zone may have what this one refused.
_ELSEWHERE = frozenset({"Unsupported", "InsufficientFreeAddressesInSubnet", "InvalidAvailabilityZone"})


def translated(error: Exception, action: str, region: str) -> BackendError:
    """Our error for an exception of the SDK. `action`: as IAM names it, `ec2:RunInstances`."""
    from botocore import exceptions as sdk

    if isinstance(error, sdk.ClientError):
        return _answered(error.response, action, region)
    text = cleaned(str(error))
    if isinstance(error, sdk.ParamValidationError):
        return Unfit(f"{action} in {region} can't be requested like this: {cleaned(_VALUES.sub('', str(error)))}")
    logins = (
        sdk.NoCredentialsError,
        sdk.PartialCredentialsError,
        sdk.CredentialRetrievalError,
        sdk.ProfileNotFound,
        sdk.TokenRetrievalError,
        sdk.UnauthorizedSSOTokenError,
        sdk.SSOTokenLoadError,
    )
    if isinstance(error, logins):
        return InvalidCredentials(f"There are no credentials for AWS: {text}")
    return Transient(f"{action} in {region} has no answer: {text}")


def _answered(response: Mapping[str, Any], action: str, region: str) -> BackendError:
    found = response.get("Error", {})
    text = _ENCODED.sub("", str(found.get("Message", "")))
    denied = _DENIED.search(text)  # of a launch, the tags or the role may be what isn't allowed
    failure = ProviderFailure(str(found.get("Code", "")), text)
    return TABLE.error(failure, denied[1] if denied else action, region)


def elsewhere(error: BackendError) -> bool:
    """Did the launch fail only for this zone?"""
    return isinstance(error, InsufficientCapacity) or error.provider_code in _ELSEWHERE
