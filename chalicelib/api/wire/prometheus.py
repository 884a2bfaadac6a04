"""Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.engine.counters import Histogram
from chalicelib.usecases.operator.exposition import FAMILIES, Exposition, Labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text_of(exposition: Exposition) -> bytes:
    lines: list[str] = []
    for name, samples in exposition.samples.items():
        histograms = exposition.histograms.get(name, [])
        if samples or histograms:
            kind, help_text = FAMILIES[name]
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value:.15g}" for labels, value in samples]
            lines += [line for labels, histogram in histograms for line in _histogram(name, labels, histogram)]
    return ("\n".join(lines) + "\n").encode()


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    bounds = [*(f"{bound:.15g}" for bound in histogram.bounds), "+Inf"]
    for bound, number in zip(bounds, (*histogram.below, histogram.number), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': bound})} {number}"
    yield f"{name}_sum{_labels(labels)} {histogram.total:.15g}"
    yield f"{name}_count{_labels(labels)} {histogram.number}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
