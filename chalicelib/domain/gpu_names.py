"""Names of GPUs: properties that follow from a name, and the name under which users request a card that a tool reports.

Users request a card by the name it is sold under (`H100`, `A6000`). Tools print more than that: the maker, the series,
the connector, the memory. `sold_as` removes those, so that `gpu: H100` matches a host whose tool prints
`H100 80GB HBM3`.
"""

from __future__ import annotations

import re

# Compute capability by accelerator name (lower case, no blanks), as NVIDIA publishes it.
COMPUTE_CAPABILITY: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("k80",), (3, 7)),
    **dict.fromkeys(("m60",), (5, 2)),
    **dict.fromkeys(("p100",), (6, 0)),
    **dict.fromkeys(("p4", "p40"), (6, 1)),
    **dict.fromkeys(("v100",), (7, 0)),
    **dict.fromkeys(("t4", "t4g", "rtx6000", "rtx8000"), (7, 5)),
    **dict.fromkeys(("rtx2060", "rtx2070", "rtx2080", "rtx2080ti"), (7, 5)),
    **dict.fromkeys(("rtx2060super", "rtx2070super", "rtx2080super"), (7, 5)),
    **dict.fromkeys(("a100", "a30"), (8, 0)),
    **dict.fromkeys(("a2", "a10", "a10g", "a16", "a40", "a2000", "a4000", "a4500", "a5000", "a6000"), (8, 6)),
    **dict.fromkeys(("rtx3060", "rtx3060ti", "rtx3070", "rtx3070ti", "rtx3080", "rtx3080ti"), (8, 6)),
    **dict.fromkeys(("rtx3090", "rtx3090ti"), (8, 6)),
    **dict.fromkeys(("l4", "l40", "l40s", "rtx4000ada", "rtx5000ada", "rtx6000ada"), (8, 9)),
    **dict.fromkeys(("rtx2000ada", "rtx4000sffada"), (8, 9)),
    **dict.fromkeys(("rtx4060", "rtx4060ti", "rtx4070", "rtx4070ti", "rtx4080", "rtx4090"), (8, 9)),
    **dict.fromkeys(("rtx4070super", "rtx4070tisuper", "rtx4080super"), (8, 9)),
    **dict.fromkeys(("h100", "h100nvl", "h200", "h200nvl", "gh200"), (9, 0)),
    **dict.fromkeys(("b100", "b200", "gb200"), (10, 0)),
    **dict.fromkeys(("b300", "gb300"), (10, 3)),
    **dict.fromkeys(("rtx5060", "rtx5060ti", "rtx5070", "rtx5070ti", "rtx5080", "rtx5090"), (12, 0)),
    **dict.fromkeys(("rtxpro6000",), (12, 0)),
    **dict.fromkeys(("gb10",), (12, 1)),
}

WITH_ARM = ("gh200", "gb200", "gb300", "gb10", "t4g")  # GPUs that are only sold with ARM CPUs

_VENDORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("amd", ("mi50", "mi210", "mi250", "mi250x", "mi300a", "mi300x", "mi325x", "mi350x", "mi355x")),
    ("google", ("v2", "v3", "v4", "v5p", "v5litepod", "v6e")),
    ("intel", ("gaudi", "gaudi2", "gaudi3")),
    ("tenstorrent", ("n150", "n300", "p100a", "p150a")),
)

_SERIES = ("nvidia", "geforce", "quadro", "tesla", "grid", "amd", "instinct", "radeon")  # words before a card's name
_ANOTHER = ("ti", "super", "laptop", "mobile", "max")  # words after a card's name that make it another one


def squeeze(name: str) -> str:
    return name.lower().replace(" ", "")


def vendor_of(name: str) -> str | None:
    """The maker of an accelerator known by this name."""
    plain = squeeze(name)
    if plain in COMPUTE_CAPABILITY:
        return "nvidia"
    head = plain.split("-")[0]
    return next((vendor for vendor, names in _VENDORS if plain in names or head in names), None)


def sold_as(reported: str) -> str:
    """The name a card is sold under: `A100-SXM4-80GB` is an `A100`, `GeForce RTX 3080 Ti` an `RTX3080Ti`. Of several
    names that match, the longest: an `H100 NVL` isn't an `H100`. An unknown card keeps the reported name."""
    words = re.findall(r"[A-Za-z0-9]+", reported)
    while words and words[0].lower() in _SERIES:
        del words[0]
    if len(words) > 1 and words[0].lower() == "rtx" and vendor_of(words[1]):
        del words[0]  # an `RTX A6000` is sold as `A6000`
    for length in (4, 3, 2, 1):
        name, following = "".join(words[:length]), words[length:]
        if vendor_of(name) and not (following and following[0].lower() in _ANOTHER):
            return name
    return reported
