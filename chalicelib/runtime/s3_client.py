"""A client of S3 for what a server on one machine keeps there. boto3 is an extra, which may be missing."""

from __future__ import annotations

from typing import Any

from chalicelib.errors import Refused
from chalicelib.runtime.settings import emulator


def s3_client(what: str, patience: float = 60.0) -> Any:
    """boto3's client. `what`: begins the refusal if there is no boto3, as in "Backups". `patience`: seconds for which
    a request waits for an answer."""
    try:
        import boto3  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise Refused(
            f"{what} in S3 can't be reached without boto3, which isn't installed here.",
            hint="Install dstack-serverless with its extra `aws`.",
        ) from error
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    try:
        waits = Config(connect_timeout=min(patience, 60), read_timeout=patience)
        return boto3.client("s3", endpoint_url=emulator(), config=waits)
    except BotoCoreError as error:
        raise Refused(f"S3 can't be asked: {error}.", hint="Check AWS_PROFILE and AWS_REGION.") from error
