"""The image that a machine starts from: the configured one, or AWS's own with Docker and the NVIDIA driver.

The Deep Learning Base image is used for machines without a GPU, too, because AWS updates it, and it has Docker. The
root device's name and size come from the image: a wrong name would add a second disk instead of resizing the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig, AWSOSImage
from chalicelib.backends.aws.places import filters
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.domain.offers import Offer, Resources
from chalicelib.errors import Unfit

PARAMETER = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
_TOO_OLD = ("P100", "V100", "K80", "M60")  # for the open kernel modules of that image's driver


@dataclass(frozen=True)
class Image:
    id: str
    root_device: str
    root_gib: int


class AwsImages:
    def __init__(self, clients: Clients, config: AWSBackendConfig, now: Now) -> None:
        self._clients, self._given = clients, config.os_images
        self._images: LookupCache[Image] = LookupCache(now)

    def of(self, offer: Offer) -> Image:
        has = offer.instance.resources
        kind = "nvidia" if any(gpu.vendor in ("nvidia", None) for gpu in has.gpus) else "cpu"
        if self._given is not None:
            image = self._given.nvidia if kind == "nvidia" else self._given.cpu
            if image is None:
                raise Unfit(
                    f"The backend's `os_images` has no image for {offer.instance.name}.",
                    hint=f"Add `os_images.{kind}`, or remove `os_images`.",
                )
            arch = _architecture(has)
            return self._images.get(f"{offer.region} {kind} {arch}", lambda: self._named(offer.region, image, arch))
        return self._usual(offer.region, offer.instance.name, has)

    def forget(self) -> None:
        self._images.clear()

    def _usual(self, region: str, type_name: str, has: Resources) -> Image:
        if any(gpu.name.upper().startswith(_TOO_OLD) for gpu in has.gpus):
            raise Unfit(
                f"AWS's image has no driver for the GPUs of {type_name}.",
                hint="Name one that has in the backend's `os_images.nvidia`.",
            )
        arch = _architecture(has)
        return self._images.get(f"{region} {arch}", lambda: self._by_parameter(region, PARAMETER.format(arch=arch)))

    def _by_parameter(self, region: str, name: str) -> Image:
        image_id = self._clients.call("ssm", region, "get_parameter", Name=name)["Parameter"]["Value"]
        found = self._clients.call("ec2", region, "describe_images", ImageIds=[image_id])["Images"]
        if not found:
            raise Unfit(f"{region} has no image {image_id}, which {name} names.")
        return _read(found[0])

    def _named(self, region: str, os_image: AWSOSImage, arch: str) -> Image:
        """The newest matching image. The owner is always specified, because anybody may give an image any name."""
        found = self._clients.call(
            "ec2",
            region,
            "describe_images",
            Owners=[os_image.owner],
            Filters=filters(name=os_image.name, state="available", architecture=arch),
        )["Images"]
        if not found:
            owner = "this account" if os_image.owner == "self" else os_image.owner
            raise Unfit(
                f"{region} has no image {os_image.name} of {owner} for {arch}.",
                hint="Copy it there, correct `os_images`, or take the region out of `regions`.",
            )
        return _read(max(found, key=lambda image: (str(image["CreationDate"]), str(image["ImageId"]))))


def _architecture(has: Resources) -> str:
    """The architecture as AWS names it."""
    return "arm64" if has.cpu_arch == "arm" else "x86_64"


def _read(image: dict[str, Any]) -> Image:
    root = image.get("RootDeviceName") or "/dev/sda1"
    sizes = [
        mapping["Ebs"].get("VolumeSize", 0)
        for mapping in image.get("BlockDeviceMappings", ())
        if mapping.get("DeviceName") == root and "Ebs" in mapping
    ]
    return Image(str(image["ImageId"]), str(root), int(next(iter(sizes), 0)))
