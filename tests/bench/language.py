"""The configuration language: 1,000 run configurations read and checked, and the worst files of a megabyte."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable

from chalicelib.configuration.parse import parse
from chalicelib.configuration.resolution import resolved
from chalicelib.errors import Invalid
from tests.bench.measure import cpu_ms, report

HEAD = "type: task\ncommands: [a]\n"
FILE = """
type: task
name: train-{number}
python: 3.12
env:
  - HF_TOKEN=abc
  - BATCH=32
commands:
  - pip install -r requirements.txt
  - python train.py --epochs 3
ports: [8501]
max_duration: 2h
retry: {{on_events: [no-capacity], duration: 1h}}
resources:
  gpu: A100:40GB:2
  memory: 32GB..
  disk: 200GB
"""
WORST = {
    "list": HEAD + "setup:\n" + "- a\n" * 240_000,
    "problems": HEAD + "ports:\n" + "- x\n" * 19_000,
    "tags": HEAD + "tags:\n" + "".join(f"  'a {n}': '!'\n" for n in range(9_000)),
    "brackets": "[" * 999_000,
    "comments": HEAD + "# c\n" * 240_000,
    "colons": HEAD + "resources: {gpu: '" + "a:" * 490_000 + "'}",
    "references": HEAD + "setup: ['" + "${{ " * 240_000 + "']",
    "digits": HEAD + "max_duration: '" + "1" * 900_000 + "x'",
    "never closed": HEAD.replace("[a]", "['" + "${{" * 330_000 + "']"),
    "aliases": HEAD + "a: &a [" + "1," * 900 + "]\nsetup: [" + "*a," * 20_000 + "]",
    "text": HEAD + "name: " + "x" * 990_000,
}


def reading(text: str) -> Callable[[], None]:
    def work() -> None:
        try:
            resolved(parse(text), environment={})
        except Invalid:
            return

    return work


def main() -> None:
    files = [FILE.format(number=number) for number in range(1000)]
    thousand = cpu_ms(lambda: [parse(file) for file in files], runs=5)
    worst = {name: cpu_ms(reading(text), runs=3) for name, text in WORST.items()}
    slowest = max(worst, key=lambda name: statistics.median(worst[name]))
    report(
        "language",
        thousand_cpu_ms=thousand,
        worst_cpu_ms=worst[slowest],
        worst_file=slowest,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


if __name__ == "__main__":
    main()
