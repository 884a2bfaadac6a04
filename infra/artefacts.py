"""The zip files that the functions run from, and their size limits.

| artefact  | contents                                                     | used by                                   |
|-----------|--------------------------------------------------------------|-------------------------------------------|
| `chalice` | what `chalice package` packs, and the packages that it needs | the API and the schedules of `app.py`     |
| `clouds`  | `functions` and `chalicelib`, with boto3 and acme            | `provider_clouds`                         |
| another   | the same, with the SDKs of its providers                     | the `provider_…` of its name              |
| `ssh`     | the same, with paramiko                                      | `bootstrap_host`                          |

`backends/registry.py` lists the providers and the artefact of each. A provider's SDK may be larger than everything
else, so each provider that has one gets its own artefact, and no other function contains it.

Each zip holds its modules as bytecode besides, if the functions' version of Python is here to compile them.

Packages are installed from `requirements-dev.lock`, by hash, as wheels for Lambda's platform, whatever machine this
runs on. What no function calls is left out: botocore describes 400 services in 25 MB, and a cold start reads what it
needs from the zip. Builds are reproducible. A zip is named after the digest of its inputs, so an unchanged one is
neither built nor uploaded again.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

from chalicelib.backends import registry
from chalicelib.errors import Invalid
from infra import requirements
from infra.bytecode import Compiler, or_sources_alone

ROOT = requirements.ROOT
BUILD = ROOT / "build"
PYTHON = "3.13"  # of the functions: AWS keeps this runtime up to date until the middle of 2029
MEGABYTE = 1_000_000
MOST_UNZIPPED = 250 * MEGABYTE  # Lambda's limit
# Amazon Linux 2023, which that runtime is based on, has glibc 2.34.
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64")
SERVICES = frozenset(  # those that some function calls
    (
        *("cloudwatch", "dynamodb", "ec2", "events", "iam", "lambda", "logs", "pricing"),
        *("s3", "service-quotas", "sqs", "ssm", "stepfunctions", "sts"),
    )
)
_POWERTOOLS = (
    *(
        "event_handler",
        "utilities/auth_alpha",
        "utilities/batch",
        "utilities/circuit_breaker",
        "utilities/data_classes",
    ),
    *("utilities/data_masking", "utilities/feature_flags", "utilities/idempotency", "utilities/kafka"),
    *("utilities/parameters", "utilities/parser", "utilities/streaming", "utilities/validation"),
)
UNUSED = (  # parts of packages
    *("bin", "boto3/examples", "kubernetes/aio"),
    *(f"aws_lambda_powertools/{part}" for part in _POWERTOOLS),
)
UNREAD = ("RECORD", "INSTALLER", "REQUESTED")  # what differs between two installations of the same packages
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can name


@dataclass(frozen=True)
class ArtefactKind:
    """A kind of artefact that can be built."""

    packages: tuple[str, ...]
    trims: tuple[Callable[[Path], None], ...] = ()  # remove from the packages what isn't used
    most_zipped: int = 50 * MEGABYTE  # Lambda's limit for a direct upload


def kinds(*, traces: bool = False) -> Mapping[str, ArtefactKind]:
    """`traces`: with what sends them, 2 MB of a zip that nobody's start has to read who doesn't ask for them."""
    telemetry = requirements.of_extra("otel") if traces else ()
    packed = (*requirements.NEEDED, *telemetry)
    found = {"chalice": ArtefactKind(packed, most_zipped=35 * MEGABYTE)}  # it starts for each caller
    for artefact, types in registry.artefacts().items():
        sdks = {package for name in types for package in requirements.of_extra(registry.BACKENDS[name].extra)}
        certificates = {"acme"} if artefact == registry.CLOUDS else set[str]()
        packages = (*requirements.NEEDED, *sorted({*sdks, *certificates} - {*requirements.NEEDED}))
        found[artefact] = ArtefactKind(packages, tuple(registry.trims(types)))
    found["ssh"] = ArtefactKind((*requirements.NEEDED, "paramiko"))
    return found


KINDS = kinds()
SHARED, NEEDED = "shared", ArtefactKind(requirements.NEEDED)  # what every artefact has


@dataclass(frozen=True)
class Artefact:
    name: str
    path: Path
    digest: str  # of its inputs
    zipped: int
    unzipped: int

    @property
    def key(self) -> str:
        """Its key in the bucket."""
        return f"deploy/{self.name}-{self.digest}.zip"


def build(
    chalice_zip: Path,
    python: str = PYTHON,
    *,
    folder: Path = BUILD,
    say: Callable[[str], None] = print,
    traces: bool = False,
) -> dict[str, Artefact]:
    """Builds every artefact, with packages for this version of Python. Raises Invalid if one exceeds its limit."""

    def with_bytecode(compiles: Compiler | None) -> dict[str, Artefact]:
        built: dict[str, Artefact] = {}
        wanted = kinds(traces=traces)
        installed = packages({**wanted, SHARED: NEEDED}, python, folder, say, compiles)
        for name, kind in wanted.items():
            sources = dict(_of_zip(chalice_zip) if name == "chalice" else of_repository())
            built[name] = pack(name, sources, installed[name], folder, compiles, installed[SHARED])
            check(built[name], kind)
        return built

    with build_lock(folder / "packages", say):
        return or_sources_alone(with_bytecode, python, say)


@contextmanager
def build_lock(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """A lock, so that two deployments from one clone (of two stages, for instance) build one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another deployment from this clone to build its artefacts …")
            fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def pack(
    name: str,
    sources: Mapping[str, bytes],
    installed: Path,
    folder: Path,
    compiles: Compiler | None = None,
    shared: Path | None = None,
) -> Artefact:
    """`installed`: its packages, compiled by the same compiler. `shared`: those of them that every kind has."""
    digest = _digest(sources, installed.name)
    path = folder / f"{name}-{digest}.zip"
    if not path.exists():
        for old in folder.glob(f"{name}-*.zip"):
            old.unlink()
        draft = path.with_suffix(".draft")
        shutil.copyfile(_zipped(installed, shared), draft)
        _add_to(draft, {**sources, **(compiles.compiled(sources) if compiles is not None else {})})
        draft.replace(path)
    with zipfile.ZipFile(path) as archive:
        unzipped = sum(each.file_size for each in archive.infolist())
    return Artefact(name, path, digest, path.stat().st_size, unzipped)


def _zipped(installed: Path, shared: Path | None) -> Path:
    """Packages in a zip, which is made once: to compress them takes longer than all else. It begins as a copy of what
    is shared, if all of that is among them, unchanged."""
    path = installed.with_suffix(".zip")
    if not path.exists():
        entries = dict(_of_folder(installed, bytecode=True))
        draft = path.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        if shared is not None and shared != installed:
            begun = _zipped(shared, None)
            there = _checksums(begun)
            if all(name in entries and zlib.crc32(entries[name]) == value for name, value in there.items()):
                shutil.copyfile(begun, draft)
                entries = {name: content for name, content in entries.items() if name not in there}
        _add_to(draft, entries)
        draft.replace(path)
    return path


def _checksums(path: Path) -> dict[str, int]:
    with zipfile.ZipFile(path) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}


def _digest(sources: Mapping[str, bytes], packages_digest: str) -> str:
    found = hashlib.sha256(packages_digest.encode())
    for name, content in sorted(sources.items()):
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:20]


def _add_to(path: Path, entries: Mapping[str, bytes]) -> None:
    # The default level takes twice the time, and saves four hundredths.
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=4) as archive:
        for name, content in sorted(entries.items()):
            one = zipfile.ZipInfo(name, _EPOCH)
            one.compress_type, one.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(one, content)


def check(artefact: Artefact, kind: ArtefactKind) -> None:
    for size, most, what in (
        (artefact.zipped, kind.most_zipped, "zipped"),
        (artefact.unzipped, MOST_UNZIPPED, "unzipped"),
    ):
        if size > most:
            raise Invalid(
                f"The artefact {artefact.name} has {size / MEGABYTE:.1f} MB {what}; it may have {most // MEGABYTE}.",
                hint="Leave out packages that its functions don't import: see KINDS in infra/artefacts.py.",
            )


# --- what goes in -----------------------------------------------------------------------------------------------------


def packages(
    kinds: Mapping[str, ArtefactKind],
    python: str,
    folder: Path,
    say: Callable[[str], None],
    compiles: Compiler | None = None,
) -> dict[str, Path]:
    """A folder with the packages of each kind. They are installed once for each version of their part of the lock; what
    several kinds need, by one call of pip for all."""
    lock = (ROOT / "requirements-dev.lock").read_text()
    parts = {name: requirements.pinned(lock, kind.packages, python) for name, kind in kinds.items()}
    places = {
        name: folder / "packages" / _named(part, python, kinds[name].trims, compiles) for name, part in parts.items()
    }
    missing = [name for name in kinds if not places[name].exists()]
    if not missing:
        return places
    wanted = tuple(sorted({package for name in missing for package in kinds[name].packages}))
    say(f"Installing {', '.join(wanted)} for Lambda, Python {python} …")
    with tempfile.TemporaryDirectory(dir=folder / "packages") as draft:
        every = Path(draft) / "every"
        _install(requirements.pinned(lock, wanted, python), python, Path(draft) / "lock", every)
        strip(every)
        for name in missing:
            into = Path(draft) / name
            link(every, requirements.names(parts[name]), into)
            for trim in kinds[name].trims:
                trim(into)
            if compiles is not None:
                _add(into, compiles.compiled(dict(_of_folder(into))))
            if not places[name].exists():  # two kinds may need the same
                into.replace(places[name])
    return places


def _named(
    part: str, python: str, trims: Iterable[Callable[[Path], None]] = (), compiles: Compiler | None = None
) -> str:
    modules = [sys.modules[each.__module__] for each in (*trims, *([Compiler] if compiles else []))]
    code = [inspect.getsource(each) for each in modules]
    wanted = "\n".join([part, python, *PLATFORMS, *sorted(SERVICES), *UNUSED, *code, *map(_constants, modules)])
    return hashlib.sha256(wanted.encode()).hexdigest()[:20]


def _constants(module: ModuleType) -> str:
    """Its own, and those that it imports, such as the list of what a provider's package calls."""
    return repr(sorted((name, value) for name, value in vars(module).items() if name.isupper() and _is_text(value)))


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(each, str) for each in value))


def link(installed: Path, wanted: frozenset[str], into: Path) -> None:
    """These packages alone, as far as Lambda reads them, without their commands."""
    for found in distributions(path=[str(installed)]):
        if requirements.plain(found.metadata["Name"]) in wanted:
            for file in found.files or ():
                read = ".." not in file.parts and not (file.name in UNREAD and file.parent.suffix == ".dist-info")
                if read and (installed / file).exists() and not (into / file).exists():
                    (into / file).parent.mkdir(parents=True, exist_ok=True)
                    (into / file).hardlink_to(installed / file)


def _install(lock: str, python: str, file: Path, into: Path) -> None:
    file.write_text(lock)
    platforms = [argument for platform in PLATFORMS for argument in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", str(into)]
    wheels = ["--python-version", python, "--implementation", "cp", *platforms, "--only-binary", ":all:"]
    pinned = ["--no-deps", "--no-compile", "--require-hashes", "-r", str(file)]
    done = subprocess.run([*pip, *wheels, *pinned], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Invalid(
            f"pip couldn't fetch the functions' packages: {done.stderr.strip()[-600:]}",
            hint="Check that this machine can reach a package index, then run the same command again.",
        )


def strip(installed: Path) -> None:
    """Removes what Lambda doesn't read, but for what pip says of the packages."""
    for models in (installed / "botocore" / "data").glob("*/"):
        if models.name not in SERVICES:
            shutil.rmtree(models)
    for name in ("**/*.pyi", "**/*.c", "**/*.h"):
        for file in installed.glob(name):
            file.unlink()
    for folder in (*(installed / each for each in UNUSED), *list(installed.rglob("__pycache__"))):
        shutil.rmtree(folder, ignore_errors=True)


def _of_zip(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        yield from ((each.filename, archive.read(each)) for each in archive.infolist() if _is_code(each.filename))


def of_repository(parts: Iterable[str] = ("chalicelib", "functions")) -> Iterator[tuple[str, bytes]]:
    """The code of the functions that don't answer browsers: without the console."""
    for part in parts:
        files = ((f"{part}/{name}", content) for name, content in _of_folder(ROOT / part))
        yield from (file for file in files if not file[0].startswith("chalicelib/console/"))


def _of_folder(folder: Path, *, bytecode: bool = False) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (bytecode or _is_code(path.as_posix())):
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _add(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _is_code(name: str) -> bool:
    """Is it source code, rather than bytecode that Python compiled here?"""
    return not name.endswith("/") and "__pycache__" not in name
