"""Google's answers that can't be read, or that don't say everything: what they prove, and what they don't."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from chalicelib.backends.gcp.client import DEADLINE, GcpClients
from chalicelib.backends.spi import Machine
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone, InsufficientCapacity, MissingPermission, Transient, Unfit
from tests.backends.fakes.script import Answer, Fault
from tests.backends.fakes.transport import sender
from tests.backends.gcp.conftest import Site
from tests.backends.gcp.fake import PROJECT, TOKEN

HTML = Answer(200, "<html>This proxy is busy</html>", {"content-type": "text/html"})
OVER = "LIST_OVERHEAD_QUOTA_EXCEED"


def bought(site: Site, name: str = "one", **other: Any) -> list[Handle]:
    made = list(site.backend.create(site.request(name, **other)))
    site.clock.passes(60)
    return made


@pytest.mark.parametrize(
    "answer", [HTML, Answer(200, None), Answer(200, {"name": {"a": 1}})], ids=["html", "empty", "wrong"]
)
def test_a_launch_whose_answer_cant_be_read_may_have_launched(site: Site, answer: Answer) -> None:
    site.fake.script.faults.append(Fault("instances.insert", answer, "after"))
    with pytest.raises(Transient, match="can't be read"):
        bought(site)
    assert [each.id for each in bought(site)] == [*site.provider.existing()], "the same request finds it"


def test_a_request_that_google_doesnt_have_is_ours(site: Site) -> None:
    with pytest.raises(Unfit, match="can't be requested like this"):
        site.clients().call("instances.insert", zone="us-central1-a", body={"colour": "red"})
    assert not site.fake.calls


@pytest.mark.parametrize("region", ["", "us-central1"])
@pytest.mark.parametrize("code", ["UNREACHABLE", "PARTIAL_SUCCESS", OVER, "EXTERNAL_API_WARNING"])
def test_a_list_with_a_warning_is_incomplete(site: Site, code: str, region: str) -> None:
    """Whichever region it is of: this warning names none."""
    bought(site)
    warning = {"code": code, "message": "so the test wants it"}
    site.fake.script.faults.append(
        Fault("instances.aggregatedList", lambda body: {**body, "items": {}, "warning": warning})
    )
    with pytest.raises(Transient, match=code):
        list(site.backend.list_owned(region=region))


def test_a_place_with_a_warning_makes_a_list_incomplete(site: Site) -> None:
    bought(site)
    here = {"zones/us-central1-a": {"warning": {"code": OVER, "message": "too much"}}}

    def listed(region: str) -> list[Any]:
        site.fake.script.faults.append(Fault("instances.aggregatedList", lambda body: {**body, "items": here}))
        return list(site.backend.list_owned(region=region))

    with pytest.raises(Transient, match=OVER):
        listed("us-central1")
    assert listed("europe-west4") == []


def test_a_deprecated_resource_makes_no_list_incomplete(site: Site) -> None:
    made = bought(site)
    warning = {"code": "DEPRECATED_RESOURCE_USED", "message": "an old image"}
    site.fake.script.faults.append(Fault("instances.aggregatedList", lambda body: {**body, "warning": warning}))
    assert [each.handle.id for each in site.backend.list_owned()] == [each.id for each in made]


def test_a_machine_that_a_list_lacks_is_looked_up(site: Site) -> None:
    """Somebody may have removed its label."""
    machines = [bought(site, name) for name in ("one", "two", "three")]
    del site.provider.machine(machines[1]).facts["body"]["labels"]["dstack-install"]
    found = site.backend.describe_several(machines)
    assert [isinstance(each, Machine) and each.state for each in found] == ["running"] * 3
    assert len(site.fake.calls_of("instances.get")) == 1, "those that are listed aren't looked up"


def test_a_project_that_cant_be_seen_proves_nothing_about_its_machines(site: Site) -> None:
    """Google answers so, too, if the credentials have lost their role."""
    made = bought(site)

    def lost(operation: str, path: str) -> None:
        site.refuses(operation, 404, "notFound", f"The resource 'projects/{path}' was not found")

    for path in ("my-project", "my-project/zones/us-central1-a"):
        lost("instances.get", path)
        with pytest.raises(MissingPermission):
            site.backend.describe(made)
        lost("instances.delete", path)
        with pytest.raises(MissingPermission):
            site.backend.terminate(made[-1])
    lost("instances.aggregatedList", "my-project/zones/us-central1-a/instances/one")
    with pytest.raises(MissingPermission):
        list(site.backend.list_owned())


def test_what_neither_a_machine_nor_its_operations_show_may_show_later(site: Site) -> None:
    made = list(site.backend.create(site.request()))
    path = f"my-project/zones/{made[-1].data['zone']}/instances/{made[-1].id}"
    for call in (lambda: site.backend.terminate(made[-1]), lambda: site.backend.describe(made)):
        site.refuses("instances.*", 404, "notFound", f"The resource 'projects/{path}' was not found")
        site.fake.script.faults.append(Fault("zoneOperations.list", lambda body: {}))
        with pytest.raises(Transient, match="yet"):
            call()
    assert list(site.backend.create(site.request())) == made
    assert [each.handle for each in site.backend.list_owned()] == made


def test_a_spot_machine_that_was_taken_back_unseen_had_no_room(site: Site) -> None:
    """So its job gets another offer, if it has never run."""
    made = list(site.backend.create(site.request(spot=True)))
    site.fake.preempted(site.provider.machine(made))
    site.clock.passes(60)
    with pytest.raises(Gone, match="Google has taken it back") as gone:
        site.backend.describe(made)
    assert gone.value.refused is InsufficientCapacity


def test_a_zone_of_another_region_stops_no_purchase(site: Site) -> None:
    name = site.fake.reserve("us-central1-c", "n2-standard-2", 1)
    site.fake.unreachable.add("europe-west4-a")
    list(site.backend.create(replace(site.request(), reservation=name, zones=("us-central1-c",))))
    assert site.fake.in_use(name) == 1
    assert site.new(site.configured(regions=["us-central1"])).offers()
    for regions in (None, ["us-central1", "europe-west4"]):
        with pytest.raises(Transient, match="europe-west4-a"):
            site.new(site.configured(regions=regions)).offers()
    site.fake.unreachable.add("us-central1-c")
    with pytest.raises(Transient, match="us-central1-c"):
        list(site.backend.create(site.request("two")))


def test_a_reservation_is_of_a_zone(site: Site) -> None:
    """Another zone may have one of the same name."""
    names = {site.fake.reserve(zone, "n2-standard-2", 1) for zone in ("us-central1-a", "us-central1-c")}
    for each in site.fake.books.existing("reservation"):
        each.facts["name"] = "ours"
    request = replace(site.request(), reservation="ours")
    assert len(names) == 2
    (made,) = site.backend.create(replace(request, zones=("us-central1-c",)))
    assert made.data["zone"] == "us-central1-c"
    with pytest.raises(Unfit, match="ours is in us-central1-a, us-central1-c, not in us-central1-b"):
        list(site.backend.create(replace(site.request("two"), reservation="ours", zones=("us-central1-b",))))


def test_a_retired_image_is_no_machine_that_is_gone(site: Site) -> None:
    path = "projects/deeplearning-platform-release/global/images/family/common"
    site.refuses("images.getFromFamily", 404, "notFound", f"The resource '{path}' was not found", times=2)
    with pytest.raises(Unfit, match="no longer has the images"):
        site.backend.check()
    with pytest.raises(Unfit, match="no longer has the images"):
        list(site.backend.create(site.request()))


def test_each_subnetwork_that_is_named_is_checked(site: Site) -> None:
    for subnetworks, text in (
        ({"us-central1": "typo"}, "no subnetwork typo in us-central1"),
        ({"us-centrel1": "training"}, "no region us-centrel1"),
    ):
        with pytest.raises(Unfit, match=text):
            site.new(site.configured(subnetworks=subnetworks)).check()
    site.new(site.configured(subnetworks={"us-central1": "training"})).check()


def test_a_launch_that_was_prepared_too_slowly_isnt_begun(site: Site) -> None:
    """Its effect might come after the next purchase has looked for it."""

    def slowly(body: Any) -> Any:
        site.clock.passes(61)
        return body

    site.fake.script.faults.append(Fault("images.getFromFamily", slowly))
    with pytest.raises(Transient, match="answers slowly"):
        list(site.backend.create(site.request()))
    assert not site.fake.calls_of("instances.insert")
    assert list(site.backend.create(site.request())), "what was looked up is known now"


class _Login:
    """Credentials that ask Google for a token before each call."""

    def before_request(self, request: Any, method: str, url: str, headers: dict[str, str]) -> None:
        self.timeout = request.keywords.get("timeout") if isinstance(request, partial) else None
        headers["authorization"] = f"Bearer {TOKEN}"


def test_a_login_has_the_deadline_of_a_call(site: Site) -> None:
    login = _Login()
    GcpClients(None, PROJECT, now=site.clock.now, login=lambda: login, send=sender(site.fake)).allowed(["x.y.z"])
    assert login.timeout == DEADLINE
