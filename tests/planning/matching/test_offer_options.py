"""Options for a market: the run's win over the fleet's, and each market gets its own, as part of what it is asked."""

from __future__ import annotations

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.planning.matching.market_answers import requests_of
from chalicelib.planning.matching.requirements import combined, requirements_of
from tests.world import nouns as b

FACTS = {name: BackendFacts(name=name, live_offers=True) for name in ("bazaar", "souk")}


def test_each_market_is_asked_with_its_own() -> None:
    view = b.view(b.fleet("f"), nodes="0..2", backend_options=[{"type": "bazaar", "order": "price", "least": 0.9}])
    spec = b.run_spec({"backend_options": [{"type": "bazaar", "least": 0.5, "most": None}]})
    query = combined(requirements_of(spec, b.job_spec(spec)), view)
    requests = dict(requests_of(query, FACTS))  # type: ignore[arg-type]
    assert requests["bazaar"].options == {"least": 0.5, "order": "price"} and requests["souk"].options == {}
    assert requests["bazaar"].key != requests["souk"].key
    for each in requests.values():
        again = OfferRequest.model_validate_json(each.model_dump_json())
        assert again == each and again.key == each.key
