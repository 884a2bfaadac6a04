"""What a run, its deletion and a steady agent's call write in AWS, in DynamoDB's units: commit by commit, each with its
records and the indexes that they move in. `--record` writes the table of `docs/internals/store.md`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from tests.bench.measure import report
from tests.bench.month import measured
from tests.harness.server import ROOT
from tests.world.metered import Written, family

PAGE = ROOT / "docs" / "internals" / "store.md"
COLUMNS = ("table", "gsi1", "gsi2", "due")
_PART = re.compile(r"(<!-- (run|erased) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    found = measured(machines=3, idle=1, steady=1)
    for part in (found.steps, found.erased):
        print(table(part), end="\n\n")
    if "--record" in sys.argv[1:]:
        PAGE.write_text(page(found.steps, found.erased), encoding="utf-8")
    run, erased = (sum(each.units for each in part) for part in (found.steps, found.erased))
    report("units", run=[run], erased=[erased], sync=[found.a_sync])


def page(run: Sequence[Written], erased: Sequence[Written]) -> str:
    """The page of the docs, with its tables as they are now."""
    parts = {"run": table(run), "erased": table(erased)}
    return _PART.sub(lambda found: f"{found[1]}{parts[found[2]]}\n{found[3]}", PAGE.read_text(encoding="utf-8"))


def table(commits: Sequence[Written]) -> str:
    rows: list[tuple[str, ...]] = [("commit", "record", *COLUMNS, "units"), ("--", "--", *["--:"] * 5)]
    for commit in commits:
        for number, item in enumerate(commit.items):
            amounts = [getattr(item, column) for column in COLUMNS]
            first = f"{commit.within}: {commit.units}" if number == 0 else ""
            rows.append((first, f"`{family(item.key)}`", *(str(each or "") for each in amounts), str(item.units)))
    sums = [sum(getattr(item, column) for commit in commits for item in commit.items) for column in COLUMNS]
    rows.append(("**in all**", "", *map(str, sums), f"**{sum(sums)}**"))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
