"""The AWS account that a command works in, and AWS's errors with a hint on what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from chalicelib.errors import DstackError, Invalid, Refused

STAGE = re.compile(r"[a-z][a-z0-9-]{0,20}")
DATA, SPENDING = "-data", "-spending"  # end the names of a stage's other stacks
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
_UNKNOWN = ("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure")
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")


@dataclass(frozen=True)
class AwsAccount:
    id: str
    region: str
    arn: str  # of the user or role that deploys

    @property
    def partition(self) -> str:
        return self.arn.split(":")[1]


def checked(stage: str) -> str:
    """Several stages may share an account. Only this name tells them apart, and every resource carries it."""
    if not STAGE.fullmatch(stage):
        raise Invalid(
            f"{stage!r} can't name a stage: use up to 21 lower-case letters, digits and dashes, a letter first.",
            hint="Choose one as in `make deploy STAGE=dev`.",
        )
    for suffix in (DATA, SPENDING):
        if stage.endswith(suffix):
            other = stage.removesuffix(suffix)
            raise Invalid(
                f"{stage!r} can't name a stage: the stack dstack-{stage} is one of the stage {other!r}.",
                hint=f"Choose a name that doesn't end with {suffix}.",
            )
    return stage


def client(service: str) -> Any:
    import boto3

    return boto3.client(service)


def here(region: str | None = None, profile: str | None = None) -> AwsAccount:
    """Puts region and credentials into the environment, where boto3 and PynamoDB look for them."""
    if profile:
        os.environ["AWS_PROFILE"] = profile
    if region:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
    import boto3

    found = boto3.session.Session().region_name
    if not found:
        raise Invalid(
            "No region is set.", hint="Set one as in `make deploy STAGE=dev REGION=eu-west-1`, or in AWS_REGION."
        )
    os.environ.setdefault("AWS_DEFAULT_REGION", found)
    with explained("find out whose credentials these are"):
        caller = client("sts").get_caller_identity()
    return AwsAccount(caller["Account"], found, caller["Arn"])


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turns an exception of the SDK into an error with a hint."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _refused(doing, error.response["Error"]) from error
    except BotoCoreError as error:
        raise _unreached(doing, error) from error


def _refused(doing: str, failure: dict[str, str]) -> DstackError:
    code, message = failure.get("Code", ""), failure.get("Message", "")
    if code in _EXPIRED:
        return Refused("The AWS credentials have expired.", hint="Log in again, for instance with `aws sso login`.")
    if code in _UNKNOWN:
        return Refused(
            f"AWS doesn't know these credentials ({code}).",
            hint="Check AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    hint = "`make policy STAGE=…` writes the policies that deploying needs." if code in _DENIED else ""
    return Refused(f"AWS refused to {doing}: {message} ({code})", hint=hint)


def _unreached(doing: str, error: Exception) -> DstackError:
    kind = type(error).__name__
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return Refused(
            "There are no AWS credentials.",
            hint="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`.",
        )
    if kind in ("ProfileNotFound", "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"):
        return Refused(f"The AWS credentials can't be used: {error}", hint="Check AWS_PROFILE, or log in again.")
    return Refused(f"Couldn't {doing}: {error}", hint="Check the connection and the region, then run it again.")
