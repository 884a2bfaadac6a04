"""What stands in for a provider, in place of its own addresses."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chalicelib.domain.specs.reading import Spec
from chalicelib.runtime.accounts import providers
from tests.backends.fakes.server import Fake
from tests.backends.fakes.transport import serving
from tests.backends.lambda_cloud import provider as lambda_cloud
from tests.backends.lambda_cloud.fake import LambdaApi
from tests.backends.runpod import provider as runpod
from tests.backends.runpod.fake import Runpod
from tests.backends.tensordock import provider as tensordock
from tests.backends.tensordock.fake import TensorDock
from tests.backends.vastai import provider as vastai
from tests.backends.vastai.fake import Vast


@pytest.mark.parametrize(
    ("name", "config", "kind"),
    [
        ("lambda", lambda_cloud.CONFIG, LambdaApi),
        ("runpod", runpod.CONFIG, Runpod),
        ("tensordock", tensordock.CONFIG, TensorDock),
        ("vastai", vastai.CONFIG, Vast),
    ],
)
def test_a_backend_is_checked_there(name: str, config: Spec, kind: Callable[..., Fake]) -> None:
    fake = kind(lambda: time.time_ns() // 1000)
    with serving(fake) as url:
        backend = providers(endpoints={name: url}).make(config)
        backend.check()
        backend.close()
    assert fake.calls
