"""The limits that clients and agents depend on: changing one breaks a promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chalicelib.agent.kernel.tasks import SLOT_BYTES
from chalicelib.agent.program import session
from chalicelib.domain.instants import MINUTE
from chalicelib.errors import Refused
from chalicelib.planning.jobs import jobs
from chalicelib.planning.machines import fleet, hosts
from chalicelib.planning.placing import buying
from chalicelib.planning.runs import agent_reports
from chalicelib.store import port, sqlite
from chalicelib.usecases import offer_lists, specs
from chalicelib.usecases.agents import joins
from chalicelib.usecases.context import JobImages, SizeLimits
from chalicelib.usecases.operator import events
from chalicelib.usecases.people import projects
from chalicelib.usecases.runs import logs, metrics
from tests.api.rig import Rig, task

MB = 1024 * 1024


def test_what_one_request_may_bring_and_take() -> None:
    assert SizeLimits() == SizeLimits(body=8 * MB, upload=2 * MB, answer=4 * MB, log_bytes_per_hour=50 * MB)
    assert (specs.MAX_SPEC, projects.MAX_OWNED, projects.MAX_MEMBERS) == (250_000, 10, 49)
    specs.refuse_large(specs.MAX_SPEC)
    with pytest.raises(Refused, match="limit is 250 KB"):
        specs.refuse_large(specs.MAX_SPEC + 1)


@pytest.mark.parametrize("call", ["get_plan", "apply"])
def test_a_specification_that_is_too_large_has_the_size_that_was_written(tmp_path: Path, call: str) -> None:
    """What is made of it counts, too, and is told apart."""
    spec = task(commands=[f"true {'x' * 14_000}"] * 10)
    body = {"run_spec": spec} if call == "get_plan" else {"plan": {"run_spec": spec}}
    error = Rig.at(tmp_path).refused(f"P/runs/{call}", body)
    assert re.search(r"has 140 KB, and what its jobs get of it has 14\d KB; the limit is 250 KB for both\.", error), (
        error
    )


def test_commands_with_which_a_machine_joins() -> None:
    assert (joins.LEAST_SECONDS, joins.MOST_SECONDS, joins.MAX_INSPECTION) == (60, 7 * 24 * 3600, 16 * 1024)
    assert (joins.MOST_UNUSED, joins.MOST_SPENT) == (100, 100)


def test_pages() -> None:
    assert (events.PAGE, metrics.MAX_POINTS) == (100, 1000)
    assert offer_lists.DEFAULT_OFFERS == 50
    assert (events.SCANNED, events.MOST) == (1_000, 20_000), "records that one call reads"
    assert logs.MAX_BYTES == 1_500_000, "as base64 it must fit into an answer"


def test_default_images() -> None:
    assert JobImages() == JobImages("python:{python}", "nvidia/cuda:12.8.1-devel-ubuntu24.04", "3.12", "docker:28-dind")


def test_what_a_record_and_a_commit_may_hold() -> None:
    assert (port.MAX_CHANGES, port.MAX_BODY, port.MAX_COMMIT) == (100, 300_000, 3_500_000), "less than DynamoDB's"
    assert (port.MAX_PARTITION, port.MAX_SORT) == (2048, 1024), "DynamoDB's own"


def test_a_data_folder_of_the_first_version_is_read_as_it_is() -> None:
    assert sqlite.SCHEMA == 1


def test_a_record_of_the_agent_fits_a_block_of_the_disk() -> None:
    assert SLOT_BYTES <= 4096 - 1, "it is overwritten in place"


def test_patience_that_users_read_of() -> None:
    assert (jobs.RETRY_DURATION, agent_reports.MAX_TEXT) == (3600, 1000)
    assert (buying.MOST_TRIED, fleet.MOST_PAUSES) == (25, 15)
    assert [pause // MINUTE for pause in fleet.PAUSES] == [1, 2, 5, 10, 30], "after machines that failed"
    assert (fleet.MAX_IN_FLIGHT, hosts.MAX_IN_FLIGHT) == (100, 100), "machines of one fleet"
    assert session.BACKOFF_MOST == 60
