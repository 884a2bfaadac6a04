"""Nebius's own SDK against the fake: it must be told nothing that it can't read, and get nothing wrong past it.

The SDK has its own codec, and takes its tokens, keys and masks its own way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.domain.instants import SECOND
from tests.backends.conformance.requests import request_for
from tests.backends.fakes.procedures import serving_procedures
from tests.backends.nebius.fake import ACCOUNT, KEY_ID, Nebius, rsa_key
from tests.backends.nebius.provider import config
from tests.backends.nebius.shop import TENANT

pytestmark = pytest.mark.slow

PROJECT, LIMIT = "project-e00north", 30.0  # seconds of a call
Steps = Callable[[Any], Awaitable[None]]


def played(fake: Nebius, steps: Steps) -> None:
    from nebius.base.resolver import Constant
    from nebius.base.service_account.service_account import ServiceAccount
    from nebius.sdk import SDK

    async def play(address: str) -> None:
        sdk = SDK(
            resolver=Constant(address),
            options=[("nebius.insecure", True)],
            credentials=ServiceAccount(rsa_key(), KEY_ID, ACCOUNT),
            user_agent_prefix="tests/1",
        )
        try:
            await asyncio.wait_for(steps(sdk), LIMIT)
        finally:
            await sdk.close()

    with serving_procedures(fake) as address:
        asyncio.run(play(address))


@pytest.fixture
def fake() -> Nebius:
    found = Nebius(lambda: time.time_ns() // 1000)
    found.boot = found.end = found.attach = round(0.05 * SECOND)
    return found


def machine(name: str, **spec: Any) -> Any:
    from nebius.api.nebius.common.v1 import ResourceMetadata
    from nebius.api.nebius.compute import v1 as compute

    disk = compute.DiskSpec(
        type=compute.DiskSpec.DiskType.NETWORK_SSD,
        size_gibibytes=64,
        source_image_family=compute.SourceImageFamily(image_family="ubuntu24.04-cuda13.0"),
    )
    return compute.CreateInstanceRequest(
        metadata=ResourceMetadata(parent_id=PROJECT, name=name, labels={"team": "sdk"}),
        spec=compute.InstanceSpec(
            resources=compute.ResourcesSpec(platform="gpu-h100-sxm", preset="1gpu-16vcpu-200gb"),
            boot_disk=compute.AttachedDiskSpec(
                attach_mode=compute.AttachedDiskSpec.AttachMode.READ_WRITE,
                managed_disk=compute.ManagedDisk(name=name, spec=disk),
            ),
            network_interfaces=[
                compute.NetworkInterfaceSpec(
                    name="eth0",
                    subnet_id=f"vpcsubnet-of-{PROJECT}",
                    ip_address=compute.IPAddress(),
                    public_ip_address=compute.PublicIPAddress(),
                )
            ],
            **spec,
        ),
    )


def test_the_sdk_finds_its_way(fake: Nebius) -> None:
    from nebius.api.nebius.compute import v1 as compute
    from nebius.api.nebius.iam import v1 as iam

    async def steps(sdk: Any) -> None:
        tenants = await iam.TenantServiceClient(sdk).list(iam.ListTenantsRequest())
        assert [each.metadata.id for each in tenants.items] == [TENANT]
        fake.script.page, names, token = 2, [], ""
        while True:
            page = await iam.ProjectServiceClient(sdk).list(
                iam.ListProjectsRequest(parent_id=TENANT, page_size=999, page_token=token)
            )
            names += [each.status.region for each in page.items]
            token = page.next_page_token
            if not token:
                break
        assert sorted(names) == ["eu-north1", "eu-north1", "us-central1"]
        platforms = await compute.PlatformServiceClient(sdk).list(compute.ListPlatformsRequest(parent_id=PROJECT))
        assert [each.metadata.name for each in platforms.items] == ["gpu-h100-sxm", "cpu-d3"]

    played(fake, steps)


def test_the_sdk_creates_follows_and_deletes_a_machine(fake: Nebius) -> None:
    from nebius.api.nebius.compute import v1 as compute

    async def steps(sdk: Any) -> None:
        service = compute.InstanceServiceClient(sdk)
        operation = await service.create(machine("one"))
        await operation.wait()
        assert operation.successful()
        found = await service.get(compute.GetInstanceRequest(id=operation.resource_id))
        assert found.status.state == compute.InstanceStatus.InstanceState.RUNNING
        assert found.status.network_interfaces[0].public_ip_address.address.endswith("/32")
        batch = await service.batch_get(compute.BatchGetRequest(instance_ids=[found.metadata.id]))
        assert batch.items[found.metadata.id].instance.metadata.labels == {"team": "sdk"}
        await (await service.delete(compute.DeleteInstanceRequest(id=found.metadata.id))).wait()
        assert not list(fake.books.existing("vm")) and not list(fake.books.existing("disk"))

    played(fake, steps)


def test_the_sdk_attaches_a_disk_and_lets_go_of_it(fake: Nebius) -> None:
    """It computes the reset mask itself."""
    from nebius.api.nebius.common.v1 import ResourceMetadata
    from nebius.api.nebius.compute import v1 as compute

    async def steps(sdk: Any) -> None:
        machines, disks = compute.InstanceServiceClient(sdk), compute.DiskServiceClient(sdk)
        await (created := await machines.create(machine("one"))).wait()
        spec = compute.DiskSpec(type=compute.DiskSpec.DiskType.NETWORK_SSD, size_gibibytes=10)
        metadata = ResourceMetadata(parent_id=PROJECT, name="data")
        await (disk := await disks.create(compute.CreateDiskRequest(metadata=metadata, spec=spec))).wait()
        attached = compute.AttachedDiskSpec(
            attach_mode=compute.AttachedDiskSpec.AttachMode.READ_WRITE,
            existing_disk=compute.ExistingDisk(id=disk.resource_id),
            device_id="data",
        )
        for listed, owner in (([attached], created.resource_id), ([], "")):
            there = await machines.get(compute.GetInstanceRequest(id=created.resource_id))
            there.spec.secondary_disks = listed
            update = compute.UpdateInstanceRequest(metadata=there.metadata, spec=there.spec)
            await (await machines.update(update)).wait()
            found = await disks.get(compute.GetDiskRequest(id=disk.resource_id))
            assert found.status.read_write_attachment == owner

    played(fake, steps)


def test_the_sdk_reads_the_details_of_errors(fake: Nebius) -> None:
    from nebius.aio.service_error import RequestError
    from nebius.api.nebius.compute import v1 as compute

    async def steps(sdk: Any) -> None:
        service = compute.InstanceServiceClient(sdk)
        fake.script.limits["eu-north1/compute.instance.gpu.h100"] = 0
        try:
            await service.create(machine("one"), retries=1)
        except RequestError as error:
            (detail,) = error.status.service_errors
            assert detail.quota_failure.violations[0].quota == "compute.instance.gpu.h100"
        else:
            raise AssertionError("there is no quota")

    played(fake, steps)


def test_the_sdk_sees_what_the_backend_made(fake: Nebius) -> None:
    from nebius.api.nebius.compute import v1 as compute

    with serving_procedures(fake) as address:
        backend = NebiusBackend(config(), endpoint=f"http://{address}")
        offer = next(each for each in backend.offers() if each.instance.resources.spot)
        (made,) = backend.create(request_for(offer))
        backend.close()

    async def steps(sdk: Any) -> None:
        found = await compute.InstanceServiceClient(sdk).get(compute.GetInstanceRequest(id=made.id))
        assert found.spec.preemptible is not None and found.spec.which_field_in_oneof("pricing_model")
        assert found.metadata.labels["dstack-epoch"] == "0"

    played(fake, steps)
