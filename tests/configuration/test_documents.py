"""Schema, reference and error catalogue: made from the code, and the same as what is committed."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from chalicelib.configuration import catalogue, reference
from chalicelib.configuration.parse import parse
from chalicelib.configuration.schema import configuration_schema, profiles_schema
from chalicelib.errors import Invalid
from tests.configuration.test_recorded import KINDER, STRICTER, reason, recorded

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
SCHEMA = jsonschema.Draft202012Validator(configuration_schema())

# Right, but in words of old or with quotes around numbers: an editor needn't offer that.
UNUSUAL = (
    "count:",
    "replicas:\n-",
    "replicas:\n -",
    "tpu-",
    "cpu: {min",
    "priority: '5'",
    "privileged: 'yes'",
    "max_price: '3'",
)


@pytest.mark.parametrize("page", sorted(reference.PAGES))
def test_pages_are_up_to_date(page: str) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    assert reference.renewed(text, reference.PAGES[page]()) == text, "python -m chalicelib.configuration.reference"


@pytest.mark.parametrize("code", sorted(catalogue.ENTRIES))
def test_catalogue_entries_are_true(code: str) -> None:
    entry = catalogue.ENTRIES[code]
    assert entry.meaning
    if entry.wrong:
        with pytest.raises(Invalid) as caught:
            parse(entry.wrong)
        assert [problem.code for problem in caught.value.problems] == [code]
        parse(entry.right)


def test_every_code_has_an_entry() -> None:
    code = r"[a-z0-9]+(?:-[a-z0-9]+)*"
    patterns = (
        rf'fault\(\s*"({code})"',
        rf'code="({code})"',
        rf'append\(\(\s*"({code})",',
        rf'^\s+\("({code})", f?"',
        rf'_refused\(\s*"({code})"',
    )
    found: set[str] = set()
    for folder in ("chalicelib/configuration", "chalicelib/domain"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            found |= {match for pattern in patterns for match in re.findall(pattern, text, re.MULTILINE)}
    known = set(catalogue.ENTRIES)
    assert len(found) > 20
    assert found - known == set()


def test_schemas_are_2020_12() -> None:
    for schema in (configuration_schema(), profiles_schema()):
        assert schema["$schema"].endswith("2020-12/schema")
        jsonschema.Draft202012Validator.check_schema(schema)


def accepted(file: str) -> bool:
    value: Any = json.loads(json.dumps(yaml.safe_load(file), default=str))
    return not list(SCHEMA.iter_errors(value))


@pytest.mark.parametrize(("file", "flags", "wire"), recorded())
def test_an_editor_takes_what_the_reader_takes(file: str, flags: list[str], wire: Any) -> None:
    if wire is None or flags or reason(file, flags, STRICTER) or reason(file, flags, KINDER):
        return
    if any(word in file for word in UNUSUAL):
        return
    assert accepted(file)


@pytest.mark.parametrize(
    "file",
    [
        "commands: [a]",
        "type: tsk",
        "type: task\ncomands: [a]",
        "type: task\ncommands: ls",
        "type: task\ncommands: [a]\nspot_policy: x",
        "type: task\ncommands: [a]\nresources: {gup: 1}",
        "type: task\ncommands: [a]\nmax_duration: 1h30m",
        "type: task\ncommands: [a]\nresources: {memory: 16G}",
        "type: volume\nbackend: azure",
        "type: volume\nbackend: daytona\nsize: 5GB",
        "type: service\ncommands: [a]",
    ],
)
def test_an_editor_marks_what_is_wrong(file: str) -> None:
    assert not accepted(file)


def test_the_schema_is_printed() -> None:
    for arguments, made in (([], configuration_schema()), (["profiles"], profiles_schema())):
        printed = subprocess.run(
            [sys.executable, "-m", "chalicelib.configuration.schema", *arguments],
            capture_output=True,
            check=True,
            cwd=ROOT,
            text=True,
        )
        assert json.loads(printed.stdout) == json.loads(json.dumps(made))


def test_every_field_is_explained() -> None:
    schema = configuration_schema()
    internal = {"EnvSentinel", "SSHKey", "Range_int_", "Range_float_"}
    for name, definition in schema["$defs"].items():
        whole: dict[str, Any] = next((arm for arm in definition.get("anyOf", [definition]) if "properties" in arm), {})
        for field, described in whole.get("properties", {}).items():
            if name not in internal and not (field == "type" and "const" in described):
                assert described.get("description"), f"{name}.{field}"


def test_checking_a_body_imports_no_yaml() -> None:
    script = "import sys, chalicelib.configuration, chalicelib.domain.specs.runs; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
