"""The body of a request for a pod, and what a pod's own body says about that request.

Runpod shows a pod's environment, and nothing else that we could write to it. So a variable there says what was bought:
where a pod is, and whether Runpod may take it back, can be judged whoever finds it. No job sees that variable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from chalicelib.backends.runpod.catalog import BID, COMMUNITY
from chalicelib.backends.runpod.client import Body
from chalicelib.backends.spi import Container, ContainerMount, CreateRequest
from chalicelib.domain import container_script
from chalicelib.domain.offers import Offer
from chalicelib.errors import Bug, Unfit

GIB = 1024
KEY = "RUNPOD_API_KEY"  # Runpod puts one into each pod, and its API can be called with it
BOUGHT = "DSTACK_BOUGHT"  # the variable with what was bought: `US-KS-2 spot 2.69`
SPOT, ON_DEMAND = "spot", "on-demand"


class Bought(NamedTuple):
    """What was bought as a pod, as far as it is known."""

    region: str
    spot: bool
    price: float  # an hour; 0: unknown


def bought(pod: Body) -> Bought:
    region, market, price = (*str((pod.get("env") or {}).get(BOUGHT, "")).split(), "", "", "")[:3]
    return Bought(region, market == SPOT, float(price) if re.fullmatch(r"\d+(\.\d+)?", price) else 0.0)


def container_of(request: CreateRequest) -> Container:
    if request.container is None:
        raise Bug(f"{request.name} is no container, and Runpod sells nothing else")
    return request.container


def pod(request: CreateRequest, registry: str) -> dict[str, Any]:
    """`registry`: the id of the login with which the image is pulled; empty: it needs none.

    No port is opened and nothing of Runpod's is started in it: the agent calls out. The cloud is always named, because
    the community's prices are others."""
    container, has = container_of(request), request.offer.instance.resources
    name, region = request.offer.instance.name, request.offer.region
    if has.gpus:
        size: dict[str, Any] = {"gpu": {"id": name, "count": len(has.gpus)}}
    else:
        size = {"cpu": {"id": name.partition("-")[0], "vcpuCount": int(has.cpus)}}
    return {
        "name": request.name,
        "image": container.image,
        "args": as_args(container.command),
        "env": _env(container, request.offer),
        "ports": [],
        "disk": -(-request.disk_mib // GIB),
        "cloud": "COMMUNITY" if region == COMMUNITY else "SECURE",
        "dataCenterIds": [] if region == COMMUNITY else [region],
        "startSsh": False,
        "startJupyter": False,
        **size,
        **({"registry": registry} if registry else {}),
        **mounts_of(container),
    }


def spot_pod(request: CreateRequest, registry: str) -> dict[str, Any]:
    """The same for a spot pod, in the words of the older API. It gets no disk that outlives its end, which would still
    be billed, at twice the price."""
    container, has, region = container_of(request), request.offer.instance.resources, request.offer.region
    mounts = _mounted(container)
    return {
        "bidPerGpu": request.offer.backend_data[BID],
        "name": request.name,
        "imageName": container.image,
        "dockerArgs": as_args(container.command),
        "env": [{"key": key, "value": value} for key, value in _env(container, request.offer).items()],
        "ports": "",
        "containerDiskInGb": -(-request.disk_mib // GIB),
        "volumeInGb": 0,
        "gpuTypeId": request.offer.instance.name,
        "gpuCount": len(has.gpus),
        "startSsh": False,
        "startJupyter": False,
        **({"cloudType": "COMMUNITY"} if region == COMMUNITY else {"cloudType": "SECURE", "dataCenterId": region}),
        **({"containerRegistryAuthId": registry} if registry else {}),
        **({"networkVolumeId": mounts[0].volume.id, "volumeMountPath": mounts[0].path} if mounts else {}),
    }


def as_args(command: Sequence[str]) -> str:
    """Runpod's form of a command that takes the place of the image's entry point: JSON in a text."""
    return orjson.dumps({"entrypoint": command[:2], "cmd": command[2:]}).decode()


def _env(container: Container, offer: Offer) -> dict[str, str]:
    market = SPOT if offer.instance.resources.spot else ON_DEMAND
    return {
        **container.env,
        BOUGHT: f"{offer.region} {market} {offer.price}",
        container_script.HIDDEN: f"{KEY} {BOUGHT}",
    }


def mounts_of(container: Container) -> dict[str, Any]:
    network = [{"volumeId": each.volume.id, "path": each.path} for each in _mounted(container)]
    return {"mounts": {"network": network}} if network else {}


def _mounted(container: Container) -> Sequence[ContainerMount]:
    if len(container.mounts) > 1:
        raise Unfit(f"A pod of Runpod mounts one network volume, and the job has {len(container.mounts)}.")
    if any(each.read_only for each in container.mounts):
        raise Unfit("Runpod can't mount a network volume so that nothing can write it.")
    return container.mounts
