"""What to do at once when a provider reports that machines have changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chalicelib.backends.spi import MachineChange
from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.engine.ports import Backends
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from chalicelib.store.port import Store


def effects_of(store: Store, backends: Backends, changes: Sequence[MachineChange], now: Micros) -> Iterator[Effect]:
    """Machines of other installations may be among them."""
    gone = {change.instance_id: change.gone for change in changes}
    for instance in nouns.find_many(store, Instance, [keys.instance(each) for each in gone]):
        if instance is None:
            continue
        facts = backends.facts(instance.project_id).get(instance.offer.backend)
        effect = purchases.after_change(instance, now, facts, gone=gone[instance.id]) if facts is not None else None
        if effect is not None:
            yield effect
