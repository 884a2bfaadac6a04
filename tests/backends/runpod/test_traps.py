"""What Runpod's users have run into, each as its fake does it."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from chalicelib.backends.kit.rest import RestAnswer, RestCall
from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.runpod.client import BURST, QUIET, RATE, Client, _listened
from chalicelib.backends.runpod.errors import TABLE, failure_of
from chalicelib.backends.runpod.specs import RunpodVolumeConfiguration
from chalicelib.backends.runpod.states import STOPPED
from chalicelib.backends.spi import ContainerMount, CreateRequest, RegistryLogin
from chalicelib.domain.container_script import SCRIPT
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import (
    BackendError,
    ContainerFailed,
    Gone,
    InsufficientCapacity,
    InUse,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for, volume_request
from tests.backends.conformance.suite import ANYTHING
from tests.backends.fakes.script import Answer, Cut, Fault, Rate
from tests.backends.fakes.transport import sender
from tests.backends.runpod.fake import H100, KEY, Runpod, stock
from tests.backends.runpod.provider import CONFIG, NO_IMAGE, client

START = 'OCI runtime create failed: runc create failed: unable to start container process: exec: "/bin/sh"'


def offers(backend: RunpodBackend, **resources: Any) -> list[Offer]:
    return list(backend.offers_for(OfferRequest(resources=ResourcesSpec.model_validate(resources))))


@pytest.fixture
def request_one(backend: RunpodBackend) -> CreateRequest:
    return request_for(next(each for each in offers(backend, gpu="H100:2") if each.instance.name == H100))


# --- what is offered --------------------------------------------------------------------------------------------------


def test_a_request_is_answered_with_the_smallest_numbers_that_fit(backend: RunpodBackend, fake: Runpod) -> None:
    found = offers(backend, gpu="2..")
    assert {len(each.instance.resources.gpus) for each in found} == {2, 3, 4}
    assert not fake.calls_of("listCpuTypes"), "a CPU pod has no GPU"
    (one, *_) = [each for each in found if each.instance.name == H100 and each.region == "US-KS-2"]
    has = one.instance.resources
    assert (has.cpus, has.memory_mib, one.price) == (40, 250 * 1024, 5.38)
    assert {(card.name, card.memory_mib) for card in has.gpus} == {("H100", 80 * 1024)}


def test_what_fits_isnt_crowded_out_by_what_is_cheaper(backend: RunpodBackend) -> None:
    found = offers(backend, gpu={"name": ["h100"], "memory": "40GB.."})
    assert {each.instance.name for each in found} == {H100}
    assert not offers(backend, gpu={"name": ["h100"], "memory": "100GB.."})
    assert {each.instance.name for each in offers(backend, gpu="amd:1")} == {"AMD Instinct MI300X OAM"}


def test_a_card_without_a_price_hides_no_other(backend: RunpodBackend, fake: Runpod) -> None:
    def unpriced(body: Any) -> Any:
        none = {"price": {"secure": None, "community": None}, "maxCount": {"secure": None, "community": None}}
        return {"gpus": [{**each, **none} if each["id"] == H100 else each for each in body["gpus"]]}

    fake.script.faults.append(Fault("listGpuTypes", unpriced))
    found = {each.instance.name for each in offers(backend, gpu="1")}
    assert found and H100 not in found


def test_a_share_of_a_card_is_not_offered(backend: RunpodBackend) -> None:
    assert not [each for each in offers(backend, gpu="1") if "MIG" in each.instance.name]


def test_a_cpu_pod_has_the_disk_that_its_cpus_allow(backend: RunpodBackend) -> None:
    found = {
        each.instance.name: each
        for each in offers(backend, cpu="4..", gpu=0, disk="20GB..")
        if each.region == "EU-SE-1"
    }
    assert set(found) == {f"{kind}-{n}-{n * ram}" for kind, ram in (("cpu3c", 2), ("cpu5g", 4)) for n in (4, 8, 16)}
    small = found["cpu5g-4-16"]
    assert (small.most_disk, small.instance.resources.disk.size_mib) == (60, 60 * 1024)
    with pytest.raises(Unfit, match="disk must be at most 60 GB"):
        list(backend.create(replace(request_for(small), disk_mib=61 * 1024)))


def test_what_is_sold_out_somewhere_is_offered_elsewhere(backend: RunpodBackend, fake: Runpod) -> None:
    fake.script.limits[stock(H100, "US-KS-2")] = 1
    assert {each.region for each in offers(backend, gpu="H100:2")} == {"EU-SE-1", "CA-MTL-3"}
    assert "US-KS-2" in {each.region for each in offers(backend, gpu="H100:1")}


def test_pods_have_a_floor_while_the_older_api_doesnt_answer(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    fake.graphql = False
    (one, *_) = offers(backend, gpu="H100:2")
    assert (one.instance.resources.cpus, one.instance.resources.memory_mib) == (8, 30 * 1024)
    fake.graphql = True
    clock.passes(60)
    (one, *_) = offers(backend, gpu="H100:2")
    assert (one.instance.resources.cpus, one.instance.resources.memory_mib) == (40, 250 * 1024)


def test_the_community_cloud_is_a_region_with_prices_of_its_own(fake: Runpod, clock: Clock) -> None:
    config = CONFIG.with_(community_cloud=True, regions=("COMMUNITY",))
    backend = RunpodBackend(config, client(fake, clock), clock.now)
    backend.check()
    (one,) = offers(backend, gpu="H100:2")
    assert (one.region, one.price) == ("COMMUNITY", 3.98)
    assert one.instance.resources.cpus == 39, "hosts of the community are others"
    list(backend.create(request_for(one)))
    (made,) = fake.books.existing("vm")
    assert made.facts["request"]["cloud"] == "COMMUNITY" and made.facts["cost"] == 3.98


def test_an_unknown_region_is_named_when_the_key_is_checked(fake: Runpod, clock: Clock) -> None:
    backend = RunpodBackend(CONFIG.with_(regions=("EU-SE-1", "CA")), client(fake, clock), clock.now)
    with pytest.raises(Unfit, match="no data center CA") as refused:
        backend.check()
    assert "US-KS-2" in refused.value.hint


def test_of_several_requests_one_that_isnt_to_be_had_stops_no_other(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest
) -> None:
    other = request_for(next(each for each in offers(backend, gpu="1") if "A4000" in each.instance.name), "other")
    fake.script.limits[stock(H100, request_one.offer.region)] = 0
    refused, made = backend.create_several([request_one, other])
    assert isinstance(refused.error, InsufficientCapacity) and made.handle is not None


# --- what is created --------------------------------------------------------------------------------------------------


def test_a_pod_is_pinned_to_the_cloud_and_place_of_its_offer_and_opens_nothing(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest
) -> None:
    """The community's price is shown for some, and the secure cloud's is billed where none is named."""
    list(backend.create(request_one))
    (call,) = fake.calls_of("createPod")
    wanted = {"cloud": "SECURE", "dataCenterIds": [request_one.offer.region], "ports": [], "startSsh": False}
    assert wanted.items() <= call.body.items()
    (made,) = fake.books.existing("vm")
    assert made.facts["cost"] == request_one.offer.price


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "There are no longer any instances available with the requested specifications.", InsufficientCapacity),
        (400, "This machine does not have the resources to deploy your pod.", InsufficientCapacity),
        (400, "exactly one of gpu and cpu is required", Unfit),
        (400, "Insufficient balance to deploy this cluster.", QuotaExceeded),
        (400, "You have reached your spend limit.", QuotaExceeded),
        (422, "unknown field minCuda", Unfit),
        (400, "Error creating cluster - cluster creation failed", Unfit),  # of a version of CUDA that nobody has
        (503, "The service is not available.", Transient),
        (500, "insufficient", Transient),
    ],
)
def test_only_the_text_tells_a_lack_of_capacity(status: int, text: str, kind: type[BackendError]) -> None:
    failure = failure_of(status, {"title": "Bad Request", "status": status, "detail": text})
    assert failure is not None and type(TABLE.error(failure, "POST /v2/pods")) is kind


def test_a_login_ends_after_its_pod(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    assert request_one.container is not None
    container = replace(request_one.container, login=RegistryLogin("team", "pa55-of-the-registry"))
    login, pod = backend.create(replace(request_one, container=container))
    with pytest.raises(NotYet):
        backend.terminate(login)
    backend.terminate(pod)
    with pytest.raises(NotYet):
        backend.terminate(pod)
    clock.passes(30)
    backend.terminate(login)
    for handle in (login, pod):
        with pytest.raises(Gone):
            backend.terminate(handle)
    assert not list(fake.books.existing())


def test_a_pod_mounts_one_volume_that_can_be_written_in_the_secure_cloud(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest
) -> None:
    one, other = (
        ContainerMount(backend.create_volume(volume_request(request_one.offer.region, name)), f"/{name}")
        for name in ("one", "other")
    )
    assert request_one.container is not None
    for mounts, text in (((one, other), "has 2"), ((replace(one, read_only=True),), "nothing can write")):
        with pytest.raises(Unfit, match=text):
            list(backend.create(replace(request_one, container=replace(request_one.container, mounts=mounts))))
    config = CONFIG.with_(community_cloud=True)
    both = RunpodBackend(config, Client(KEY, send=sender(fake), burst=100)).offers_for(ANYTHING)
    assert {(each.region == "COMMUNITY", each.terms.grants) for each in both} == {(True, ()), (False, ("volumes",))}


def test_a_volume_has_at_least_its_size_and_is_found_where_it_is(backend: RunpodBackend, fake: Runpod) -> None:
    made = backend.create_volume(replace(volume_request("US-KS-2"), size_gib=3))
    assert backend.describe_volume(made).size_gib == 10
    large = backend.create_volume(replace(volume_request("US-KS-2", "large"), size_gib=2000))
    assert backend.describe_volume(large).price == 120.0
    with pytest.raises(Gone, match="is in US-KS-2"):
        backend.register_volume(made.id, "EU-SE-1", "")
    with pytest.raises(Unfit):
        backend.create_volume(volume_request("us-ks-2", "lower"))


def test_a_new_pod_that_isnt_listed_yet_may_mount_its_volume(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    volume = backend.create_volume(volume_request(request_one.offer.region))
    assert request_one.container is not None
    container = replace(request_one.container, mounts=(ContainerMount(volume, "/data"),))
    fake.script.lag = 5 * SECOND
    pod = list(backend.create(replace(request_one, container=container)))
    with pytest.raises(NotYet):
        backend.attach_volume(volume, pod)
    clock.passes(6)
    backend.attach_volume(volume, pod)
    other = list(backend.create(request_for(request_one.offer, "other")))
    clock.passes(60)
    with pytest.raises(Unfit):
        backend.attach_volume(volume, other)


def test_a_terminated_pod_uses_no_volume(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    volume = backend.create_volume(volume_request(request_one.offer.region))
    assert request_one.container is not None
    container = replace(request_one.container, mounts=(ContainerMount(volume, "/data"),))
    (pod,) = backend.create(replace(request_one, container=container))
    assert backend.describe_volume(volume).attached_to
    backend.terminate(pod)
    assert not backend.describe_volume(volume).attached_to


@pytest.mark.parametrize(
    ("name", "projects"),
    [
        ("imagenet dstack-projects=main", ("main",)),
        ("dstack-projects=main,research of 2026", ("main", "research")),
        ("dstack-projects=", ()),
        ("not-dstack-projects=main", ()),
        ("imagenet", ()),
    ],
)
def test_a_volume_that_exists_is_offered_to_projects_by_its_name(
    backend: RunpodBackend, fake: Runpod, name: str, projects: tuple[str, ...]
) -> None:
    """A network volume has no tags, and only who owns it can name it."""
    made = fake.books.add("volume", (0, "there"), name=name, size=50, dataCenter="US-KS-2")
    disk = backend.register_volume(made.id, "US-KS-2", "")
    assert (disk.size_gib, disk.offered_to, disk.multi_attach) == (50, projects, True)
    assert not list(RunpodVolumeConfiguration(name="data", region="US-KS-2", volume_id=made.id).not_built())


def test_a_volume_that_a_pod_took_meanwhile_is_in_use(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest
) -> None:
    made = backend.create_volume(volume_request(request_one.offer.region))
    text = "You must remove this network volume from all pods before deleting it."
    for status in (400, 409):
        fake.script.faults.append(Fault("deleteNetworkVolume", Answer(status, {"title": "", "detail": text})))
        with pytest.raises(InUse):
            backend.delete_volume(made)


@pytest.mark.parametrize("known_at_once", [True, False])
def test_a_pod_that_is_placed_elsewhere_isnt_what_was_bought(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock, known_at_once: bool
) -> None:
    """Data centers are a wish to Runpod: its region in a plan would be wrong, and so would what may not leave it."""
    request, fake.elsewhere = replace(request_one, offer=request_one.offer.with_(region="US-KS-2")), "EU-SE-1"
    if known_at_once:
        fake.script.faults.append(Fault("createPod", lambda body: {**body, "dataCenterId": "EU-SE-1"}))
    making = backend.create(request)
    made = [next(making)]
    if known_at_once:
        with pytest.raises(InsufficientCapacity, match="in EU-SE-1, and US-KS-2 was requested"):
            next(making)
    assert next(making, None) is None and backend.describe(made).state == "pending", "it has no place yet"
    for seconds in (10, 30):
        clock.passes(seconds)
        with pytest.raises(Gone, match="in EU-SE-1, and US-KS-2 was requested") as gone:
            backend.describe(made)
        assert gone.value.refused is InsufficientCapacity
    for region, found in (("US-KS-2", made), ("EU-SE-1", [])):
        assert [each.handle for each in backend.list_owned(request.instance_id, region)] == found


# --- what becomes of it -----------------------------------------------------------------------------------------------


def test_a_pod_runs_once_its_container_does(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    """While the image is pulled, its status is `RUNNING`, and only its runtime is missing."""
    made = list(backend.create(request_one))
    clock.passes(40)
    pulls = Fault("listPods", lambda body: {"pods": [{**each, "runtime": None} for each in body["pods"]]})
    fake.script.faults.append(pulls)
    assert backend.describe(made).state == "pending"
    assert backend.describe(made).state == "running"


@pytest.mark.parametrize(
    ("line", "minutes", "reason"),
    [
        (NO_IMAGE, 1, ContainerFailed),
        ("error creating container: layer does not exist", 4, InsufficientCapacity),
        (f"{START}: executable file not found in $PATH: unknown", 1, ContainerFailed),
        (f"{START}: stat /bin/sh: no such file or directory: unknown", 1, ContainerFailed),
        ("error creating container: exec /bin/sh: exec format error", 1, ContainerFailed),
        ('OCI runtime create failed: exec: "nvidia-hook": executable file not found', 4, InsufficientCapacity),
        ("Error response from daemon: denied: denied", 1, ContainerFailed),
        ("failed to resolve: ghcr.io/team/app:7: not found", 1, ContainerFailed),
        ("requested access to the resource is denied", 1, ContainerFailed),
        ("dial tcp: lookup registry.example.com: no such host", 1, ContainerFailed),
        ("x509: certificate signed by unknown authority", 1, ContainerFailed),
        ("toomanyrequests: You have reached your pull rate limit", 4, InsufficientCapacity),
        ("/bin/sh: python: not found", 19, None),
        ("create container: still fetching image", 19, None),
    ],
)
def test_a_pod_that_never_starts_is_given_up_for_what_its_log_says(
    backend: RunpodBackend,
    fake: Runpod,
    request_one: CreateRequest,
    clock: Clock,
    line: str,
    minutes: int,
    reason: type[BackendError] | None,
) -> None:
    made = list(backend.create(request_one))
    (pod,) = fake.books.existing("vm")
    pod.goes(clock.now(), (0, "PROVISIONING"))
    pod.facts["log"] += [line, "retrying"]
    assert backend.describe(made).state == "pending" and not fake.calls_of("getPodLogs")
    clock.passes(minutes * 60)
    if reason is None:
        assert backend.describe(made).state == backend.describe(made).state == "pending"
        assert len(fake.calls_of("getPodLogs")) == 1, "once a minute"
        return
    with pytest.raises(Gone, match=re.escape(line)) as gone:
        backend.describe(made)
    assert gone.value.refused is reason


def test_one_call_reads_few_logs(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    made = [list(backend.create(request_for(request_one.offer, f"n{n}"))) for n in range(5)]
    for pod in fake.books.existing("vm"):
        pod.goes(clock.now(), (0, "PROVISIONING"))
        pod.facts["log"].append(NO_IMAGE)
    clock.passes(60)
    given_up = [[isinstance(each, Gone) for each in backend.describe_several(made)] for _ in range(2)]
    assert given_up == [[True, True, True, False, False], [True] * 5]
    assert len(fake.calls_of("getPodLogs")) == 5


def test_what_a_job_writes_isnt_why_its_pod_couldnt_start(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    made = list(backend.create(request_one))
    (pod,) = fake.books.existing("vm")
    pod.goes(clock.now(), (0, "STARTING"))
    pod.facts["log"].append("dstack: not the system's: manifest unknown")
    clock.passes(300)
    assert backend.describe(made).state == "pending" and fake.calls_of("getPodLogs")


def test_a_start_command_that_isnt_taken_for_json_says_so(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    """Its form is documented for templates and for the older API; the published document only says that it's text."""
    made = list(backend.create(request_one))
    (pod,) = fake.books.existing("vm")
    args = pod.facts["request"]["args"]
    assert set(json.loads(args)) == {"entrypoint", "cmd"}
    pod.goes(clock.now(), (0, "STARTING"))
    pod.facts["log"].append(f"OCI runtime create failed: exec: {json.dumps(args)[:60]}: no such file or directory")
    clock.passes(60)
    with pytest.raises(Gone, match="takes the JSON of its start command") as gone:
        backend.describe(made)
    assert gone.value.refused is ContainerFailed


def test_a_container_that_is_started_again_and_again_is_given_up_with_what_it_lacks(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    made = list(backend.create(request_one))
    clock.passes(60)
    assert backend.describe(made).state == "running" and not fake.calls_of("getPodLogs"), "it has run for long"
    (pod,) = fake.books.existing("vm")
    pod.facts["log"] += ["dstack: this image has no tar to unpack a Python with: add tar", "start container"]
    clock.passes(60)
    pod.goes(clock.now(), (0, "STARTING"), (1, "RUNNING"))
    clock.passes(1)
    with pytest.raises(Gone, match="no tar to unpack") as gone:
        backend.describe(made)
    assert gone.value.refused is ContainerFailed
    assert f'echo "{STOPPED.pattern.partition("(")[0]}$*"' in SCRIPT


def test_a_log_that_cant_be_read_proves_nothing(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    made = list(backend.create(request_one))
    fake.run = 60 * MINUTE
    next(fake.books.existing("vm")).goes(clock.now(), (0, "STARTING"))
    clock.passes(300)
    fake.script.faults.append(Fault("getPodLogs", Answer(500)))
    assert backend.describe(made).state == "pending"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_end_whose_answer_is_lost_is_requested_again(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock, when: Any
) -> None:
    (made,) = backend.create(request_one)
    clock.passes(60)
    fake.script.faults.append(Fault("deletePod", Cut, when))
    with pytest.raises(Transient):
        backend.terminate(made)
    for _ in range(2):
        try:
            backend.terminate(made)
        except NotYet:
            clock.passes(1)
    clock.passes(15)
    with pytest.raises(Gone):
        backend.terminate(made)
    assert not list(fake.books.existing())


def test_a_pod_that_a_list_lacks_isnt_gone(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    made = list(backend.create(request_one))
    clock.passes(60)
    fake.script.faults.append(Fault("listPods", lambda body: {**body, "pods": []}))
    assert backend.describe(made).state == "running"
    next(fake.books.existing("vm")).goes(clock.now(), (0, "TERMINATED"))
    with pytest.raises(Gone):
        backend.describe(made)


def test_instances_that_end_together_are_looked_up_together(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    """Else the look-ups would use up the calls with which they are deleted."""
    for n in range(5):
        list(backend.create(request_for(request_one.offer, f"n{n}")))
    clock.passes(60)
    instances = [each.instance_id for each in backend.list_owned()]
    before = len(fake.calls_of("listPods"))
    for instance in instances:
        (owned,) = backend.list_owned(instance)
        backend.terminate(owned.handle)
    assert len(instances) == 5 and len(fake.calls_of("listPods")) == before + 1
    new = request_for(request_one.offer, "new")
    made = list(backend.create(new))
    assert [each.handle for each in backend.list_owned(new.instance_id)] == made, "it is in no older list"


def test_a_pod_that_stands_still_is_no_machine_and_is_still_listed(
    backend: RunpodBackend, fake: Runpod, request_one: CreateRequest, clock: Clock
) -> None:
    """Its disk is billed."""
    made = list(backend.create(request_one))
    next(fake.books.existing("vm")).goes(clock.now(), (0, "EXITED"))
    with pytest.raises(Gone):
        backend.describe(made)
    assert [each.handle for each in backend.list_owned()] == made


# --- how it answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "second"),
    [
        ({"nextCursor": "abc"}, {"cursor": "abc"}),
        ({"next_page_token": "abc"}, {"page_token": "abc"}),
        ({"next": "https://api.runpod.io/v2/pods?cursor=abc", "hasMore": True}, {"cursor": "abc"}),
        ({"hasMore": True}, None),
        ({"pagination": {"hasNextPage": True, "nextCursor": "abc"}}, {"cursor": "abc"}),
        ({"meta": {"nextPage": 2}}, {"page": "2"}),
        ({"meta": {"total": 2}}, None),
        ({"totalPages": 2}, None),
        ({"pagination": {"hasNextPage": True, "endCursor": "abc"}}, None),
        ({"links": {"next": {"href": "/v2/pods?cursor=abc"}}}, None),
    ],
)
def test_lists_are_followed_however_they_go_on(clock: Clock, more: Any, second: Any) -> None:
    calls: list[dict[str, str]] = []

    def send(call: RestCall, deadline: float) -> RestAnswer:
        calls.append(dict(call.query))
        first = len(calls) == 1
        return RestAnswer(200, {}, json.dumps({"pods": [len(calls)], **(more if first else {})}).encode())

    found = Client("key", clock.now, send=send).listed("pods", "pods")
    if second is None:
        with pytest.raises(Transient, match="goes on"):
            list(found)
        return
    assert list(found) == [1, 2] and calls[1] == second


def test_an_account_calls_no_more_often_than_it_may(fake: Runpod, clock: Clock) -> None:
    fake.script.rates["*"] = Rate(60, MINUTE)
    backend = RunpodBackend(CONFIG, Client(KEY, clock.now, send=sender(fake)), clock.now)
    early = 0
    for _ in range(200):
        try:
            list(backend.list_owned_volumes())
        except Throttled:
            early += 1
        clock.passes(0.6)
    assert early and len(fake.calls) == 200 - early, "none of them was refused by Runpod"
    for most, seconds in ((60, 60), (3_000, 3_600), (50_000, 86_400)):  # Runpod's three windows
        assert BURST + RATE * seconds <= most


def test_a_log_that_begins_late_and_never_ends_is_read_as_far_as_it_is() -> None:
    begin, go_on = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            begin.wait(120)
            self.wfile.write(b'data: {"source": "system", "line": "manifest unknown"}\n\n')
            self.wfile.flush()
            go_on.wait(120)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        threading.Timer(2 * QUIET, begin.set).start()
        found = _listened(RestCall("GET", f"http://127.0.0.1:{server.server_port}", "/"), 60.0)
        go_on.set()
        thread.join()
    assert found.status == 200 and b"manifest unknown" in found.body
