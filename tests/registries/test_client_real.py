"""What an image runs, from a real registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.backends.spi import RegistryLogin
from chalicelib.errors import ContainerFailed
from chalicelib.registries.addresses import public_sender
from chalicelib.registries.client import LARGEST, Registries
from tests.harness.debian import NotHere
from tests.harness.image_registry import ImageRegistry, image_registry

pytestmark = pytest.mark.slow

LOGIN = RegistryLogin("puller", "s3cret-s3cret")


@pytest.fixture(params=[None, LOGIN], ids=["open", "private"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ImageRegistry]:
    try:
        with image_registry(tmp_path, request.param) as running:
            yield running
    except NotHere as problem:
        pytest.skip(str(problem))


def test_an_image_says_what_it_runs(registry: ImageRegistry, request: pytest.FixtureRequest) -> None:
    private = "private" in request.node.name
    image = registry.push("team/app:1", Entrypoint=["/entry"], Cmd=["a b", "c"])
    read = Registries(public_sender(LARGEST, [registry.host])).command
    assert read(image, LOGIN if private else None, "x86") == ("/entry", "a b", "c")
    with pytest.raises(ContainerFailed, match=f"doesn't exist in {registry.host}"):
        read(f"{registry.host}/team/app:2", LOGIN if private else None, "x86")
    if private:
        with pytest.raises(ContainerFailed, match="refuses the login"):
            read(image, RegistryLogin("puller", "wrong"), "x86")
        with pytest.raises(ContainerFailed, match="or needs a login"):
            read(image, None, "x86")
