"""Blobs: data that is too large for a record. Each has a name, and is written and read as a whole.

Names are simple paths, with the same rules for files and for S3, so that a name that works embedded also works in AWS.
They are checked here because parts of them come from clients.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import DstackError, Invalid, Refused
from chalicelib.store.disk import disk_error, make_folder, sync_folder

_NAME = re.compile(r"(?!\.)[\w@=+.-]+(/(?!\.)[\w@=+.-]+)*", re.ASCII)
_DRAFT = re.compile(r"\.[0-9a-f]{16}")
_MAX_NAME = 512
_AT_ONCE = 1000  # objects that one request to S3 can delete


class Blobs(Protocol):
    def put(self, name: str, data: bytes) -> None:
        """Durable once this returns; replaces an earlier blob of that name."""

    def get(self, name: str) -> bytes | None: ...

    def delete(self, *names: str) -> None:
        """Deleting a missing blob is fine. Many at once cost little more than one."""

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Names that begin with `prefix` and sort after `after`, in text order."""

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        """The same names, each with the time of its last `put`."""

    def tidy(self, before: Micros) -> None:
        """Delete the remains of writes that were interrupted before this time: they aren't blobs, but take up space."""

    def link(self, name: str, seconds: int) -> str | None:
        """An address from which anybody may read it for so long. None: there is no such blob, or only the control plane
        serves it."""


def checked(name: str) -> str:
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:80]!r} can't name a blob.",
            hint="Use letters, digits and _@=+.- in parts divided by /; no part may begin with a dot.",
        )
    return name


class FileBlobs:
    """One file per blob under `root`, written under a temporary name and renamed, so that readers never see part of
    it."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def put(self, name: str, data: bytes) -> None:
        path = self._root / checked(name)
        draft = path.with_name(f".{secrets.token_hex(8)}")
        try:
            make_folder(path.parent)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise disk_error(path, error) from error

    def get(self, name: str) -> bytes | None:
        path = self._root / checked(name)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise disk_error(path, error) from error

    def delete(self, *names: str) -> None:
        for path in [self._root / checked(name) for name in names]:
            self._unlink(path)

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except (NotADirectoryError, IsADirectoryError):
            return  # no blob of that name
        except OSError as error:
            raise disk_error(path, error) from error

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        top = self._root / checked(prefix.rsplit("/", 1)[0]) if "/" in prefix else self._root
        names = (name for name in self._names(top) if name.startswith(prefix) and name > after)
        return sorted(names)[:limit]

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        found = []
        for name in self.list(prefix, after, limit):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                found.append((name, (self._root / name).stat().st_mtime_ns // 1_000))
        return found

    def tidy(self, before: Micros) -> None:
        for folder, _, files in os.walk(self._root):
            for path in [Path(folder, file) for file in files if _DRAFT.fullmatch(file)]:
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime_ns // 1_000 < before:
                        path.unlink()

    def _names(self, top: Path) -> Iterator[str]:
        for folder, _, files in os.walk(top):
            place = Path(folder).relative_to(self._root)
            for file in files:
                if not file.startswith("."):
                    yield (place / file).as_posix()

    def link(self, name: str, seconds: int) -> str | None:
        return None


class S3Blobs:
    """One object per blob. `client` creates the S3 client on first use, to spare cold starts that don't need it."""

    def __init__(self, bucket: str, client: Callable[[], Any]) -> None:
        self._bucket = bucket
        self._make_client = client
        self._made: Any = None

    def put(self, name: str, data: bytes) -> None:
        self._call("put_object", Key=checked(name), Body=data)

    def signed(self, name: str, size: int, checksum: str, seconds: int) -> tuple[str, dict[str, str]]:
        """A URL to which this content (SHA-256 in base64) may be uploaded for `seconds`, and the headers to send."""
        what = {"Bucket": self._bucket, "Key": checked(name), "ContentLength": size, "ChecksumSHA256": checksum}
        if self._made is None:
            self._made = self._make_client()
        url = self._made.generate_presigned_url("put_object", Params=what, ExpiresIn=seconds)
        return str(url), {"Content-Length": str(size), "x-amz-checksum-sha256": checksum}

    def link(self, name: str, seconds: int) -> str | None:
        if self._call("head_object", missing=("NoSuchKey", "404"), Key=checked(name)) is None:
            return None
        what = {"Bucket": self._bucket, "Key": checked(name)}
        return str(self._made.generate_presigned_url("get_object", Params=what, ExpiresIn=seconds))

    def get(self, name: str) -> bytes | None:
        answer = self._call("get_object", missing=("NoSuchKey", "404"), Key=checked(name))
        if answer is None:
            return None
        data: bytes = answer["Body"].read()
        return data

    def delete(self, *names: str) -> None:
        found = [checked(name) for name in names]
        for start in range(0, len(found), _AT_ONCE):
            some = [{"Key": name} for name in found[start : start + _AT_ONCE]]
            answer = self._call("delete_objects", Delete={"Objects": some, "Quiet": True})
            if wrong := answer.get("Errors"):
                raise self._refused("delete_objects", f"{wrong[0].get('Key')}: {wrong[0].get('Code')}")

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        return [item["Key"] for item in self._listed(prefix, after, limit)]

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        return [
            (item["Key"], round(item["LastModified"].timestamp() * SECOND))
            for item in self._listed(prefix, after, limit)
        ]

    def tidy(self, before: Micros) -> None:
        """Do nothing: a rule of the bucket deletes interrupted uploads (`infra/stateful.py`)."""

    def _listed(self, prefix: str, after: str, limit: int) -> Sequence[dict[str, Any]]:
        if "/" in prefix:
            checked(prefix.rsplit("/", 1)[0])
        items: list[dict[str, Any]] = []
        while len(items) < limit:
            wanted = min(limit - len(items), 1000)
            answer = self._call("list_objects_v2", Prefix=prefix, StartAfter=after, MaxKeys=wanted)
            found = answer.get("Contents", [])
            items += found
            if not answer.get("IsTruncated") or not found:
                break
            after = found[-1]["Key"]
        return items

    def _call(self, operation: str, missing: tuple[str, ...] = (), **values: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        if self._made is None:
            self._made = self._make_client()
        try:
            return getattr(self._made, operation)(Bucket=self._bucket, **values)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in missing:
                return None
            raise self._refused(operation, error) from error
        except BotoCoreError as error:
            raise self._refused(operation, error) from error

    def _refused(self, operation: str, error: Exception | str) -> DstackError:
        return Refused(
            f"The bucket {self._bucket} didn't answer {operation}: {error}.",
            hint="Check that the bucket exists, and that a function's policy, or a server's credentials, allow it.",
        )
