"""`make cost`: what the control plane costs in AWS, from a metered month in small.

It fails if a bill is over its budget. `--record` keeps what was measured in `chalicelib/billing/plane_rates.py`, which
the API and the docs read.
"""

from __future__ import annotations

import argparse
import pprint
import subprocess
import sys
from collections.abc import Mapping, Sequence

from chalicelib.billing import plane
from chalicelib.billing.plane import CHANGE, PRICES, Usage
from tests.bench import month
from tests.harness.server import ROOT
from tests.world.metered import Written

RATES = ROOT / "chalicelib" / "billing" / "plane_rates.py"
BUDGETS = {0: 0.10, 100: 7, 1_000: 55, 10_000: 450}
HEAD = '''"""What each driver of the bill uses: a month of the schedules or of an instance, a run, a state change.
How many state changes the others make is beside it.

Written by `make cost RECORD=1`, which measures it.
"""

from __future__ import annotations

from collections.abc import Mapping

'''


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cost", description=__doc__)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    found = month.measured()
    rates = found.rates
    lines = [
        f"Prices of {plane.REGION}, without free tier, read in {plane.READ_IN}; a month is {plane.HOURS} h.",
        "",
    ]
    lines += ["Measured", *(f"  {play}" for play in found.plays), ""]
    lines += [f"  {found.a_sync:.3f} write units a steady sync; of a run:"]
    lines += commits(found.steps, "; its deletion and what follows:")
    lines += [*commits(found.erased), ""]
    drivers = ", ".join(f"{count:.1f} of {driver}" for driver, count in found.changes.items())
    lines += [f"State changes: {drivers}; each announced by {rates[CHANGE]['Lambda requests']:.2f} calls", ""]
    for instances in BUDGETS:
        lines += table(instances, plane.bill(rates, plane.counts(instances)))
    print("\n".join(lines))
    if chosen.record:
        record(rates, found.changes)
    too_much = over(rates)
    print(f"over budget: {', '.join(map(str, too_much)) or 'nothing'}")
    return 1 if too_much else 0


def over(rates: Mapping[str, Usage]) -> list[int]:
    """The numbers of instances whose bill is over its budget."""
    return [number for number, most in BUDGETS.items() if plane.total(plane.bill(rates, plane.counts(number))) > most]


def commits(of: Sequence[Written], then: str = "") -> list[str]:
    lines = [f"  {each.units:5}  {each.within}: {each.families}" for each in of]
    return [*lines, f"  {sum(each.units for each in of):5}  in all{then}"]


def table(instances: int, bill: list[plane.CostLine]) -> list[str]:
    total, most = plane.total(bill), BUDGETS[instances]
    lines = [f"{instances:,} instances, {instances * plane.RUNS:,} runs a month: ${total:,.2f} of ${most:,.2f}"]
    for line in bill:
        if line.dollars >= total / 200:
            price = PRICES[line.item]
            lines.append(
                f"  ${line.dollars:>9,.4f}  {line.driver:<14} {line.item:<21} {line.amount:>17,.1f}"
                f" × ${price.dollars:g} a {price.unit}"
            )
    return [*lines, ""]


def record(rates: dict[str, Usage], changes: Usage) -> None:
    rounded = {driver: _short(used) for driver, used in rates.items()}
    text = (
        f"{HEAD}RATES: Mapping[str, Mapping[str, float]] = {pprint.pformat(rounded, width=100, sort_dicts=False)}\n\n"
        f"CHANGES: Mapping[str, float] = {_short(changes)}\n"
    )
    RATES.write_text(text)
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(RATES)], check=True)


def _short(used: Usage) -> dict[str, float]:
    return {what: float(f"{amount:.3g}") for what, amount in used.items() if amount > 0}


if __name__ == "__main__":
    sys.exit(main())
