"""The table of `dstack server info --cost`: a month's bill of a control plane in AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.screen.render import Table

if TYPE_CHECKING:
    from chalicelib import contract

LEAST = 0.005  # dollars: smaller lines are left to --json


def cost_table(found: contract.ServerCost) -> Table:
    table = Table(("FOR", "OF", "A MONTH", "PRICE", "COST"))
    for line in found["lines"]:
        if line["dollars"] >= LEAST:
            amount = f"{line['amount']:,.0f}" if line["amount"] >= 10 else f"{line['amount']:,.1f}"
            price = f"${line['price']:.10g} a {line['unit']}"
            table.add(line["driver"], line["what"], amount, price, f"${line['dollars']:,.2f}")
    return table


def bill_of(found: contract.ServerCost) -> str:
    counts = found["counts"]
    instances, runs = round(counts["an instance"]), round(counts["a run"])
    return (
        f"\nAbout ${found['total']:,.2f} a month with {instances:,} instance{'' if instances == 1 else 's'} and "
        f"{runs:,} run{'' if runs == 1 else 's'}, without the machines.\n"
        f"Prices: {found['prices']}."
    )
