"""Translates a provider's GPU names into ours: `NVIDIA A100-SXM4-80GB`, `nvidia-a100-80gb` and `A100 (80 GB SXM4)` are
the same.

The memory is the advertised size, because users ask for that: 24 GB for an `A10G`, although `nvidia-smi` says 22888
MiB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.domain.gpu_names import sold_as, squeeze, vendor_of
from chalicelib.domain.offers import Gpu

GIB = 1024
# Advertised GB of one card, for cards whose providers report no memory, or another size than users ask for.
SOLD_WITH: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("t4", "t4g", "a16", "a4000", "rtx4000ada", "p100"), (16,)),
    **dict.fromkeys(("a10", "a10g", "a30", "l4", "rtx3090", "rtx3090ti", "rtx4090", "rtx6000"), (24,)),
    **dict.fromkeys(("rtx5090", "rtx5000ada"), (32,)),
    **dict.fromkeys(("a40", "a6000", "l40", "l40s", "rtx6000ada"), (48,)),
    "a100": (40, 80),
    "h100": (80,),
    "h100nvl": (94,),
    "gh200": (96, 144),
    "rtxpro6000": (96,),
    "h200": (141,),
    "b200": (180,),
    "gb200": (186,),
    **dict.fromkeys(("b300", "gb300"), (288,)),
    "mi210": (64,),
    **dict.fromkeys(("mi250", "mi250x"), (128,)),
    "mi300x": (192,),
    "mi325x": (256,),
    **dict.fromkeys(("mi350x", "mi355x"), (288,)),
}
NEAR = 0.09  # how far a provider's number may be from the advertised one: some cards use a part for error correction

_MEMORY = re.compile(r"(?<![a-z0-9])(\d+) ?gi?b?(?![a-z0-9])", re.IGNORECASE)
_GLUED = re.compile(r"^(geforce|quadro|tesla|instinct)(?=[a-z])|^rtx(?=a\d)|(?<=\d)(?=ada\b)", re.IGNORECASE)
_NOISE = re.compile(r"\b(server|mega|gpu|q)\b", re.IGNORECASE)
_SHARE = re.compile(r"\bmig\b|\bvgpu\b", re.IGNORECASE)


def gpu(name: str, memory_mib: int = 0, vendor: str | None = None) -> Gpu | None:
    """One card. `memory_mib`: from the provider; 0 if the name contains it, or if there is only one size. None for a
    share of a card, which would look like a whole one, and for a card with unknown memory."""
    if _SHARE.search(name):
        return None
    text = _NOISE.sub(" ", _GLUED.sub(" ", re.sub(r"[-_()/]+", " ", name).strip())).strip()
    sold = squeeze(sold_as(text)).upper()
    given = memory_mib / GIB or next((float(found) for found in _MEMORY.findall(text)), 0.0)
    gib = _as_sold(sold, given)
    maker = vendor or vendor_of(sold)
    return Gpu(name=sold, memory_mib=gib * GIB, vendor=maker) if gib else None


def _as_sold(name: str, given: float) -> int:
    """0: unknown."""
    sizes = SOLD_WITH.get(name.lower(), ())
    if not given:
        return sizes[0] if len(sizes) == 1 else 0
    return next((size for size in sizes if abs(given - size) <= NEAR * size), round(given))
