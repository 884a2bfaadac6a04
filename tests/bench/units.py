"""What a run and a steady agent's call write in AWS, in DynamoDB's units."""

from __future__ import annotations

from tests.bench.measure import report
from tests.bench.month import measured


def main() -> None:
    found = measured(machines=3, idle=1, steady=1)
    for what, amount in found.steps:
        print(f"{amount:5.0f} {what}")
    report("units", run=[sum(amount for _, amount in found.steps)], sync=[found.a_sync])


if __name__ == "__main__":
    main()
