"""An audit log in a bucket of S3: an object for each batch of lines, named by the numbers of its first and last.

An object that is there is never written again. Whether nobody else can delete one either is for the bucket's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.audit_chain import Head
from chalicelib.errors import Refused, Transient
from chalicelib.runtime.audit_file import last_line


class S3Sink:
    def __init__(self, bucket: str, prefix: str, s3: Any, every: float) -> None:
        """`s3`: boto3's client."""
        self._bucket, self._prefix, self._s3, self.every = bucket, f"{prefix}/" if prefix else "", s3, every

    def end(self) -> Head:
        try:
            newest = self._newest()
            body = self._s3.get_object(Bucket=self._bucket, Key=newest)["Body"].read() if newest else b""
        except Exception as error:  # whatever the SDK raises: the network, the permissions, the bucket
            raise Refused(
                f"The audit log in s3://{self._bucket}/{self._prefix} can't be read: {error}.",
                hint="Check the bucket's name, and that the server may list, read and write there.",
            ) from error
        where = f"s3://{self._bucket}/{newest}"
        return last_line(body, where, "Name another prefix, and the server begins anew there.")

    def append(self, lines: Sequence[bytes], head: Head) -> None:
        key = f"{self._prefix}{head.number - len(lines) + 1:012d}-{head.number:012d}.jsonl"
        put = {"Bucket": self._bucket, "Key": key, "Body": b"".join(lines), "ContentType": "application/x-ndjson"}
        try:
            self._s3.put_object(**put, IfNoneMatch="*")
        except Exception as error:
            raise Transient(f"The audit log can't be written to s3://{self._bucket}/{key}: {error}.") from error

    def _newest(self) -> str:
        """The last object's name. A listing only goes forwards, from the oldest: so it is looked for by halves."""
        newest, high = "", 1
        while found := self._after(high if newest else 0):
            newest = found
            high = 2 * self._first(found)
        low = self._first(newest) if newest else high
        while high - low > 1:
            middle = (low + high) // 2
            if found := self._after(middle):
                newest, low = found, self._first(found)
            else:
                high = middle
        return newest

    def _after(self, number: int) -> str:
        """The name of the first object whose first line has a higher number; empty if there is none."""
        after = f"{self._prefix}{number:012d}~"
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, StartAfter=after, MaxKeys=1)
        return str(found["Contents"][0]["Key"]) if found.get("Contents") else ""

    def _first(self, name: str) -> int:
        text = name.removeprefix(self._prefix)[:12]
        if not text.isdigit():
            raise ValueError(f"{name} is no part of an audit log")
        return int(text)
