"""The lease in a bucket, as the emulator gives it."""

from __future__ import annotations

from chalicelib.runtime.pair.places import BucketLease
from tests.emulators.ministack import Emulator
from tests.runtime.pair.test_places import holds


def test_in_a_bucket(emulator: Emulator) -> None:
    s3 = emulator.client("s3")
    s3.create_bucket(Bucket="pairs")
    holds(lambda: BucketLease("pairs", "of/mine/", lambda: s3))
