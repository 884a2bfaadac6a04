"""A job at Vast.ai, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.registry import Row
from chalicelib.backends.vastai.backend import VastAIBackend
from chalicelib.backends.vastai.client import VastAIClient
from chalicelib.backends.vastai.config import VastAIBackendConfig
from chalicelib.backends.vastai.facts import FACTS
from chalicelib.backends.vastai.specs import VastAIProfileOptions
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from tests.backends.fakes.transport import sender
from tests.backends.journeys import applied, done, run_of, sold_as, staged
from tests.backends.vastai.fake import KEY, Vast
from tests.scenarios.stages import Virtual

BACKEND = f"type: vastai-fake\ncreds: {{type: api_key, api_key: {KEY}}}\n"
FLEET = "type: fleet\nname: pool\nnodes: 0..\nbackends: [vastai-fake]\nspot_policy: auto\n"
TASK = """\
type: task
name: work
image: ubuntu
commands: [python train.py]
backends: [vastai-fake]
spot_policy: spot
retry: {on_events: [interruption], duration: 1h}
backend_options: [{type: vastai-fake, offer_order: price, min_reliability: 0.9}]
resources: {gpu: "1", disk: 20GB..}
"""


class FakeConfig(VastAIBackendConfig):
    """Vast.ai's, under another name."""

    type: Literal["vastai-fake"] = Field(description="`vastai-fake`.")  # type: ignore[assignment]


class FakeOptions(VastAIProfileOptions):
    """Vast.ai's, under another name."""

    type: Literal["vastai-fake"] = Field(description="`vastai-fake`.")  # type: ignore[assignment]


class FakeBackend(VastAIBackend):
    facts = FACTS.with_(name="vastai-fake")
    accounts: ClassVar[list[Vast]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        (fake,) = self.accounts
        super().__init__(
            config, VastAIClient(config.creds.api_key, fake.now, send=sender(fake), burst=10_000), fake.now
        )

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        return sold_as("vastai-fake", super().offers_for(request))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", backend=f"{__name__}:FakeBackend", options=f"{__name__}:FakeOptions")
    with staged("vastai-fake", row, tmp_path, BACKEND, FakeBackend.accounts, Vast) as found:
        yield found


@pytest.mark.slow
def test_a_job_bids_and_bids_elsewhere_when_it_is_outbid_and_leaves_nothing_behind(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    fake.raised[101], fake.keeps_low_bids = 0.12, True  # the cheapest, until others bid more a moment later
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK)
    assert "RTX 4090" in plan and "us-california" in plan, plan
    assert fake.calls_of("searchOffers")[-1].body["order"][0] == ["min_bid", "asc"]
    fake.raised[101] = 0.9
    stage.until("its second bid", lambda: {each.facts["machine"] for each in fake.books.existing("vm")} == {102})
    first, second = fake.calls_of("createInstance")
    assert first.path["id"].startswith("101") and second.body["price"] == pytest.approx(0.15 * 1.1)
    stage.site.time.run(stage.site.time.at + MINUTE)
    (one,) = fake.books.existing("vm")
    fake.outbid(one)
    stage.until("the end of what has lost its bid", lambda: not fake.books.find("vm", one.id))
    stage.until("its third bid", lambda: {each.facts["machine"] for each in fake.books.existing("vm")} == {103})
    submissions = run_of(stage)["jobs"][0]["job_submissions"]
    assert len(submissions) == 1, "nothing had run yet, so nothing was interrupted"
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not list(fake.books.existing()))
