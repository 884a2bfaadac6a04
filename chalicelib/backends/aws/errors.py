"""Translates AWS's error codes into our errors. The text names the action that failed, and where.

A code that isn't in the table has an unknown outcome, and the text contains it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure, cleaned
from chalicelib.errors import BackendError, InsufficientCapacity, InvalidCredentials, QuotaExceeded, Transient, Unfit

_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)
_DENIED = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)")
_VALUES = re.compile(r", value: .*?(?=, (?:type|valid)|$)", re.MULTILINE)  # they may be secrets: user data has a token

# Why AWS ended a machine before it ran.
LATE: Mapping[str, type[BackendError]] = {
    "Server.InsufficientInstanceCapacity": InsufficientCapacity,
    "Client.VolumeLimitExceeded": QuotaExceeded,
    "Client.InternalError": Unfit,  # of its disk: mostly a key that the account may not use
    "Client.InvalidSnapshot.NotFound": Unfit,
}
TABLE = ErrorTable.read("AWS", "aws/errors.toml")

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
