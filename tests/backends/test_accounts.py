"""Whose backends they are: one project's account is nobody else's, and facts cost neither an SDK nor a credential."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Script
from chalicelib.backends.spi import Backend
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.errors import InvalidCredentials, Refused
from chalicelib.store.blobs import checked

OWN, OTHER, NOBODYS = (derive("test", "project", name) for name in ("ours", "theirs", "nobodys"))
NIMBUS = BackendFacts(name="nimbus", title="Nimbus")


def cloud() -> FakeCloud:
    return FakeCloud(lambda: 0, script=Script(), facts=NIMBUS)


def never() -> Backend:
    raise AssertionError("nobody needs this backend")


def test_each_project_has_its_own() -> None:
    own, other = cloud(), cloud()
    accounts = Accounts([Account.of(own, OWN), Account.of(other, OTHER)])
    assert accounts.of(OWN, "nimbus") is own
    assert accounts.of(OTHER, "nimbus") is other
    assert [account.backend for account in accounts.accounts(OWN)] == [own]
    assert {account.backend for account in accounts.accounts()} == {own, other}


def test_what_serves_all_serves_each_beside_its_own() -> None:
    shared, own = Account(FACTS, never), Account(NIMBUS, never, OWN)
    accounts = Accounts([own, shared])
    assert set(accounts.accounts(OWN)) == {own, shared}
    assert list(accounts.accounts(OTHER)) == [shared]
    assert accounts.facts(OWN) == {FACTS.name: FACTS, "nimbus": NIMBUS}
    assert accounts.facts(OTHER) == {FACTS.name: FACTS}


def test_settings_may_differ_as_well() -> None:
    patient = NIMBUS.with_(batch=8)
    accounts = Accounts([Account(NIMBUS, never, OWN), Account(patient, never, OTHER)])
    assert (accounts.facts(OWN)["nimbus"].batch, accounts.facts(OTHER)["nimbus"].batch) == (0, 8)


@pytest.mark.parametrize("whose", [(OWN, OWN), (None, OWN), (OWN, None), (None, None)])
def test_two_under_one_name_are_refused(whose: tuple[str | None, str | None]) -> None:
    """As the hosted marketplace and the simulated cloud would be, whose wire name is the same."""
    other = NIMBUS.with_(title="Cumulus")
    with pytest.raises(Refused, match=r"the name `nimbus`: (Cumulus and Nimbus|Nimbus and Cumulus)"):
        Accounts([Account(NIMBUS, never, whose[0]), Account(other, never, whose[1])])


def test_a_key_is_stable_its_own_and_names_a_blob() -> None:
    keys = {Account(NIMBUS, never, project_id).key for project_id in (None, OWN, OTHER)}
    assert len(keys) == 3
    assert {checked(f"catalog/{key}/head.json") for key in keys}
    assert Account(NIMBUS, never, OWN).key == Account(NIMBUS.with_(batch=8), never, OWN).key


# --- what can't be asked ----------------------------------------------------------------------------------------------

EVERY_CALL: dict[str, Callable[[Backend], object]] = {
    "check": lambda backend: backend.check(),
    "offers": lambda backend: backend.offers(),
    "create": lambda backend: backend.create(None),  # type: ignore[arg-type]
    "describe": lambda backend: backend.describe(()),
    "terminate": lambda backend: backend.terminate(None),  # type: ignore[arg-type]
    "list": lambda backend: backend.list_owned(),
}


@pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL)
def test_a_backend_that_was_taken_out_says_so(call: Callable[[Backend], object]) -> None:
    accounts = Accounts([Account(NIMBUS, never, OTHER)])
    with pytest.raises(InvalidCredentials, match="nimbus isn't configured"):
        call(accounts.of(NOBODYS, "nimbus"))
    accounts.of(NOBODYS, "nimbus").close()


@pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL)
def test_a_backend_that_cannot_be_made_says_why(call: Callable[[Backend], object]) -> None:
    def lacking() -> Backend:
        raise Refused("The backend nimbus needs the Python package nimbus_sdk, which isn't installed.")

    accounts = Accounts([Account(NIMBUS, lacking)])
    with pytest.raises(InvalidCredentials, match="nimbus_sdk"):
        call(accounts.of(OWN, "nimbus"))
    assert accounts.of(OWN, "nimbus").facts == NIMBUS


def test_it_is_made_when_asked_for_once_and_again_after_a_failure() -> None:
    made: list[FakeCloud] = []
    fails = True

    def make() -> Backend:
        if fails:
            raise Refused("The key file isn't there.")
        made.append(cloud())
        return made[-1]

    account = Account(NIMBUS, make)
    with pytest.raises(InvalidCredentials, match="key file"):
        account.backend.check()
    fails = False
    account.backend.check()
    assert [account.backend] == made


def test_only_what_was_made_is_closed() -> None:
    closed: list[str] = []

    class Closing(FakeCloud):
        def close(self) -> None:
            closed.append(self.facts.name)

    accounts = Accounts([Account.of(Closing(lambda: 0), OWN), Account(NIMBUS, never, OWN)])
    accounts.of(OWN, FACTS.name)
    accounts.close()
    assert closed == [FACTS.name]
