"""Terms are typed here, and stored where every version looks for them."""

from __future__ import annotations

import orjson
from pydantic import TypeAdapter

from chalicelib.api.wire.offers import offer_json
from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import ClusterLimit, DiskTerms, Interconnect, Offer, OfferTerms
from chalicelib.store import nouns
from tests.world import nouns as b

STORED = {
    "reservation": "cr-1",
    "ends_at": 5,
    "disk": {"most_gib": 500, "gib_hour": 0.001},
    "no_volumes": "its disks show no serial number",
    "cluster": {"most": 3, "why": "of addresses", "hint": "ask for more"},
    "interconnect": {"name": "InfiniBand", "env": {"NCCL_IB_HCA": "mlx5"}, "folders": ["/opt/topology"]},
    "prices": "prices.csv",
    "efa": [0, 1],
}
TERMS = OfferTerms(
    reservation="cr-1",
    ends_at=5,
    disk=DiskTerms(most_gib=500, gib_hour=0.001),
    no_volumes="its disks show no serial number",
    cluster=ClusterLimit(most=3, why="of addresses", hint="ask for more"),
    interconnect=Interconnect(name="InfiniBand", env={"NCCL_IB_HCA": "mlx5"}, folders=("/opt/topology",)),
    prices="prices.csv",
)


def test_what_an_earlier_version_stored_is_read_and_written_as_it_was() -> None:
    """So that an earlier version can read it again."""
    old = {**orjson.loads(b.offer("big").model_dump_json(exclude_defaults=True)), "backend_data": STORED}
    offer = Offer.model_validate(old)
    assert offer.backend_data == {"efa": [0, 1]}
    for name in OfferTerms.model_fields:
        assert getattr(offer.terms, name) == getattr(TERMS, name), name
    many: TypeAdapter[list[Offer]] = TypeAdapter(list[Offer])
    assert orjson.loads(many.dump_json([offer], exclude_defaults=True)) == [old]
    record = nouns.put(b.machine(offer=offer)).record
    assert orjson.loads(record.body)["offer"] == old
    assert nouns.read(Instance, record).offer == offer


def test_what_is_private_to_a_backend_stays_when_terms_change() -> None:
    offer = Offer.model_validate({**b.offer("big").model_dump(), "backend_data": STORED})
    changed = offer.with_(terms=offer.terms.with_(ends_at=6))
    assert (changed.terms.ends_at, changed.backend_data) == (6, {"efa": [0, 1]})


def test_clients_get_no_terms() -> None:
    sent = orjson.loads(orjson.dumps(offer_json(b.offer("big", terms=TERMS))))
    assert sent["backend_data"] == {} and "terms" not in sent
    assert sent == orjson.loads(orjson.dumps(offer_json(b.offer("big"))))
