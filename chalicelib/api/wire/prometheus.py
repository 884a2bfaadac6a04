"""Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from chalicelib.usecases.operator.exposition import FAMILIES, Exposition, Labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text_of(exposition: Exposition) -> bytes:
    lines: list[str] = []
    for name, samples in exposition.samples.items():
        if samples:
            kind, help_text = FAMILIES[name]
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value:.15g}" for labels, value in samples]
    return ("\n".join(lines) + "\n").encode()


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
