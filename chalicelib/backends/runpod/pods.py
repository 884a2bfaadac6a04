"""The body of a request for a pod."""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.backends.runpod.catalog import COMMUNITY
from chalicelib.backends.spi import Container, CreateRequest
from chalicelib.domain import container_script
from chalicelib.errors import Bug, Unfit

GIB = 1024
KEY = "RUNPOD_API_KEY"  # Runpod puts one into each pod, and its API can be called with it


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
    entry, arguments = list(container.command[:2]), list(container.command[2:])
    if has.gpus:
        size: dict[str, Any] = {"gpu": {"id": name, "count": len(has.gpus)}}
    else:
        size = {"cpu": {"id": name.partition("-")[0], "vcpuCount": int(has.cpus)}}
    return {
        "name": request.name,
        "image": container.image,
        "args": orjson.dumps({"entrypoint": entry, "cmd": arguments}).decode(),
        "env": {**container.env, container_script.HIDDEN: KEY},
        "ports": [],
        "disk": -(-request.disk_mib // GIB),
        "cloud": "COMMUNITY" if region == COMMUNITY else "SECURE",
        "dataCenterIds": [] if region == COMMUNITY else [region],
        "startSsh": False,
        "startJupyter": False,
        **size,
        **({"registry": registry} if registry else {}),
        **_mounts(container),
    }


def _mounts(container: Container) -> dict[str, Any]:
    mounts = container.mounts
    if len(mounts) > 1:
        raise Unfit(f"A pod of Runpod mounts one network volume, and the job has {len(mounts)}.")
    if any(each.read_only for each in mounts):
        raise Unfit("Runpod can't mount a network volume so that nothing can write it.")
    network = [{"volumeId": each.volume.id, "path": each.path} for each in mounts]
    return {"mounts": {"network": network}} if network else {}
