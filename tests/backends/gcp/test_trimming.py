"""Google's library, without what isn't called."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from chalicelib.backends.gcp.sdk import SERVICES
from chalicelib.backends.gcp.trimming import needed, trim, without_docstrings

TYPES = '''"""All of them."""
import proto

__protobuf__ = proto.module(
    package="p",
    manifest={
        "Disk",
        "GetRequest",
        "Kind",
        "Unused",
    },
)


class Disk(proto.Message):
    kind: str = proto.Field(proto.ENUM, number=1, enum="Kind.Name")


class GetRequest(proto.Message):
    disk: "Disk" = proto.Field(proto.MESSAGE, number=1, message="Disk")


class Kind(proto.Message):
    pass


class Unused(proto.Message):
    disk: "Disk" = proto.Field(proto.MESSAGE, number=1, message="Disk")


__all__ = tuple(sorted(__protobuf__.manifest))
'''


def test_the_types_that_are_named_stay_with_what_they_are_made_of() -> None:
    left = needed(TYPES, {"GetRequest", "Nothing"})
    assert "Unused" not in left and left.count('"Kind"') == 1
    assert [line.split("(")[0] for line in left.splitlines() if line.startswith("class")] == [
        "class Disk",
        "class GetRequest",
        "class Kind",
    ]


def test_code_is_the_same_without_its_comments() -> None:
    code = [
        '"""Of a module."""',
        "class A:",
        '    """Of a class."""',
        "",
        "    def b(self):",
        '        "x"',
        "        return 1  # one",
    ]
    assert without_docstrings("\n".join(code)) == "class A:\n\n    def b(self):\n        return 1"


@pytest.mark.slow
def test_what_is_left_is_imported_and_called(tmp_path: Path) -> None:
    """By a Python of its own, whose package `google` is the trimmed one."""
    spec = find_spec("google.cloud.compute_v1")
    assert spec is not None and spec.origin is not None
    whole = Path(spec.origin).parent
    shutil.copytree(whole.parents[1], tmp_path / "google", ignore=shutil.ignore_patterns("__pycache__"))
    trim(tmp_path)
    left = tmp_path / "google" / "cloud" / "compute_v1"
    assert {each.name for each in (left / "services").iterdir() if each.is_dir()} == set(SERVICES)
    program = (
        "import google, sys\n"
        f"google.__path__ = [{str(tmp_path / 'google')!r}]\n"
        "from chalicelib.backends.gcp import sdk\n"
        "for service in sdk.SERVICES: sdk.client_class(service)\n"
        "made = sdk.message_class('InsertInstanceRequest')(zone='a', instance_resource={'name': 'x', 'disks': [{}]})\n"
        "assert len(type(made).pb(made).SerializeToString()) > 5\n"
        "print(sys.modules['google.cloud.compute_v1.types.compute'].__file__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(left / "types" / "compute.py")
