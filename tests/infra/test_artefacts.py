"""The functions' zips: the same input makes the same bytes, nothing needless is in them, none is too large."""

from __future__ import annotations

import shutil
import sys
import threading
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from chalicelib.errors import Invalid
from infra import artefacts, requirements
from infra.artefacts import KINDS, PYTHON, Artefact, build_lock, check, link, pack, strip
from infra.functions import FUNCTIONS
from infra.requirements import ROOT

LOCK = (ROOT / "requirements-dev.lock").read_text()


def packages(folder: Path) -> Path:
    """A folder as pip leaves it."""
    installed = folder / "installed"
    for name, text in {
        "botocore/data/s3/2006/service-2.json.gz": "s3",
        "botocore/data/polly/2016/service-2.json.gz": "polly",
        "botocore/data/endpoints.json": "{}",
        "six.py": "six",
        "six-1.17.0.dist-info/METADATA": "Name: six",
        "bin/tool": "#!/bin/sh",
        "six/__pycache__/x.pyc": "compiled",
    }.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    return installed


def test_what_no_function_reads_is_left_out(tmp_path: Path) -> None:
    installed = packages(tmp_path)
    strip(installed)
    made = pack("clouds", {"functions/one.py": b"1"}, installed, tmp_path)
    with zipfile.ZipFile(made.path) as archive:
        assert archive.namelist() == [
            "botocore/data/endpoints.json",
            "botocore/data/s3/2006/service-2.json.gz",
            "six-1.17.0.dist-info/METADATA",
            "six.py",
            "functions/one.py",
        ]


def test_packages_are_compressed_once_and_those_that_all_kinds_have_once_for_all(tmp_path: Path) -> None:
    shared = packages(tmp_path)
    own, trimmed = tmp_path / "own", tmp_path / "trimmed"
    for place in (own, trimmed):
        shutil.copytree(shared, place)
        (place / "sdk.py").write_text("sdk")
    (trimmed / "six.py").write_text("less")
    for installed in (own, trimmed):
        made = pack("clouds", {"functions/one.py": b"1"}, installed, tmp_path, shared=shared)
        with zipfile.ZipFile(made.path) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
        there = {path.relative_to(installed).as_posix(): path for path in installed.rglob("*") if path.is_file()}
        assert found == {**{name: path.read_bytes() for name, path in there.items()}, "functions/one.py": b"1"}
        assert len(archive.namelist()) == len(found), "each once"
    (shared / "six.py").unlink()
    again = pack("ssh", {"functions/one.py": b"2"}, shared, tmp_path)
    with zipfile.ZipFile(again.path) as archive:
        assert "six.py" in archive.namelist(), "a folder stays as it was made, so its zip does"


def test_of_packages_that_are_installed_once_each_kind_has_its_own(tmp_path: Path) -> None:
    """By the names of the lock, whatever a package calls itself."""
    installed = tmp_path / "installed"
    for name, version, files in (
        ("PyYAML", "6.0", ("yaml/__init__.py", "_yaml.so", "../../bin/yaml")),
        ("six", "1.17", ("six.py",)),
    ):
        info = f"{name}-{version}.dist-info"
        record = "".join(f"{file},,\n" for file in (*files, f"{info}/METADATA", f"{info}/RECORD"))
        texts = {f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n", f"{info}/RECORD": record}
        for file, text in {**dict.fromkeys(files, "code"), **texts}.items():
            if not file.startswith(".."):
                (installed / file).parent.mkdir(parents=True, exist_ok=True)
                (installed / file).write_text(text)
    link(installed, requirements.names("pyyaml==6.0 \\\n    --hash=sha256:0\n"), tmp_path / "own")
    found = sorted(str(path.relative_to(tmp_path / "own")) for path in (tmp_path / "own").rglob("*") if path.is_file())
    info = "PyYAML-6.0.dist-info"
    assert found == [f"{info}/METADATA", "_yaml.so", "yaml/__init__.py"], "what differs each time is left out"


def test_the_same_input_makes_the_same_bytes_and_is_built_once(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    one, two = (pack("clouds", {"functions/one.py": b"1"}, packages(place), place) for place in places)
    assert one.path.read_bytes() == two.path.read_bytes() and one.key == two.key
    one.path.write_bytes(two.path.read_bytes() + b"PK\5\6" + b"\0" * 18)  # an archive that a build wouldn't leave
    assert pack("clouds", {"functions/one.py": b"1"}, places[0] / "installed", places[0]).zipped == two.zipped + 22


def test_another_input_has_another_name_and_replaces_the_old(tmp_path: Path) -> None:
    installed = packages(tmp_path)
    first = pack("clouds", {"functions/one.py": b"1"}, installed, tmp_path)
    second = pack("clouds", {"functions/one.py": b"2"}, installed, tmp_path)
    assert first.key != second.key and not first.path.exists() and second.path.exists()


@pytest.mark.parametrize(("zipped", "unzipped", "what"), [(36, 40, "36.0 MB zipped"), (5, 251, "251.0 MB unzipped")])
def test_one_that_is_too_large_is_refused_with_its_size(zipped: int, unzipped: int, what: str) -> None:
    mega = artefacts.MEGABYTE
    made = Artefact("chalice", Path("x"), "d", zipped * mega, unzipped * mega)
    with pytest.raises(Invalid, match=what):
        check(made, KINDS["chalice"])


def test_two_deployments_from_one_clone_build_one_after_the_other(tmp_path: Path) -> None:
    done: list[str] = []
    waits = threading.Event()

    def second() -> None:
        with build_lock(tmp_path / "packages", lambda line: waits.set()):
            done.append("second")

    thread = threading.Thread(target=second)
    with build_lock(tmp_path / "packages", done.append):
        thread.start()
        assert waits.wait(120)
        done.append("first")
    thread.join()
    assert done == ["first", "second"]


def test_packages_that_were_trimmed_by_another_list_are_trimmed_anew(tmp_path: Path) -> None:
    """The list may be another module's."""
    (tmp_path / "trims_packages.py").write_text("def trim(installed):\n    ...\n")
    sys.path.insert(0, str(tmp_path))
    try:
        module = import_module("trims_packages")
        found = []
        for services in (("disks",), ("disks", "images"), ("disks",)):
            vars(module)["SERVICES"] = services
            found.append(artefacts._named("part", PYTHON, [module.trim]))
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("trims_packages", None)
    assert found[0] == found[2] != found[1]


def test_every_function_runs_from_an_artefact_that_is_built() -> None:
    assert {function.artefact for function in FUNCTIONS} <= KINDS.keys()


def test_what_is_installed_is_pinned_by_hash() -> None:
    """With what each needs, and nothing else."""
    pinned = requirements.pinned(LOCK, ("boto3",), PYTHON)
    names = [line.split("==")[0] for line in pinned.splitlines() if "==" in line]
    assert names == ["boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"]
    for block in pinned.split("\n\n"):
        assert "--hash=sha256:" in block
    assert all(line in LOCK for line in pinned.splitlines())


def test_conditions_of_packages_are_decided_for_the_function_and_not_for_whoever_deploys() -> None:
    """Who may have a Mac, and another Python."""
    lock = "".join(
        f"{name} \\\n    --hash=sha256:{'0' * 64}\n"
        for name in ("cffi==2 ; platform_python_implementation != 'PyPy'", "cffi==1 ; python_version < '3.12'")
    )
    for python, want in (("3.11", ["cffi==2", "cffi==1"]), ("3.13", ["cffi==2"])):
        pinned = requirements.pinned(lock, ("cffi",), python)
        assert [line.removesuffix(" \\") for line in pinned.splitlines() if "==" in line] == want
    assert requirements.in_lambda("3.13")["sys_platform"] == "linux"
