"""Faults of `create` and `create_several`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from chalicelib.backends.spi import CreateRequest, CreateResult
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.errors import BackendError, Unfit
from tests.backends.conformance.suite import offers_of
from tests.backends.planted.port import PortFault, case, forgotten, noticed_by, other_request, settings_of

# --- another request than was made -----------------------------------------------------------------------------------


@other_request(
    "repeated_create_adopts",
    "the_token_finds_at_once_what_the_first_call_made",
    "two_calls_at_once_make_one_machine",
    case("create_that_was_cut_short_goes_on", after=1),
    case("create_that_was_cut_short_goes_on", after=3),
    "an_answer_that_is_lost_is_made_good",
    "an_answer_lost_in_another_zone_is_no_second_machine",
    "a_quota_that_is_used_up_hides_nothing_that_exists",
    "several_are_created_as_each_would_be_alone",
    "an_answer_that_was_lost_is_made_good_one_by_one",
)
def ignores_the_token(request: CreateRequest) -> CreateRequest:
    return forgotten(request)  # type: ignore[no-any-return]


@other_request("another_epoch_is_another_machine")
def takes_every_epoch_for_one(request: CreateRequest) -> CreateRequest:
    return replace(request, token=request.instance_id, name=request.name[:-3] + "000")


@other_request("machines_asked_for_at_the_same_time_are_all_made")
def takes_every_machine_for_one(request: CreateRequest) -> CreateRequest:
    return replace(request, token="machine", name="machine")


@other_request("the_boot_script_arrives_byte_for_byte")
def strips_the_boot_script(request: CreateRequest) -> CreateRequest:
    container = request.container
    if container is not None:
        stripped = tuple(part.strip() for part in container.command)
        return replace(request, container=replace(container, command=stripped))
    return replace(request, user_data=request.user_data.strip())


@other_request("the_disk_is_as_large_as_requested")
def buys_the_usual_disk(request: CreateRequest) -> CreateRequest:
    return replace(request, disk_mib=request.offer.instance.resources.disk.size_mib)


@other_request("tags_are_as_requested_at_their_limits")
def drops_the_tags_of_users(request: CreateRequest) -> CreateRequest:
    return replace(request, tags=request.tags[:5])


@other_request("every_resource_bears_the_owner_tag", "the_epoch_is_listed", "owned_can_be_asked_of_one_instance")
def drops_the_owner_tags(request: CreateRequest) -> CreateRequest:
    tags = (tag for tag in request.tags if tag[0] in ("dstack-install", "dstack-name"))
    return replace(request, tags=tuple(tags), name="machine")


@other_request("a_machine_is_in_a_zone_that_was_asked_for")
def ignores_the_zones(request: CreateRequest) -> CreateRequest:
    return replace(request, zones=request.offer.availability_zones)


@other_request(
    case("a_reservation_that_is_not_there_now_cannot_be_bought_from", state="expired"),
    "a_machine_is_launched_into_its_reservation_alone",
    "a_full_reservation_has_no_capacity",
    "a_reservation_of_something_else_is_refused",
)
def ignores_the_reservation(request: CreateRequest) -> CreateRequest:
    return replace(request, reservation=None)


@other_request("a_machine_can_only_join_a_group_that_exists")
def ignores_the_placement_group(request: CreateRequest) -> CreateRequest:
    return replace(request, placement_group=None)


@other_request("a_gateways_machine_opens_its_ports_and_no_other", "one_without_https_opens_one_port")
def opens_a_port_more(request: CreateRequest) -> CreateRequest:
    return replace(request, open_ports=(*request.open_ports, 8080) if request.open_ports else ())


@other_request("no_other_machine_opens_any")
def opens_the_ports_of_every_machine(request: CreateRequest) -> CreateRequest:
    return replace(request, open_ports=(80, 443))


@other_request("an_answer_lost_in_another_zone_is_no_second_machine")
def ignores_which_zone_was_tried(request: CreateRequest) -> CreateRequest:
    return replace(request, trying="")


# --- another answer than was given -----------------------------------------------------------------------------------


@noticed_by(
    "created_machine_runs_in_time",
    "all_that_is_made_is_yielded",
    case("what_was_yielded_is_all_that_must_be_ended", after=3),
)
class ForgetsTheLastHandle(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        yield from list(self.inner.create(request))[:-1]


@noticed_by("an_answer_lost_in_another_zone_is_no_second_machine")
class NeverNamesTheZoneThatItTries(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return (handle for handle in self.inner.create(request) if handle.kind != TRYING)


@noticed_by("nothing_is_made_before_it_is_asked_for", "nothing_of_several_is_made_before_it_is_asked_for")
class MakesEverythingAtOnce(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return iter(list(self.inner.create(request)))

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        return iter(list(self.inner.create_several(requests)))


@noticed_by("handles_are_plain_data")
class YieldsMoreThanPlainData(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        for handle in self.inner.create(request):
            yield handle.with_(data={**handle.data, "disk": object()})


@noticed_by("the_longest_name_is_taken")
class TakesShortNamesOnly(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        if len(request.name) > 50:
            raise Unfit(f"{request.name} is too long")
        return self.inner.create(request)  # type: ignore[no-any-return]


@noticed_by("what_isnt_sold_is_refused")
class SellsSomethingElseInstead(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        sold = [offer for offer in offers_of(self.inner) if offer.region == request.offer.region]
        known = {offer.instance.name for offer in sold}
        instead = request if request.offer.instance.name in known else replace(request, offer=sold[0])
        return self.inner.create(instead)  # type: ignore[no-any-return]


@noticed_by("a_creation_that_fails_leaves_only_what_it_yielded")
class TriesAgainUnderAnotherToken(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        try:
            yield from self.inner.create(request)
        except BackendError:
            yield from self.inner.create(forgotten(request))


@noticed_by("strangers_are_neither_adopted_nor_touched")
class AdoptsWhateverIsThere(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        there = [owned.handle for owned in self.inner.list_owned()]
        yield from there or self.inner.create(request)


@noticed_by("handles_and_what_is_listed_have_none")
class YieldsTheBootScript(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        for handle in self.inner.create(request):
            yield handle.with_(data={**handle.data, "script": settings_of(request)})


@noticed_by("logs_have_none")
class LogsItsRequests(PortFault):
    def create(self, request: CreateRequest) -> Iterator[Handle]:
        logging.getLogger(__name__).warning("creating %s: %s", request, settings_of(request))
        return self.inner.create(request)  # type: ignore[no-any-return]


@noticed_by("an_answer_that_was_lost_is_made_good_one_by_one", "several_are_created_as_each_would_be_alone")
class MakesOneOfSeveral(PortFault):
    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        for request in requests:
            made = list(self.inner.create_several([forgotten(requests[0])]))
            yield from (replace(each, token=request.token) for each in made)
