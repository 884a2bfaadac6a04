"""Counts the code of each provider's package, and of the kit that they share: lines without comments and docstrings.

`python .ci/lines.py` prints the numbers beside their limits. A provider that needs more gets a part of the kit that
others need, too, or a table; a limit is raised for a new capability.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

BACKENDS = Path(__file__).resolve().parents[1] / "chalicelib" / "backends"
PRODUCTS = {"gcp": "tpu"}  # that are in the package of another: the files that begin so
LIMITS: Mapping[str, int] = {
    "aws": 1950,
    "azure": 1500,
    "crusoe": 655,
    "cudo": 50,
    "daytona": 50,
    "digitalocean": 50,
    "gcp": 1945,
    "gcp/tpu": 550,
    "hotaisle": 50,
    "kit": 1350,
    "kubernetes": 3300,
    "lambda_cloud": 600,
    "lium": 50,
    "marketplace": 50,
    "nebius": 1500,
    "oci": 50,
    "runpod": 1350,
    "seeweb": 50,
    "simulated": 1200,
    "slurm": 50,
    "tensordock": 600,
    "vastai": 700,
    "verda": 50,
}
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    spans = ((token.start[0], token.end[0]) for token in tokens if token.type not in _NO_CODE)
    lines = {line for first, last in spans for line in range(first, last + 1)}
    return len(lines.difference(*_docstrings(source)))


def _docstrings(source: str) -> Iterator[range]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield range(first.lineno, (first.end_lineno or first.lineno) + 1)


def counted() -> Mapping[str, int]:
    """By package; what is a product of its own is named `gcp/tpu`."""
    found: dict[str, int] = {}
    for file in sorted(BACKENDS.glob("*/**/*.py")):
        package = file.relative_to(BACKENDS).parts[0]
        product = PRODUCTS.get(package)
        name = f"{package}/{product}" if product and file.name.startswith(product) else package
        found[name] = found.get(name, 0) + code_lines(file.read_text(encoding="utf-8"))
    return found


def main() -> int:
    found = counted()
    for name, lines in found.items():
        print(f"{name:16}{lines:6} of {LIMITS.get(name, 0)}")
    print(f"{'together':16}{sum(found.values()):6}")
    return int(any(lines > LIMITS.get(name, 0) for name, lines in found.items()))


if __name__ == "__main__":
    sys.exit(main())
