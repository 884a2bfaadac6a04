"""The offer book: everything that a project could buy, indexed for queries.

A book has one `AccountOffers` per account. It is built once per catalog refresh and serves every plan and every queue
pass of every project that uses the account; for disks of another size, a second one with their prices is derived from
it. Its offers are ranked (usable first, then by price, ties in the backend's own order) and are the rows of a
`MachineIndex` in that order. So the first row of an answer is its best offer, a price cap takes two look-ups, and "how
many" is a count of bits. The book merges the answers of its accounts, best first, only as far as they are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from heapq import merge
from itertools import islice
from math import ceil, inf
from operator import itemgetter

from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Availability, Offer
from chalicelib.planning.matching.bitmaps import rows_down, rows_of
from chalicelib.planning.matching.fitting import Blocks, blocks_needed, measured, share, total_blocks
from chalicelib.planning.matching.gpu_groups import KindPrices, KindRows
from chalicelib.planning.matching.machine_index import MachineIndex, Query

DISK_SIZES = 8  # how many variants with other disk sizes an account's offers cache

Match = tuple[int, int, Blocks]  # an offer's rank, the blocks needed of it, the blocks it is cut into


def slice_of(offer: Offer, blocks: int, total: int, availability: Availability | None = None) -> Offer:
    """The offer for a share of a machine, with its part of the resources and of the price."""
    if blocks == total == offer.blocks == offer.total_blocks and availability in (None, offer.availability):
        return offer
    instance = offer.instance
    if blocks != total:
        instance = instance.with_(resources=share(instance.resources, blocks, total))
    return offer.with_(
        instance=instance,
        price=offer.price if blocks == total else round(offer.price * blocks / total, 6),
        availability=availability or offer.availability,
        blocks=blocks,
        total_blocks=total,
    )


class AccountOffers:
    """The offers of one account, by rank. Immutable.

    A variant for disks of another size computes prices and one offer of each kind, and makes the others as they are
    read: a queue may request as many sizes as it has jobs, and an account has ten thousand offers.
    """

    def __init__(self, offers: Iterable[Offer], gib: float = 0.0) -> None:
        """`gib`: the size of disks that are made to order."""
        self._gib = gib
        priced = [(not offer.availability.usable, offer.price_sized(gib), offer) for offer in offers]
        priced.sort(key=itemgetter(0, 1))
        self._ranked = tuple([offer for *_, offer in priced])
        self._usable = sum(offer.availability.usable for offer in self._ranked)
        self._prices = [price for _, price, _ in priced]
        kinds: dict[object, int] = {}  # many offers are of one kind: the same type in many regions
        self._kind = [kinds.setdefault(_kind_of(offer), len(kinds)) for offer in self._ranked]
        one = dict(zip(self._kind, self._ranked, strict=True))
        self._kinds = [one[kind].sized(gib).instance.resources for kind in range(len(kinds))]
        measures = [measured(has) for has in self._kinds]
        self._index = MachineIndex(self._ranked, measures, self._kind)
        disks = (offer.instance.resources.disk.size_mib / 1024 for offer in self._ranked if offer.elastic)
        self._least_disk = min(disks, default=inf)
        self._resized = lru_cache(DISK_SIZES)(lambda gib: AccountOffers(self._ranked, gib))

    def __len__(self) -> int:
        return len(self._ranked)

    def offer(self, rank: int) -> Offer:
        return self._ranked[rank].sized(self._gib)

    def with_disks(self, gib: float) -> AccountOffers:
        """The same offers with disks of at least this size, where a disk is made to order."""
        return self._resized(ceil(gib)) if gib > self._least_disk else self

    def reserved(self, reservation: str) -> Iterator[Offer]:
        """All offers in this reservation, regardless of other requirements."""
        return (self.offer(rank) for rank in rows_of(self._index.reservation.equal(reservation)))

    def sort_key(self, rank: int) -> tuple[bool, float]:
        """The sort key across shelves: usable offers first, then by price."""
        return rank >= self._usable, self._prices[rank]

    def matches(self, queries: Sequence[Query], dearest: int = 0) -> tuple[Iterable[Match], int]:
        """The offers that match any of the queries, best first, and their number. An offer counts once, split as the
        first matching query requires. `dearest`: only so many of them are needed, at the highest prices; more may be
        returned."""
        if all(query.blocks == 1 for query in queries):
            found = 0
            for query in queries:
                found |= self._candidates(query)
            shown = self._dearest(found, dearest) if dearest else found
            return ((rank, 1, 1) for rank in rows_of(shown)), found.bit_count()
        shares: dict[int, Match] = {}
        for query in queries:
            for match in self.fitting(query):
                shares.setdefault(match[0], match)
        return (shares[rank] for rank in sorted(shares)), len(shares)

    def fitting(self, query: Query) -> Iterator[Match]:
        """The offers that fit, best first."""
        ranks = rows_of(self._candidates(query))
        if query.blocks == 1:
            yield from ((rank, 1, 1) for rank in ranks)
            return
        needed: dict[int, int] = {}
        for rank in ranks:
            kind = self._kind[rank]
            if kind not in needed:
                has = self._kinds[kind]
                total = total_blocks(query.blocks, has)
                needed[kind] = blocks_needed(query.resources, has, total) if total else 0
            if needed[kind]:
                yield rank, needed[kind], query.blocks

    def gpu_kinds(self, query: Query) -> Iterator[KindPrices]:
        """The kinds of GPUs among the offers that match, as whole machines, best first."""
        return self._gpu_kinds.among(self._candidates(query))

    def dearest(self, query: Query) -> float | None:
        if query.blocks != 1:
            return max((self.cut(*match).price for match in self.fitting(query)), default=None)
        found = self._candidates(query)
        last = (part.bit_length() - 1 for part in (found, found & _first(self._usable)) if part)
        return max((self._prices[rank] for rank in last), default=None)

    def _dearest(self, found: int, count: int) -> int:
        """Of these rows, those at the `count` highest prices."""
        usable = found & _first(self._usable)
        tops = [self._prices[row] for part in (usable, found ^ usable) for row in islice(rows_down(part), count)]
        if len(tops) <= count:
            return found
        floor = sorted(tops, reverse=True)[count - 1]
        cheaper = bisect_left(self._prices, floor, 0, self._usable), bisect_left(self._prices, floor, self._usable)
        return found & ~(_first(cheaper[0]) | (_first(cheaper[1]) ^ _first(self._usable)))

    def cut(self, rank: int, needed: int, blocks: Blocks) -> Offer:
        offer = self.offer(rank)
        total = total_blocks(blocks, offer.instance.resources) or 1
        return offer if total == 1 else slice_of(offer, needed, total)

    @cached_property
    def _gpu_kinds(self) -> KindRows:
        return KindRows(self._ranked, self._prices)

    def _candidates(self, query: Query) -> int:
        """The offers that fit; if machines are split into blocks, those of which a share may fit."""
        found = self._index.offered(query)
        if query.reservation is None:
            found &= self._index.reservation.equal("")
        if query.max_price is not None:
            usable = bisect_right(self._prices, query.max_price, 0, self._usable)
            unusable = bisect_right(self._prices, query.max_price, self._usable)
            found &= _first(usable) | (_first(unusable) ^ _first(self._usable))
        if found and query.machine is not None:
            found &= self._index.having(query.machine)
        return found and found & self._index.having(query.resources, whole=query.blocks == 1)


class OfferBook:
    """The offers of a project's accounts, read as one list. Immutable. `taken_at`: when the oldest of them were
    fetched; `awaited`: the backends whose first offers haven't arrived yet; `live`: those that have no list."""

    def __init__(
        self,
        offers: Iterable[Offer] = (),
        taken_at: Micros = 0,
        *,
        accounts: Iterable[AccountOffers] | None = None,
        awaited: Iterable[str] = (),
        live: Iterable[str] = (),
    ) -> None:
        """From `accounts`, which other books may share, or from `offers` of an account of their own."""
        self.taken_at, self.awaited, self.live = taken_at, tuple(sorted(awaited)), tuple(sorted(live))
        self._accounts = (AccountOffers(offers),) if accounts is None else tuple(accounts)

    def __len__(self) -> int:
        return sum(map(len, self._accounts))

    def with_answers(self, offers: Iterable[Offer]) -> OfferBook:
        """The same with what markets have answered."""
        answered = AccountOffers(offers)
        accounts = (*self._accounts, answered) if len(answered) else self._accounts
        return OfferBook(taken_at=self.taken_at, accounts=accounts, awaited=self.awaited, live=self.live)

    def awaited_by(self, query: Query) -> str:
        """The names of awaited backends that the query allows, as text; empty if there are none."""
        taken = (name for name in self.awaited if query.backends is None or name.lower() in query.backends)
        return " and ".join(f"`{name}`" for name in taken)

    def live_for(self, query: Query) -> tuple[str, ...]:
        """The backends without a list that the query allows."""
        return tuple(name for name in self.live if query.backends is None or name.lower() in query.backends)

    def match(self, query: Query, limit: int = 50, *, dearest: bool = False) -> tuple[tuple[Offer, ...], int]:
        """The best `limit` offers, or the dearest, and how many there are in all."""
        return self.match_any((query,), limit, dearest=dearest)

    def match_any(
        self, queries: Sequence[Query], limit: int = 50, *, dearest: bool = False
    ) -> tuple[tuple[Offer, ...], int]:
        """The same for any of several queries. An offer counts once, split as the first matching query requires, but
        twice with disks of two sizes. `dearest`: the `limit` dearest are among those that are returned, best first."""
        by_account = self._by_account(queries)
        found = [account.matches(alike, limit if dearest else 0) for account, alike in by_account]
        merged = _merged([account for account, _ in by_account], [matches for matches, _ in found])
        shown = merged if dearest else islice(merged, limit)
        return tuple(account.cut(*match) for account, match in shown), sum(count for _, count in found)

    def machines(self, query: Query, limit: int) -> list[tuple[Offer, int, int]]:
        """The best machines to buy: the offer of the whole machine, the blocks needed, and its number of blocks."""
        return [_whole_machine(account, match) for account, match in islice(self._fitting(query), limit)]

    def best(self, query: Query, tried: Collection[str]) -> tuple[Offer, int, int] | None:
        """The best of them that is available and hasn't been tried."""
        for account, match in self._fitting(query):
            offer = account.offer(match[0])
            if not offer.availability.usable:
                break
            if not tried or offer.key not in tried:
                return _whole_machine(account, match)
        return None

    def gpu_kinds(self, query: Query) -> Iterator[KindPrices]:
        """The kinds of GPUs that match, as whole machines, best first."""
        return _merged_kinds([account.with_disks(query.disk_gib).gpu_kinds(query) for account in self._accounts])

    def dearest(self, queries: Sequence[Query]) -> float | None:
        """The highest price among the offers that match any of these queries, each for the share needed."""
        tops = (account.dearest(query) for account, alike in self._by_account(queries) for query in alike)
        return max((top for top in tops if top is not None), default=None)

    def reserved(self, reservation: str) -> list[Offer]:
        return [offer for account in self._accounts for offer in account.reserved(reservation)]

    def _fitting(self, query: Query) -> Iterator[tuple[AccountOffers, Match]]:
        accounts = [account.with_disks(query.disk_gib) for account in self._accounts]
        return _merged(accounts, [account.fitting(query) for account in accounts])

    def _by_account(self, queries: Sequence[Query]) -> list[tuple[AccountOffers, list[Query]]]:
        """The accounts' offers by size of disk, each with the queries for that size."""
        found: dict[int, tuple[AccountOffers, list[Query]]] = {}
        for account in self._accounts:
            for query in queries:
                sized = account.with_disks(query.disk_gib)
                found.setdefault(id(sized), (sized, []))[1].append(query)
        return list(found.values())


def _merged(
    accounts: Sequence[AccountOffers], found: Sequence[Iterable[Match]]
) -> Iterator[tuple[AccountOffers, Match]]:
    """The accounts' matches in one order; of two equals, that of the earlier account comes first."""
    if len(accounts) == 1:
        return ((accounts[0], match) for match in found[0])
    lines = (_sorted_matches(number, accounts[number], matches) for number, matches in enumerate(found))
    return ((accounts[number], match) for _, number, match in merge(*lines))


def _merged_kinds(found: Sequence[Iterator[KindPrices]]) -> Iterator[KindPrices]:
    if len(found) == 1:
        return found[0]
    return merge(*found, key=lambda each: (not Availability(each[0].availability).usable, each[1]))


def _sorted_matches(
    number: int, account: AccountOffers, found: Iterable[Match]
) -> Iterator[tuple[tuple[bool, float], int, Match]]:
    return ((account.sort_key(match[0]), number, match) for match in found)


def _whole_machine(account: AccountOffers, match: Match) -> tuple[Offer, int, int]:
    rank, needed, blocks = match
    offer = account.offer(rank)
    return offer, needed, total_blocks(blocks, offer.instance.resources) or 1


def _first(count: int) -> int:
    """The first rows of an index, as a set."""
    return (1 << count) - 1


def _kind_of(offer: Offer) -> tuple[object, ...]:
    has = offer.instance.resources
    gpus = tuple([(gpu.name, gpu.memory_mib, gpu.vendor) for gpu in has.gpus])
    return (has.cpus, has.memory_mib, gpus, has.disk.size_mib, offer.most_disk, has.cpu_arch)
