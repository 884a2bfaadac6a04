"""What a run, its deletion and a steady agent's call write in AWS, in DynamoDB's units."""

from __future__ import annotations

from tests.bench.measure import report
from tests.bench.month import measured


def main() -> None:
    found = measured(machines=3, idle=1, steady=1)
    for part in (found.steps, found.erased):
        for what, amount in part:
            print(f"{amount:5.0f} {what}")
        print()
    run, erased = (sum(amount for _, amount in part) for part in (found.steps, found.erased))
    report("units", run=[run], erased=[erased], sync=[found.a_sync])


if __name__ == "__main__":
    main()
