"""A client of S3 for what a server on one machine keeps there. boto3 is an extra, which may be missing."""

from __future__ import annotations

from typing import Any

from chalicelib.errors import Refused
from chalicelib.runtime.settings import emulator


def s3_client(what: str, patience: float | None = None) -> Any:
    """boto3's client. `what`: begins the refusal if there is no boto3, as in "Backups". `patience`: seconds for which
    a request waits for an answer, which is then not repeated; by default, boto3 waits and repeats."""
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
        once = Config(connect_timeout=patience, read_timeout=patience, retries={"total_max_attempts": 1})
        return boto3.client("s3", endpoint_url=emulator(), config=None if patience is None else once)
    except BotoCoreError as error:
        raise Refused(f"S3 can't be asked: {error}.", hint="Check AWS_PROFILE and AWS_REGION.") from error
