"""A journey in each cloud: from `dstack backend add` to the last resource, with a machine that a real host is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.clouds.cloud import CLOUDS, METADATA
from tests.e2e.clouds.rental import Clouds, Rental, clouds_at
from tests.harness.server import until

WAITS = "trap 'echo told; exit 0' TERM; echo up on $(hostname); while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    with clouds_at(tmp_path_factory.mktemp("clouds")) as made:
        yield made


@pytest.mark.parametrize("name", CLOUDS)
def test_a_machine_is_bought_works_idles_and_is_gone(clouds: Clouds, name: str) -> None:
    with clouds.rental(name) as rental:
        what_is_lacking_is_named(rental)
        rental.fleet()
        rental.task(WAITS)
        rental.boot()
        until("the job to run", lambda: "up on" in rental.logs())
        assert rental.cloud.billed() > 0
        rental.stop()
        until("the run to end", lambda: rental.run()["status"] == "terminated")
        until("its last line", lambda: "told" in rental.logs())
        until("the machine to be given back", rental.gone)
        assert "dstack-token" not in rental.host.run("ls", "-R", "/var/lib/dstack", check=False).stdout
        assert len(rental.cloud.machines()) == 1, "one was needed, and each is billed"
        assert rental.cloud.billed() == 0


def what_is_lacking_is_named(rental: Rental) -> None:
    check = ("backend", "check", rental.cloud.type)
    lacks = rental.cloud.deny()
    said = rental.lab.server.cli(*check, check=False)
    assert not [each for each in lacks if each not in said] and "works" not in said, said
    rental.cloud.allow()
    assert rental.lab.server.cli(*check) == f"{rental.cloud.type}: works\n"


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_a_spot_machine_hears_its_notice_and_its_job_is_tried_again(clouds: Clouds, name: str) -> None:
    with clouds.rental(name, f"{name}-spot") as rental:
        with_metadata(rental)
        rental.fleet(spot_policy="spot", nodes="0..2")  # room for another while the first one ends
        rental.task(WAITS, spot_policy="spot", retry={"on_events": ["interruption"], "duration": "1h"})
        script, machine = rental.boot(), rental.running()
        assert "--notices " in script
        until("the job to run", lambda: "up on" in rental.logs())
        rental.host.write("/run/spot-notice", '{"action": "terminate", "time": "2099-01-01T00:00:00Z"}')
        until("the job to be told", lambda: "told" in rental.logs())
        first = until("the first submission to end", lambda: ended(rental.run()))
        assert first["termination_reason"] == "interrupted_by_no_capacity"
        until("another machine", lambda: rental.running() not in (None, machine))
        rental.stop()


def with_metadata(rental: Rental) -> None:
    host = rental.host
    host.systemctl("stop", "metadata", check=False)  # another cloud's
    host.run("rm", "-f", "/run/spot-notice")
    host.run("ip", "address", "replace", "169.254.169.254/32", "dev", "lo")
    host.write("/usr/local/bin/metadata", rental.cloud.notices + METADATA)
    host.run("systemd-run", "--unit=metadata", "python3", "/usr/local/bin/metadata")


def ended(run: dict[str, Any]) -> dict[str, Any] | None:
    submissions = run["jobs"][0]["job_submissions"]
    return next((each for each in submissions if each["termination_reason"]), None)
