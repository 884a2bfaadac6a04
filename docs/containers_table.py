"""The table of `guides/fleets.md`: what each backend that sells containers can give a run. From their facts."""

from __future__ import annotations

import re
from pathlib import Path

from chalicelib.backends.registry import built, facts_of
from chalicelib.planning.matching.containers import FIELDS, GRANTABLE

PAGE = Path(__file__).parent / "guides" / "fleets.md"
_PART = re.compile(r"(<!-- containers -->\n).*?(<!-- end -->)", re.DOTALL)


def page() -> str:
    """The page, with the table as it is now."""
    return _PART.sub(lambda found: found[1] + _table() + found[2], PAGE.read_text(encoding="utf-8"))


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def _table() -> str:
    sellers = [each for each in (facts_of(name) for name in sorted(built())) if each.containers]
    rows = [
        ["a run or a fleet with", "machines", *(each.title for each in sellers)],
        ["---"] * (2 + len(sellers)),
        *(
            [field, "yes", *("yes" if need in GRANTABLE & each.grants else "refused" for each in sellers)]
            for need, field in FIELDS.items()
        ),
        ["`tags`", "yes", *("yes" if each.tags else "no effect" for each in sellers)],
        ["`idle_duration`", "yes", *("no effect" for _ in sellers)],
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
