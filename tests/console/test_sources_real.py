"""The console's sources: their own tests, their types against the contract, and what they are vendored from."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSOLE = ROOT / "chalicelib" / "console"
TOOLS = ROOT / ".venvs" / "console_build"
VENDORED = {
    "preact": ("LICENSE", "dist/preact.mjs", "hooks/dist/hooks.mjs"),
    "htm": ("LICENSE", "dist/htm.mjs"),
    "uplot": ("LICENSE", "dist/uPlot.esm.js", "dist/uPlot.min.css"),
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages() -> Path:
    if not (TOOLS / ".installed").exists():
        pytest.skip("the console's packages aren't installed here; `make test` installs them into .venvs")
    return TOOLS / "node_modules"


def run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def digests(*files: Path) -> str:
    return " ".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


def test_pure_functions() -> None:
    """All in one process: `node --test` starts one for each file."""
    files = sorted(Path(__file__).parent.glob("*.test.mjs"))
    every = "".join(f"await import({json.dumps(file.as_uri())});" for file in files)
    said = run("node", "--test-reporter=tap", "--input-type=module", "--eval", every)
    (passed,) = re.findall(r"^# pass (\d+)$", said, re.MULTILINE)
    assert int(passed) > len(files)


def test_types(packages: Path, tmp_path: Path) -> None:
    """Those of the contract, too: a key that the API doesn't answer with is a mistake here."""
    document = ROOT / "chalicelib" / "api" / "openapi.json"
    contract, known = TOOLS / "contract.d.ts", TOOLS / "contract.made"
    if not contract.exists() or not known.exists() or known.read_text() != digests(document, contract):
        made = tmp_path / "contract.d.ts"
        run(packages / ".bin" / "openapi-typescript", document, "--output", made, "--default-non-nullable", "false")
        if not contract.exists() or contract.read_bytes() != made.read_bytes():
            contract.write_bytes(made.read_bytes())
        known.write_text(digests(document, contract))
    run("node", packages / "typescript7" / "bin" / "tsc", "--project", CONSOLE)


def test_what_is_vendored_is_what_the_packages_have(packages: Path) -> None:
    wanted = json.loads((CONSOLE / "package.json").read_text())["dependencies"]
    assert set(wanted) == set(VENDORED) and all(version[0].isdigit() for version in wanted.values())
    for name, files in VENDORED.items():
        assert json.loads((packages / name / "package.json").read_text())["version"] == wanted[name]
        for file in files:
            ours = CONSOLE / "vendor" / name / Path(file).name
            assert ours.read_bytes() == (packages / name / file).read_bytes(), file
        assert {path.name for path in (CONSOLE / "vendor" / name).iterdir()} == {Path(file).name for file in files}
