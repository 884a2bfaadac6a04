"""Names of images, as engines read them."""

from __future__ import annotations

import pytest

from chalicelib.registries.names import ImageName, image_name

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nginx", ImageName("docker.io", "library/nginx", "latest")),
        ("nginx:1.27-alpine", ImageName("docker.io", "library/nginx", "1.27-alpine")),
        ("team/app", ImageName("docker.io", "team/app", "latest")),
        ("docker.io/nginx", ImageName("docker.io", "library/nginx", "latest")),
        ("index.docker.io/team/app:2", ImageName("docker.io", "team/app", "2")),
        ("ghcr.io/a/b/c:v1", ImageName("ghcr.io", "a/b/c", "v1")),
        ("localhost/app", ImageName("localhost", "app", "latest")),
        ("registry:5000/app", ImageName("registry:5000", "app", "latest")),
        ("127.0.0.1:5000/app:1", ImageName("127.0.0.1:5000", "app", "1")),
        ("[::1]:5000/app", ImageName("[::1]:5000", "app", "latest")),
        (f"quay.io/a/b@{DIGEST}", ImageName("quay.io", "a/b", DIGEST)),
        (f"quay.io/a/b:tag@{DIGEST}", ImageName("quay.io", "a/b", DIGEST)),
        ("a/b__c/d-e--f", ImageName("docker.io", "a/b__c/d-e--f", "latest")),
    ],
)
def test_a_name(text: str, expected: ImageName) -> None:
    assert image_name(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Nginx",
        "a//b",
        "a/../b",
        "ghcr.io/",
        "ghcr.io/a b",
        "a:",
        "a@sha256:12",
        "a?b",
        "u@ghcr.io/a",
        "a:b/c",
    ],
)
def test_what_no_image_can_be_called(text: str) -> None:
    assert image_name(text) is None


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("nginx", "https://registry-1.docker.io"),
        ("ghcr.io/a/b", "https://ghcr.io"),
        ("localhost:5000/a", "http://localhost:5000"),
        ("127.8.0.1/a", "http://127.8.0.1"),
        ("[::1]:5000/a", "http://[::1]:5000"),
        ("10.0.0.1:5000/a", "https://10.0.0.1:5000"),
        ("localhost.example.com/a", "https://localhost.example.com"),
    ],
)
def test_only_a_registry_on_this_machine_is_called_without_tls(text: str, base: str) -> None:
    found = image_name(text)
    assert found is not None and found.base == base
