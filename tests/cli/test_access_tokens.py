"""`dstack token`, on the API itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.domain.access_tokens import FORM
from cli.connection.config import ProjectEntry, config_path, save_projects
from cli.connection.session import names_path, read_names
from tests.api.rig import ADMIN, Rig, submit, task
from tests.cli.conftest import Dstack
from tests.cli.printed import RealPlane
from tests.cli.test_people import become, done, names, refused


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RealPlane]:
    found = RealPlane()
    (tmp_path / "api").mkdir()
    found.rig = Rig.at(tmp_path / "api")
    yield found
    found.rig.world.plane.store.close()


@pytest.fixture
def admin(bare: Dstack, plane: RealPlane) -> Dstack:
    save_projects(config_path(bare.terminal.home), [ProjectEntry("main", plane.url, ADMIN, True)])
    return bare


def test_the_text_alone_is_printed_and_what_it_may_do_beside_it(admin: Dstack) -> None:
    made = admin("token", "create", "ci", "--verb", "run", "--for", "main", "--expires", "7d")
    assert made.code == 0 and FORM.fullmatch(made.out.strip())
    assert "ci may read, run in main, until " in " ".join(made.err.split())
    seen = json.loads(done(admin, "token create nightly --json"))
    assert FORM.fullmatch(seen["token"]) and seen["access_token"]["verbs"] == ["read"]
    assert "token" not in seen["access_token"]
    everywhere = admin("token", "create", "all", "--verb", "fleets")
    assert "all may read, fleets in all your projects, until " in " ".join(everywhere.err.split())


def test_a_limit_in_dollars_is_shown_with_what_is_spent(admin: Dstack) -> None:
    free = done(admin, "token create free")
    assert free and "SPENT" not in done(admin, "token list")
    made = admin("token", "create", "ci", "--verb", "run", "--dollars-a-day", "5")
    assert "ci may read, run in all your projects, for $5.00 a day, until " in " ".join(made.err.split())
    shown = done(admin, "token list")
    assert "SPENT TODAY" in shown and "$0.00 of $5.00" in shown
    assert "add the verb `run`, or leave it out" in refused(admin, "token create look --dollars-a-day 5")


def test_a_command_works_with_a_token_as_far_as_its_verbs_go(admin: Dstack, plane: RealPlane) -> None:
    submit(plane.rig, task("train"))
    reads = done(admin, "token create look").strip()
    become(admin, plane, reads)
    assert names(done(admin, "ps -a")) == ["train"]
    assert "lacks the verb `run` and has `read`" in refused(admin, "stop train -y")
    assert "use your own token" in refused(admin, "token list")
    become(admin, plane, ADMIN)
    runs = done(admin, "token create ci --verb run --for main").strip()
    become(admin, plane, runs)
    done(admin, "stop train -y")
    assert "lacks the verb `project`" in refused(admin, "secret list")


def test_a_revoked_token_is_refused_and_the_list_is_without_it(admin: Dstack, plane: RealPlane) -> None:
    text = done(admin, "token create ci").strip()
    plane.rig.world.clock.pass_(1)
    done(admin, "token create nightly --verb run")
    assert names(done(admin, "token list")) == names(done(admin, "token")) == ["nightly", "ci"]
    assert set(read_names(names_path(admin.terminal.home))["token"]) == {"ci", "nightly"}
    assert "Nothing was changed" in admin("token", "revoke", "ci", answers="n\n").out
    assert done(admin, "token revoke ci -y") == "The access token ci is revoked.\n"
    assert names(done(admin, "token list")) == ["nightly"]
    assert "no access token 'ci'" in refused(admin, "token revoke ci -y")
    become(admin, plane, text)
    assert "This access token was revoked" in refused(admin, "ps")


def test_an_admin_sees_those_of_others_and_replacing_their_token_says_that_these_stay(
    admin: Dstack, plane: RealPlane
) -> None:
    ann = plane.rig.user("ann")
    become(admin, plane, ann)
    done(admin, "token create ci")
    assert "Only an admin" in refused(admin, "token list --user admin")
    become(admin, plane, ADMIN)
    assert names(done(admin, "token list --user ann")) == ["ci"] and "ci" not in done(admin, "token list")
    replaced = admin("user", "token", "ann", "-y")
    assert "Still valid: the access token ci." in " ".join(replaced.err.split())
    assert done(admin, "token revoke ci --user ann -y") == "The access token ci of ann is revoked.\n"
    assert "Still valid" not in admin("user", "token", "ann", "-y").err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("token create ci --verb fly", "verbs"),
        ("token create ci --for nowhere", "there is no project nowhere, or you aren't a member of it"),
        ("token create ci --expires 400d", "a token is valid for a minute to a year"),
        ("token create ci/x", "a name has 1 to 60 letters, digits, - and _"),
    ],
)
def test_what_no_token_can_be_is_refused(admin: Dstack, line: str, why: str) -> None:
    assert why in refused(admin, line)
    assert names(done(admin, "token list")) == []
