"""Gateways' orders for streams, on their way to the agents of replicas. Where one process serves all calls they wait in
its memory; elsewhere in the table, until the agent's next call. An agent gets each order once: a gateway repeats an
order for a stream that doesn't come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from chalicelib.domain.stream_orders import TTL, StreamOrder
from chalicelib.store import nouns
from chalicelib.store.port import MAX_CHANGES, Delete, Record
from chalicelib.usecases.ports import SealedPorts, StreamPorts

if TYPE_CHECKING:
    from chalicelib.contract.agent import StreamOrder as Order


def pass_on(plane: StreamPorts, orders: Sequence[tuple[str, Order]]) -> None:
    """Pass each order on to the agent of its instance."""
    if plane.streams is not None:
        for instance_id, order in orders:
            plane.streams.pass_on(instance_id, order)
        plane.notify_agents({instance_id for instance_id, _ in orders})
        return
    for start in range(0, len(orders), MAX_CHANGES):
        part = orders[start : start + MAX_CHANGES]
        stored_orders = {(instance_id, order["id"]): _stored(plane, instance_id, order) for instance_id, order in part}
        plane.store.commit([replace(nouns.put(each), expect=None) for each in stored_orders.values()])


def take_orders(plane: StreamPorts, instance_id: str, stored: Sequence[Record]) -> list[Order]:
    """The orders for the instance's agent. `stored`: those in the table, which are deleted."""
    if plane.streams is not None:
        return plane.streams.orders(instance_id)
    found = [nouns.read(StreamOrder, record) for record in stored]
    for start in range(0, len(stored), MAX_CHANGES):
        plane.store.commit([Delete(record.key) for record in stored[start : start + MAX_CHANGES]])
    late = plane.clock.now() - TTL
    return [orjson.loads(plane.seal.open(each.order, context=_context(each))) for each in found if each.at > late]


def _stored(plane: SealedPorts, instance_id: str, order: Order) -> StreamOrder:
    stored = StreamOrder(instance_id=instance_id, id=order["id"], order="", at=plane.clock.now())
    return stored.with_(order=plane.seal.seal(orjson.dumps(order).decode(), context=_context(stored)))


def _context(order: StreamOrder) -> str:
    return f"stream/{order.instance_id}/{order.id}"
