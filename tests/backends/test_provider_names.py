"""Only a provider's own package and its row in the table name it in code. Texts for people may, as an example."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.backends.registry import BACKENDS

ROOT = Path(__file__).parents[2]
BACKENDS_AT = ROOT / "chalicelib" / "backends"
PRODUCT = [
    *(path for name in ("chalicelib", "cli", "dstack_serverless", "functions") for path in (ROOT / name).rglob("*.py")),
    ROOT / "app.py",
]
# What we are called, and where a control plane may run: as words they name no provider of machines.
NOT_PROVIDERS = {"dstack", "lambda"}
NAMES = BACKENDS.keys() - NOT_PROVIDERS
KINDS = {kind for row in BACKENDS.values() for kind in row.certificates}
OF_BACKENDS = re.compile(r"chalicelib\.backends\.(\w+)")
PACKAGES = {path.parent.name for path in BACKENDS_AT.glob("*/config.py")}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def may_name(path: Path) -> bool:
    return path == BACKENDS_AT / "registry.py" or (path.is_relative_to(BACKENDS_AT) and path.parent != BACKENDS_AT)


def named_in(source: str) -> Iterator[str]:
    """What of it names a provider: a text that is a name, something that is defined, an import."""
    text = source.lower()
    if not any(name in text for name in NAMES | KINDS | PACKAGES):
        return  # most needn't be parsed
    for node in ast.walk(ast.parse(source)):
        found: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [node.value] if node.value in NAMES | KINDS else []
            found += [part for part in OF_BACKENDS.findall(node.value) if part in PACKAGES]
        elif isinstance(node, ast.ImportFrom):
            parts = OF_BACKENDS.findall(f"{node.module or ''}.")
            parts += [each.name for each in node.names] if node.module == "chalicelib.backends" else []
            found = [part for part in parts if part in PACKAGES]
        elif isinstance(node, ast.Import):
            found = [part for each in node.names for part in OF_BACKENDS.findall(each.name) if part in PACKAGES]
        else:
            defined = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name
            defined = defined or (isinstance(node, ast.arg) and node.arg)
            defined = defined or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id)
            words = {word.lower() for word in WORD.findall(defined)} if defined else set()
            found = sorted(words & NAMES)
        yield from (f"line {getattr(node, 'lineno', 0)}: {each}" for each in found)


@pytest.mark.slow
def test_no_other_file_names_a_provider() -> None:
    found = {
        str(path.relative_to(ROOT)): named
        for path in PRODUCT
        if not may_name(path) and (named := list(named_in(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        'if backend == "aws":\n    pass\n',
        'KINDS = ("gcp-cm",)\n',
        "class RunpodVolume:\n    pass\n",
        "def of_gcp() -> None:\n    pass\n",
        "from chalicelib.backends.aws.specs import X\n",
        "from chalicelib.backends import aws\n",
        "import chalicelib.backends.kubernetes.specs\n",
        'ROW = "chalicelib.backends.azure.config:AzureBackendConfig"\n',
    ],
)
def test_one_that_does_is_found(source: str) -> None:
    assert list(named_in(source))


def test_texts_and_what_merely_looks_like_a_name_are_not() -> None:
    assert not list(named_in('"""On AWS."""\nhint = "a backend that can, such as AWS"\nfrom x import AWSResponse\n'))
