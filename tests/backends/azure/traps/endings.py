"""What a machine leaves behind."""

from __future__ import annotations

import pytest

from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import Gone, InsufficientCapacity, Transient
from tests.backends.azure.account import Account
from tests.backends.azure.traps.common import PARTS, failing
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import is_gone
from tests.backends.fakes.script import Cut, Fault

# --- what a machine leaves behind -------------------------------------------------------------------------------------


def nothing_of_a_machine_stays(account: Account) -> None:
    """By default its card, address and disk would."""
    account.end(account.running())
    account.clock.passes(60)
    assert not [each for each in account.fake.books.existing() if each.kind in ("vm", *PARTS)]


def an_offer_costs_what_is_billed(account: Account) -> None:
    for spot in (False, True):
        offer = account.offer(spot=spot).sized(256)
        handles = list(account.backend.create(request_for(offer)))
        assert account.fake.billed() == pytest.approx(offer.price, rel=1e-3)
        account.end(handles)
        assert account.fake.billed() == 0.0


def nothing_of_a_machine_stays_at_once(account: Account) -> None:
    """Each part goes with it, and not because somebody looks for it later."""
    handles = account.running()
    account.backend.terminate(handles[0])
    account.clock.passes(60)
    assert account.left() == set()


def a_spot_machine_that_is_taken_back_leaves_nothing(account: Account) -> None:
    handles = account.running(spot=True)
    account.fake.evict(account.provider.machine(handles))
    account.clock.passes(60)
    assert account.left() == set()
    text, refused = account.refusal(handles)
    assert refused is InsufficientCapacity and "takes spot machines back" in text


def a_spot_machine_that_is_being_deleted_was_taken_back(account: Account) -> None:
    spot, regular = account.running(spot=True), account.running("two")
    account.fake.evict(account.provider.machine(spot))
    account.clock.passes(35)
    assert account.provider.machine(spot).state(account.clock.now()) == "Deleting"
    with pytest.raises(Gone, match="takes spot machines back") as gone:
        account.backend.describe(spot)
    assert gone.value.refused is InsufficientCapacity
    account.backend.terminate(regular[0])
    with pytest.raises(Gone, match="is being deleted") as ended:
        account.backend.describe(regular)
    assert ended.value.refused is None


def the_parts_of_a_failed_machine_end_with_it(account: Account) -> None:
    account.fake.why_not, account.fake.survives = "AllocationFailed", PARTS
    handles = account.made()
    account.refusal(handles)
    account.end(handles)
    assert account.left() == set()


def what_no_list_shows_yet_isnt_forgotten(account: Account) -> None:
    account.fake.why_not, account.fake.survives = "AllocationFailed", PARTS
    account.fake.fails_after, account.fake.end = 1 * SECOND, 2 * SECOND
    account.fake.script.lag = 55 * SECOND
    handles = account.made()
    for _ in range(40):
        account.clock.passes(5)
        if is_gone(account.backend, handles[0]):
            assert account.left() == set()
            return
    pytest.fail("it never ended")


def a_card_that_is_reserved_is_waited_for(account: Account) -> None:
    account.fake.survives, account.fake.reserved = PARTS, 3 * MINUTE
    account.end(account.running())
    assert account.left() == set()


def leftovers_are_swept(account: Account) -> None:
    """Though nobody knows the machine any more."""
    account.fake.survives = PARTS
    account.fake.lose(account.provider.machine(account.running()))
    assert len(account.left()) == 2, "the address is the card's"
    account.sweep()
    assert account.left() == set()


def leftovers_that_name_a_machine_that_is_gone_are_swept(account: Account) -> None:
    account.fake.survives = account.fake.clings = PARTS
    account.fake.lose(account.provider.machine(account.running()))
    account.sweep()
    assert account.left() == set()


def what_a_machine_has_that_no_list_shows_is_no_leftover(account: Account) -> None:
    """Its parts may be listed before it is."""
    handles = account.running()
    account.fake.script.faults.append(Fault("VirtualMachines_list", lambda body: {**body, "value": []}))
    assert list(account.backend.list_owned()) == []
    assert [each.handle for each in account.backend.list_owned()] == handles


def what_a_machine_elsewhere_has_is_no_leftover(account: Account) -> None:
    """Somebody has given it to a machine of another resource group, which the login may not see."""
    account.fake.survives = account.fake.clings = PARTS
    account.fake.lose(account.provider.machine(account.running()))
    (disk,) = [each for each in account.fake.books.existing("disk")]
    disk.facts["machine"] = disk.facts["machine"].replace("/dstack/", "/theirs/")
    assert {each.handle.kind for each in account.backend.list_owned()} == {"nic"}


def a_machine_that_goes_before_it_is_deleted_leaves_nothing(account: Account) -> None:
    handles = account.running()
    account.fake.script.faults.append(Fault("VirtualMachines_delete", failing("ResourceNotFound", status=404)))
    account.end(handles)
    assert account.left() == set()


def leftovers_that_bear_tags_alone_are_swept(account: Account) -> None:
    """Azure might give them any names."""
    account.fake.survives = PARTS - {"disk"}
    account.fake.lose(account.provider.machine(account.running()))
    (card,), (address,) = account.fake.books.existing("nic"), account.fake.books.existing("address")
    card.facts["path"] = card.facts["path"].replace(card.facts["path"].rpartition("/")[2], "nic-0a1b2c3d")
    address.facts["path"] = address.facts["path"].replace(address.facts["path"].rpartition("/")[2], "ip-0a1b2c3d")
    card.facts["address"], address.facts["card"] = address.facts["path"], card.facts["path"]
    account.sweep()
    assert account.left() == set()


def a_lost_creation_is_swept(account: Account) -> None:
    account.fake.script.faults.append(Fault("VirtualMachines_create_or_update", Cut, "after"))
    with pytest.raises(Transient):
        account.made()
    assert account.left()
    account.sweep()
    assert account.left() == set()


def a_machine_that_somebody_stopped_is_no_machine(account: Account) -> None:
    """It is billed all the same, and ended."""
    handles = account.running()
    account.provider.machine(handles).facts["power"] = "stopped"
    text, refused = account.refusal(handles)
    assert "somebody has stopped it" in text and refused is None
    account.end(handles)
    assert account.left() == set()


def a_spot_machine_that_is_deallocated_was_taken_back(account: Account) -> None:
    handles = account.running(spot=True)
    account.provider.machine(handles).facts["power"] = "deallocated"
    text, refused = account.refusal(handles)
    assert "Azure has taken it back" in text and refused is InsufficientCapacity
    account.end(handles)
    assert account.left() == set()


def a_machine_that_is_stuck_isnt_gone(account: Account) -> None:
    handles = account.running()
    account.fake.stuck = True
    for _ in range(30):
        account.clock.passes(10)
        assert not is_gone(account.backend, handles[0])
    assert account.sent("VirtualMachines_delete") == 1, "a machine takes four writes a minute"


def a_lost_end_is_asked_for_again(account: Account) -> None:
    handles = account.running()
    account.fake.script.faults.append(Fault("VirtualMachines_delete", Cut))
    account.end(handles)
    assert account.left() == set()


def a_machine_with_volumes_isnt_cut_off(account: Account) -> None:
    """What it has written would be lost."""
    handles, forced = account.running(), account.running("two")
    machine = account.provider.machine(handles)
    account.fake.with_disk("/x/disks/data", "westeurope", ["1"], 8, machine=machine.facts["path"], lun=0, tags={})
    for each in (handles, forced):
        account.backend.terminate(each[0])
    asked = [call.query.get("forceDeletion") for call in account.fake.calls_of("VirtualMachines_delete")]
    assert asked == [None, True]


def machines_that_end_together_share_lists(account: Account) -> None:
    """Azure allows few of them a minute. Each pass over a machine that ends begins with what is its own."""
    made = [account.running(f"n{n}") for n in range(6)]
    names = {kind: f"{kind}_list" for kind in ("VirtualMachines", "NetworkInterfaces", "PublicIPAddresses")}
    account.clock.passes(5)
    before = {kind: account.sent(name) for kind, name in names.items()}
    for each in made:
        instance = account.provider.machine(each).facts["body"]["tags"]["dstack-instance"]
        assert [owned.handle for owned in account.backend.list_owned(instance, "westeurope")] == each
        account.backend.terminate(each[0])
    assert {kind: account.sent(name) - before[kind] for kind, name in names.items()} == dict.fromkeys(names, 1)


def only_its_own_leftovers_are_ended(account: Account) -> None:
    account.fake.survives = PARTS
    theirs = account.running("two")
    account.end(account.running())
    assert account.left() == {theirs[0].id}
    assert account.backend.describe(theirs).state == "running"
