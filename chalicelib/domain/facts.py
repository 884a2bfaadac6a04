"""What a backend can do and how long its operations may take. Readable without its SDK or any credentials.

A backend's class declares most of them as `facts`. Those that follow from its methods aren't declared again:
`spi.facts_of` derives them, and is where all callers get facts.
"""

from __future__ import annotations

from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros
from chalicelib.domain.noun import Value


class BackendFacts(Value):
    name: str  # the wire's backend name
    title: str = ""
    idempotent_create: bool = True  # a repeated create under one token adopts what the first created
    visibility_lag: Micros = 10 * SECOND  # how long a created resource may be missing from a listing
    create_timeout: Micros = 60 * SECOND  # one create call, from commit to response
    provisioning_timeout: Micros = 10 * MINUTE  # from request to the agent's first message
    offers_last: Micros = 6 * HOUR  # how long its offers hold; list prices change by the week
    multinode: bool = False  # its machines in one region, and zone if it has zones, reach each other
    batch: int = 0  # machines that one call creates, if it creates several (`spi.CreatesSeveral`)
    describes: int = 0  # machines that one call describes, if it describes several (`spi.DescribesSeveral`)
    spot: bool = True  # sells machines that it may take back
    spot_notice: bool = True  # and announces that when they are described; otherwise they are gone without a word
    tags: bool = True  # what it creates carries every tag; otherwise only the name shows whose it is
    machines: bool = True  # some of its offers are machines; otherwise it sells containers alone
    containers: bool = False  # some of its offers are containers (`Offer.is_container`), which are created for a job
    bundles: bool = False  # some of its offers are machines that are bought together (`OfferTerms.bundle`)
    grants: frozenset[str] = frozenset()  # what some of these can have beyond what all can (`Offer.grants`)
    reservations: bool = False
    options: bool = False  # chooses among its offers as `backend_options` say
    notices: str = ""  # the metadata service that an agent polls for spot interruption notices, for its command line
    unique_volumes: bool = False  # no two disks have one id, whatever accounts they are in
    offers_disks: tuple[str, str] = ("=", ",")  # without tags: what a disk's name has between `dstack-projects` and the
    # first of the projects that may register it, and between the others
    multi_attach: bool = False  # some of them can be attached to several machines at once
    read_only_attach: bool = False  # they can be attached so that nothing on the machine can write them
    largest_volume: int = 0  # in GiB; 0: any size that a configuration can have
    volume_zones: bool = False  # a volume can only be attached to machines in its zone
    gateways: bool = False  # has machines for gateways, with ports that the world can reach, or such containers
    simulated: bool = False  # nothing is bought; offers say so

    # Derived.
    live_offers: bool = False  # has no list of offers, but an answer to each request (`spi.LiveOffers`)
    volumes: bool = False  # has disks that outlive machines (`spi.Volumes`)
    placement_groups: bool = False  # keeps a cluster's machines close together (`spi.PlacementGroups`)
    watches: bool = False  # reports changes of machines over a connection that stays open (`spi.Watches`)
    gateway_containers: bool = False  # gateways run in its containers (`spi.GatewayContainers`)
