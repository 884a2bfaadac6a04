"""The lease of a pair, in a folder or in a bucket. Either way one swap of two wins, wherever they come from."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import orjson

from chalicelib.domain.leases import Lease
from chalicelib.errors import Refused
from chalicelib.runtime.pair.protocol import Found
from chalicelib.store.disk import disk_error, make_folder, sync_folder

NAME = "lease"
KEPT = 200  # leases of the past: more than are made while a client of NFS may show an old list of a folder
_OTHER = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409", "404")


class LeasePlace(Protocol):
    def check(self) -> None:
        """Raises Refused where swaps aren't what they must be: there, two servers could decide."""

    def read(self) -> Found | None: ...

    def swap(self, lease: Lease, after: str | None) -> Found | None:
        """As `protocol.Swap` says. Raises DstackError if there is no result."""


def _bytes(lease: Lease) -> bytes:
    return orjson.dumps(asdict(lease), option=orjson.OPT_APPEND_NEWLINE)


def _lease(data: bytes, where: str) -> Lease:
    try:
        return Lease(**orjson.loads(data))
    except (ValueError, TypeError) as error:
        raise Refused(
            f"{where} isn't the lease of a pair.", hint="It may be of a newer version: use the same on both machines."
        ) from error


class FolderLease:
    """A file for each lease, numbered. The next one is made by linking a complete file to its name, which the file
    system, or the server of NFS, does for one of two. No lock: those of NFS may outlive or forget their owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / NAME

    def check(self) -> None:
        draft, name = (self._folder / f".{secrets.token_hex(8)}" for _ in range(2))
        try:
            make_folder(self._folder)
            draft.write_bytes(b"")
            os.link(draft, name)
            try:
                os.link(draft, name)
            except FileExistsError:
                return
        except OSError as error:
            raise Refused(
                f"{self._folder} can't hold a lease: {error.strerror}.",
                hint="Name a folder that this user may write, of a file system with hard links, such as NFS.",
            ) from error
        finally:
            for path in (draft, name):
                with contextlib.suppress(OSError):
                    path.unlink()
        raise Refused(f"{self._folder} can't hold a lease: it links two files to one name.", hint="Name another place.")

    def read(self) -> Found | None:
        while True:
            number = self._newest()
            if number == 0:
                return None
            try:
                data = self._path(number).read_bytes()
            except FileNotFoundError:
                continue  # there are so many newer ones that it was deleted
            except OSError as error:
                raise disk_error(self._path(number), error) from error
            return Found(_lease(data, str(self._path(number))), str(number))

    def swap(self, lease: Lease, after: str | None) -> Found | None:
        number = int(after or 0) + 1
        draft = self._folder / f".{secrets.token_hex(8)}"
        try:
            if after is None:
                make_folder(self._folder)
            elif not self._path(number - 1).exists():
                return None  # long replaced and deleted; or the disk with the leases isn't mounted any more
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(_bytes(lease))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, self._path(number))
            except FileExistsError:
                return None  # also if it is ours, by a request that NFS repeated: the next read finds it
            sync_folder(self._folder)
            if self._newest() > number:  # `after` was so old that its successor is deleted already
                self._path(number).unlink(missing_ok=True)
                return None
            self._tidy(number)
        except OSError as error:
            raise disk_error(self._folder, error) from error
        finally:
            draft.unlink(missing_ok=True)
        return Found(lease, str(number))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}"

    def _numbers(self) -> list[int]:
        try:
            return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_error(self._folder, error) from error

    def _newest(self) -> int:
        return next(reversed(self._numbers()), 0)

    def _tidy(self, newest: int) -> None:
        for number in self._numbers():
            if number <= newest - KEPT:
                self._path(number).unlink(missing_ok=True)


class BucketLease:
    """An object that is replaced under the condition that it is the one that was read."""

    def __init__(self, bucket: str, prefix: str, client: Callable[[], Any]) -> None:
        self._bucket, self._key = bucket, f"{prefix.strip('/')}/{NAME}".lstrip("/")
        self._make_client, self._made = client, None

    def read(self) -> Found | None:
        answer = self._call("get_object", ("NoSuchKey", "404"), Key=self._key)
        if answer is None:
            return None
        return Found(_lease(answer["Body"].read(), f"s3://{self._bucket}/{self._key}"), answer["ETag"])

    def swap(self, lease: Lease, after: str | None) -> Found | None:
        return self._put(self._key, lease, {"IfNoneMatch": "*"} if after is None else {"IfMatch": after})

    def check(self) -> None:
        probe, any_lease = f"{self._key}-check", Lease("check", 0, "", "", 0.0)
        self._put(probe, any_lease, {})
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"0"'}):
            if self._put(probe, any_lease, condition) is not None:
                raise Refused(
                    f"The bucket {self._bucket} takes writes whatever their condition ({', '.join(condition)}).",
                    hint="Name a bucket of a store with conditional writes, such as S3, or a folder.",
                )

    def _put(self, key: str, lease: Lease, condition: dict[str, str]) -> Found | None:
        answer = self._call("put_object", _OTHER, Key=key, Body=_bytes(lease), **condition)
        return None if answer is None else Found(lease, answer["ETag"])

    def _call(self, operation: str, none: tuple[str, ...], **values: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        if self._made is None:
            self._made = self._make_client()
        try:
            return getattr(self._made, operation)(Bucket=self._bucket, **values)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code", "") in none:
                return None
            raise self._refused(operation, error) from error
        except BotoCoreError as error:
            raise self._refused(operation, error) from error

    def _refused(self, operation: str, error: Exception) -> Refused:
        return Refused(
            f"The bucket {self._bucket} didn't answer {operation}: {error}.",
            hint="Check that the bucket exists, and that the server's credentials allow it.",
        )
