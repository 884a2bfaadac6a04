"""What AWS's error codes mean to us, and what their texts may show."""

from __future__ import annotations

import pytest
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from chalicelib import errors as ours
from chalicelib.backends.aws.errors import elsewhere, translated
from chalicelib.errors import BackendError


def answered(code: str, message: str = "what AWS said") -> BackendError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    try:
        try:
            raise sdk.ClientError(response, "RunInstances")  # type: ignore[arg-type]
        except sdk.ClientError as error:
            raise translated(error, "ec2:RunInstances", "us-east-1") from error
    except BackendError as error:
        return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", "InsufficientCapacity"),
        ("SpotMaxPriceTooLow", "InsufficientCapacity"),
        ("ReservationCapacityExceeded", "InsufficientCapacity"),
        ("IdempotentInstanceTerminated", "InsufficientCapacity"),
        ("VcpuLimitExceeded", "QuotaExceeded"),
        ("MaxSpotInstanceCountExceeded", "QuotaExceeded"),
        ("AddressLimitExceeded", "QuotaExceeded"),
        ("AuthFailure", "InvalidCredentials"),
        ("ExpiredToken", "InvalidCredentials"),
        ("UnauthorizedOperation", "MissingPermission"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "MissingPermission"),
        ("RequestLimitExceeded", "Throttled"),
        ("InvalidInstanceID.NotFound", "Gone"),
        ("InvalidPlacementGroup.Unknown", "Gone"),
        ("IdempotentParameterMismatch", "AlreadyThere"),
        ("VolumeInUse", "InUse"),
        ("InvalidPlacementGroup.InUse", "InUse"),
        ("IncorrectInstanceState", "NotYet"),
        ("Unsupported", "Unfit"),
        ("InvalidParameterCombination", "Unfit"),
        ("InvalidAMIID.NotFound", "Unfit"),
        ("InternalError", "Transient"),
        ("SomethingNew", "Transient"),
    ],
)
def test_a_code_means(code: str, kind: str) -> None:
    error = answered(code)
    assert type(error) is getattr(ours, kind)
    assert error.provider_code == code
    assert "what AWS said" in str(error)


def test_a_text_says_what_was_asked_and_where() -> None:
    assert "ec2:RunInstances in us-east-1: SomethingNew" in str(answered("SomethingNew"))
    assert "doesn't allow ec2:RunInstances in us-east-1" in str(answered("UnauthorizedOperation"))


def test_an_encoded_message_and_control_characters_are_left_out() -> None:
    message = str(
        answered("UnauthorizedOperation", "Not\x1b[31m you. Encoded authorization failure message: " + "x" * 900)
    )
    assert "Encoded" not in message and "xxx" not in message and "\x1b" not in message
    assert len(str(answered("InternalError", "y" * 5000))) < 400


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "Unsupported", "InsufficientFreeAddressesInSubnet"])
def test_another_zone_may_have_what_this_one_refused(code: str) -> None:
    assert elsewhere(answered(code))


@pytest.mark.parametrize(
    "code", ["VcpuLimitExceeded", "InvalidParameterValue", "InternalError", "UnauthorizedOperation"]
)
def test_other_refusals_are_the_same_everywhere(code: str) -> None:
    assert not elsewhere(answered(code))


def test_no_answer_is_an_unknown_outcome() -> None:
    for error in (
        sdk.ReadTimeoutError(endpoint_url="https://ec2"),
        sdk.EndpointConnectionError(endpoint_url="https://ec2"),
        ResponseParserError("not XML"),
    ):
        assert type(translated(error, "ec2:RunInstances", "us-east-1")) is ours.Transient


def test_missing_credentials_are_told_as_such() -> None:
    assert type(translated(sdk.NoCredentialsError(), "ec2:RunInstances", "us-east-1")) is ours.InvalidCredentials


def test_a_wrong_parameter_is_named_without_its_value() -> None:
    report = (
        "Invalid type for parameter UserData, value: {'s3cret': 1}, type: <class 'dict'>, valid types: <class 'str'>"
    )
    error = translated(sdk.ParamValidationError(report=report), "ec2:RunInstances", "us-east-1")
    assert type(error) is ours.Unfit
    assert "UserData" in str(error) and "s3cret" not in str(error)
