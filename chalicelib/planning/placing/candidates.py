"""The candidates in each fleet for jobs with the same requirements, computed on demand: the query that the fleet and
the run both allow, the machines that fit, and the machine that the fleet would buy. None of this changes as places are
taken, so a thousand equal jobs cost one computation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.colocation import beside, first_of, is_cluster
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.pools import Pool, PoolShare
from chalicelib.planning.matching.requirements import JobRequirements, within
from chalicelib.planning.placing.buying import Purchase, best_buy


class Candidates:
    """`at` is a fleet's position in `pools`; `backends` are those whose machines can be clusters."""

    def __init__(
        self, requirements: JobRequirements, pools: Sequence[Pool], book: OfferBook, backends: Collection[str] = ()
    ) -> None:
        self.requirements, self.pools, self.book, self.backends = requirements, pools, book, backends
        self._queries: dict[int, Query | Note] = {}
        self._shares: dict[int, Sequence[PoolShare]] = {}
        self._buys: dict[int, Purchase | None] = {}

    def query(self, at: int) -> Query | Note:
        found = self._queries.get(at)
        if found is None:
            found = self._queries[at] = within(self.pools[at].conditions, self.requirements)
        return found

    def shares(self, at: int) -> Sequence[PoolShare]:
        found = self._shares.get(at)
        if found is None:
            query = self.query(at)
            found = () if isinstance(query, Note) else self.pools[at].shares(self.requirements, query)
            self._shares[at] = found
        return found

    def buy(self, at: int, tried: Collection[str]) -> Purchase | None:
        """The best machine not yet tried, whether or not the fleet has room for it."""
        if tried:
            return self._buy(at, tried)
        if at not in self._buys:
            self._buys[at] = self._buy(at, ())
        return self._buys[at]

    def _buy(self, at: int, tried: Collection[str]) -> Purchase | None:
        query, view = self.order(at), self.pools[at].view
        return None if query is None else best_buy(self.book, view, query, tried)

    def order(self, at: int) -> Query | None:
        """The query for a machine that the fleet would buy now; in a cluster, beside its first machine."""
        query, view = self.query(at), self.pools[at].view
        if isinstance(query, Note):
            return None
        return beside(query, first_of(view.instances), self.backends) if is_cluster(view.spec) else query
