"""The names of GPUs at Vast.ai, which a search must spell as Vast.ai does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from chalicelib.backends.kit.gpus import gpu
from chalicelib.domain.gpu_names import squeeze
from chalicelib.domain.offers import Gpu

GIB = 1024
# Those that don't follow from the name that they are sold under.
NAMES = (
    *("A100 PCIE", "A100 SXM4", "A100X", "A800 PCIE", "H100 NVL", "H100 PCIE", "H100 SXM", "H200", "H200 NVL"),
    *("GH200 SXM", "B200", "B300 SXM6 AC", "Tesla P4", "Tesla P40", "Tesla P100", "Tesla T4", "Tesla V100"),
    *("Quadro P4000", "Q RTX 4000", "Q RTX 6000", "Q RTX 8000", "RTX 4000Ada", "RTX 4500Ada", "RTX 5000Ada"),
    *("RTX 5880Ada", "RTX 6000Ada", "RTX A2000", "RTX A4000", "RTX A4500", "RTX A5000", "RTX A6000"),
    *("RTX PRO 4000", "RTX PRO 4500", "RTX PRO 5000", "RTX PRO 6000 S", "RTX PRO 6000 WS", "InstinctMI50"),
    *("RTX 2060S", "RTX 2070S", "RTX 2080S", "RTX 4070S", "RTX 4070S Ti", "RTX 4080S"),
)
_PLAIN = re.compile(r"(gtx|rtx)?(\d+)(ti|super)?")
_SUPER = re.compile(r"(\d{4})S( Ti)?$")


def card_of(name: str, memory_mib: int = GIB, vendor: str | None = None) -> Gpu | None:
    """None for what isn't a whole card."""
    return gpu(_SUPER.sub(r"\1\2 SUPER", name), memory_mib, vendor)


def spelled(wanted: Iterable[str]) -> Sequence[str]:
    """The names to search for cards with these."""
    found: list[str] = []
    for name in map(squeeze, wanted):
        irregular = [each for each in NAMES if (card := card_of(each)) is not None and squeeze(card.name) == name]
        if plain := _PLAIN.fullmatch(name):
            series, number, more = plain.groups(default="")
            irregular.append(" ".join(filter(None, (series.upper(), number, more.title()))))
        found += irregular or [name.upper()]
    return list(dict.fromkeys(found))
