"""The wheel alone: built, installed where nothing else of ours is to be found, and taken on the README's tour.

Its dependencies are those of this environment, by links, and only the ones that an install with these extras brings:
what needs another fails here. Nothing is fetched.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest

from chalicelib.agent.program.build import build
from cli.commands.server_packages import NEEDED
from tests.harness import forks, installed
from tests.harness.installed import brought, build_wheel, direct, install, metadata, plain
from tests.harness.server import PATIENCE, ROOT, HttpError, Server

PACKAGE = "dstack_serverless"
CLIENT = {"orjson", "pydantic", "pyyaml", "rich", "typer"}  # and on Windows tzdata
SERVER = {*NEEDED, "tzdata", "uvloop"}
SDK = {"httpx"}
OTEL = {"opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"}
SDKS = {
    "aws": {"boto3"},
    "gcp": {"google-cloud-compute"},
    "kubernetes": {"kubernetes"},
    "nebius": {"grpcio", "protobuf"},
}
UNSEEN = {"tzdata", "uvloop"}  # the standard library reads the one, uvicorn imports the other
BROUGHT = {  # what we import and don't list: each is part of what a listed one promises
    *("annotated-types", "botocore", "google-api-core", "google-auth", "googleapis-common-protos", "josepy", "joserfc"),
    *("pydantic-core", "typing-extensions"),
    *(f"opentelemetry-{name}" for name in ("api", "exporter-http-transport", "exporter-otlp-common")),
    *(f"opentelemetry-{name}" for name in ("exporter-otlp-proto-common", "proto", "semantic-conventions")),
}
MIGRATION = f"{PACKAGE}.plane.runtime.migration."  # it refuses to run where what the functions run isn't there
IN_AWS = {"aws-lambda-powertools"}  # what the functions count with; a server doesn't call it
TRACED = ("exporter.otlp.proto.http.trace_exporter", "sdk.resources", "sdk.trace", "sdk.trace.export", "trace")
TRACED += ("sdk.util.instrumentation", "trace.status", "util.re")
OF_SERVERS_COMMANDS = f"{PACKAGE}.cli.commands.server"  # `dstack server`, and those that work on its data
ROOMS_OF_SERVER = (f"{PACKAGE}.plane.runtime.", f"{PACKAGE}.plane.store.")
OF_SERVER = {  # imports in functions that only the server calls, or that are tried
    (f"{PACKAGE}.cli.commands.audit", f"{PACKAGE}.plane.runtime.s3_client"),
    *((f"{PACKAGE}.plane.otlp", f"opentelemetry.{name}") for name in TRACED),
    *((f"{PACKAGE}.plane.backends.kubernetes.addresses", name) for name in ("urllib3", "urllib3.connection")),
}
MOST = 45_000_000  # bytes of a client, with what programs need and the bytecode that pip adds
BUILD = runpy.run_path(str(ROOT / ".ci" / "wheel.py"))
PROVIDERS = f"{PACKAGE}/plane/backends/packed.zip"
BYTECODE = 1.3  # of the length of the sources, in such an installation


@pytest.fixture(scope="module")
def wheel() -> Path:
    return installed.wheel()


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment, with the wheel, and what it brings as a server and for programs."""
    return install(tmp_path_factory.mktemp("fresh"), "server", "sdk")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a plain install."""
    return install(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def sources(wheel: Path) -> dict[str, str]:
    """The wheel's modules, wherever they are."""
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(io.BytesIO(archive.read(PROVIDERS))) as providers:
        paths = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
        folder = PROVIDERS.rpartition("/")[0]
        paths |= {f"{folder}/{name}": providers.read(name) for name in providers.namelist() if name.endswith(".py")}
    return {dotted(path): text.decode() for path, text in paths.items()}


def dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def tour() -> list[str]:
    """The README's block for an installed tool, without its first line: that is how this test came to run."""
    blocks = re.findall(r"```shell\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "pipx install" in block]
    lines: list[str] = block.splitlines()
    assert lines[0].startswith("pipx install")
    return lines[1:]


def imports(source: str) -> Iterator[tuple[str, str]]:
    """`from A import B` as (A, B), `import A` and `from A import *` as (A, ""), wherever it stands; not those from the
    same package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((str(node.module), alias.name.removeprefix("*")) for alias in node.names)


def test_it_holds_one_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = [archive.read(name).decode() for name in names if name.endswith("/entry_points.txt")]
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {PACKAGE}
    folders = {"chalicelib": f"{PACKAGE}/plane", "cli": f"{PACKAGE}/cli", PACKAGE: PACKAGE}
    tracked = subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, text=True).splitlines()
    console = {
        name for name in names if name.startswith(f"{PACKAGE}/plane/console/")
    }  # tests/console says what is in it
    ours = [path for path in tracked if not path.startswith("chalicelib/console/")]
    expected = {re.sub(r"^\w+", lambda top: folders[top[0]], compressed(path)) for path in ours} | console
    expected.add(f"{PACKAGE}/{BUILD['SKILL']}")
    assert {name for name in names if ".dist-info/" not in name} == expected - {""}
    assert f"{PACKAGE}/plane/console/__init__.py" in console
    assert entry_points.split() == [
        *("[console_scripts]", "dstack", "=", f"{PACKAGE}.__main__:main"),
        *("dstack-serverless", "=", f"{PACKAGE}.__main__:main"),
    ]


@cache
def of_servers() -> set[str]:
    found: set[str] = BUILD["server_only"](ROOT)
    return found


def compressed(path: str) -> str:
    """The repository's name of the file that has this one in the wheel; empty if none has."""
    if path in BUILD["LEFT_OUT"]:
        return ""
    of_agent = path.removeprefix(f"{BUILD['AGENT']}/")
    if of_agent != path and of_agent not in BUILD["IMPORTED"]:
        return str(BUILD["PACKED"])
    if path in of_servers():
        return str(BUILD["PROVIDERS"])
    return f"{path}.gz" if path in BUILD["COMPRESSED"] else path


def test_what_is_compressed_is_as_in_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        document = gzip.decompress(archive.read(f"{PACKAGE}/plane/api/openapi.json.gz"))
        packed = archive.read(f"{PACKAGE}/plane/agent/program/packed.tar.gz")
        with zipfile.ZipFile(io.BytesIO(archive.read(PROVIDERS))) as providers:
            for name in filter(re.compile(r".*\.py").fullmatch, providers.namelist()):
                path = f"{BUILD['BACKENDS']}/{name}"
                assert providers.read(name) == BUILD["moved"]((ROOT / path).read_bytes(), path)
    assert document == (ROOT / "chalicelib" / "api" / "openapi.json").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(packed)) as agent:
        found = {entry.name: agent.extractfile(entry) for entry in agent}
        assert len(found) > 80
        for name, content in found.items():
            assert content is not None
            assert content.read() == (ROOT / BUILD["AGENT"] / name).read_bytes(), name


def test_whatever_it_imports_is_in_it_or_in_what_it_requires(wheel: Path, sources: dict[str, str]) -> None:
    """Wherever an import stands: one in a function would fail only when it is called."""
    owners, listed = packages_distributions(), {plain(need.name) for need in direct(wheel, "all")}
    used, missing = set(), []
    for name, source in sources.items():
        for module, imported in imports(source):
            top = module.partition(".")[0]
            if top == PACKAGE:
                inside = f"{module}.{imported}" in sources or re.search(rf"\b{imported}\b", sources.get(module, ""))
                file = f"{module.replace(f'{PACKAGE}.plane', 'chalicelib').replace('.', '/')}.py"
                guarded = name.startswith(MIGRATION) and file in BUILD["LEFT_OUT"]
                missing += [] if inside or guarded else [f"{name} imports {imported} of {module}"]
            elif top not in sys.stdlib_module_names:
                used |= {plain(owner) for owner in owners.get(top, [f"no package, by {name}: {module}"])} or {top}
    assert missing == [] and not {"chalicelib", "cli", "functions", "app"} & used
    assert used - BROUGHT - IN_AWS - listed == set(), "it is imported, and no extra brings it"
    assert listed - used == UNSEEN, "an extra brings what nothing imports"


def test_moving_to_aws_is_refused_with_the_way(bin_folder: Path, tmp_path: Path) -> None:
    command = [bin_folder / "dstack", "server", "migrate", "prod", "--data-dir", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"HOME": str(tmp_path)})
    assert done.returncode == 1 and "in a clone of the repository" in done.stderr and "Traceback" not in done.stderr


def test_every_module_of_it_can_be_imported(bin_folder: Path, sources: dict[str, str], tmp_path: Path) -> None:
    """With what a server needs alone: providers' SDKs are imported when their backend is used."""
    modules = sorted(name for name in sources if not name.endswith("__main__"))
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    command = [bin_folder / "python", "-P", "-c", code, *modules]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and len(modules) > 900


def test_no_command_but_server_imports_what_only_a_server_needs(wheel: Path, sources: dict[str, str]) -> None:
    """Not even later: every import that any command may come to, wherever it stands."""
    named_in_text = re.compile(rf"{PACKAGE}\.plane\.backends\.\w+\.(config|specs)")  # by the table of backends
    own = (f"{PACKAGE}.cli", f"{PACKAGE}.__main__")
    todo = [name for name in sources if name.startswith(own) or named_in_text.fullmatch(name)]
    seen, others = set(todo), set()
    while todo:
        name = todo.pop()
        for module, imported in imports(sources[name]):
            of_server = name.startswith(OF_SERVERS_COMMANDS) and module.startswith(ROOMS_OF_SERVER)
            if of_server or (name, module) in OF_SERVER:
                continue
            inner = {each for each in (f"{module}.{imported}", module) if each in sources}
            todo += inner - seen
            seen |= inner
            if not inner and module.partition(".")[0] not in sys.stdlib_module_names:
                others.add(module.partition(".")[0])
    owners = packages_distributions()
    assert {plain(owner) for top in others for owner in owners[top]} <= brought(wheel)
    assert len(seen) > 150


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    make = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path)
    again = build_wheel(tmp_path, tmp_path / archive.name.removesuffix(".tar.gz"))
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()


def test_it_says_what_it_is(wheel: Path) -> None:
    found = metadata(wheel)
    assert found["License-Expression"] == "Apache-2.0" and found["License-File"] == "LICENSE"
    assert found["Requires-Python"] == ">=3.11"
    assert str(found.get_payload()).strip() == (ROOT / "README.md").read_text().strip()


def test_each_extra_brings_what_it_is_for(wheel: Path) -> None:
    def named(*extras: str) -> set[str]:
        return {plain(need.name) for need in direct(wheel, *extras)}

    assert named() == CLIENT and named("server") == CLIENT | SERVER
    for extra, packages in SDKS.items():
        assert named(extra) == CLIENT | SERVER | packages
    assert named("sdk") == CLIENT | SDK and named("otel") == CLIENT | OTEL
    assert named("all") == (CLIENT | SERVER | SDK | OTEL).union(*SDKS.values())
    assert set(metadata(wheel).get_all("Provides-Extra") or ()) == {"server", "sdk", "otel", "all", *SDKS}


def test_a_client_is_small(wheel: Path) -> None:
    """Of the files as they are; pip adds bytecode, uv doesn't unless it is asked to."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = [(one.filename, one.file_size) for one in archive.infolist()]
    for name in brought(wheel, "sdk"):
        found = distribution(name)
        paths = [Path(str(found.locate_file(file))) for file in found.files or () if "__pycache__" not in file.parts]
        sizes += [(path.name, path.stat().st_size) for path in paths if path.is_file()]
    code = sum(size for name, size in sizes if name.endswith(".py"))
    total = sum(size for _, size in sizes) + BYTECODE * code
    assert 30_000_000 < total < MOST


def test_nothing_of_the_repository_is_found_but_through_it(bin_folder: Path, tmp_path: Path) -> None:
    code = f"import {PACKAGE}.cli, {PACKAGE}.plane; print({PACKAGE}.cli.__file__, {PACKAGE}.plane.__file__)"
    done = subprocess.run([bin_folder / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(Path(place).is_relative_to(bin_folder.parent) for place in done.stdout.split())
    for top in ("tests", "chalicelib", "cli", "functions", "app"):
        command = [bin_folder / "python", "-P", "-c", f"import {top}"]
        missing = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert f"No module named '{top}'" in missing.stderr


def test_the_agents_program_comes_out_of_it_byte_for_byte(bin_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "agent.pyz"
    subprocess.run([bin_folder / "python", "-m", f"{PACKAGE}.plane.agent.program.build", out], cwd=tmp_path, check=True)
    same = out.read_bytes() == build()  # their difference would take minutes to show
    assert same


def test_the_readmes_tour(bin_folder: Path, tmp_path: Path) -> None:
    user = Server(tmp_path / "home", env={"DSTACK_SERVER_PORT": "0", "DSTACK_AGENT_RUNTIME": "process"})
    empty = tmp_path / "empty"
    user.home.mkdir()
    empty.mkdir()
    environment = user.environment()
    environment["PATH"] = f"{bin_folder}:{environment['PATH']}"
    server: subprocess.Popen[str] | None = None
    output: dict[str, str] = {}
    try:
        for line in tour():
            if line.endswith(" &"):
                server = subprocess.Popen(
                    shlex.split(line[:-2]), cwd=empty, env=environment, stdout=subprocess.PIPE, text=True
                )
                assert server.stdout is not None
                assert any("is the default" in printed for printed in iter(server.stdout.readline, ""))
                continue
            done = subprocess.run(["sh", "-c", line], cwd=empty, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}:\n{done.stdout}{done.stderr}"
            output[line.split()[1]] = done.stdout + done.stderr
    finally:
        if server is not None:
            server.terminate()
            server.wait(timeout=PATIENCE)
        user.close()
    assert "Hello from hello" in output["apply"] and "Hello from hello" in output["logs"]
    assert "exited (0)" in output["ps"]
    assert "hello" in output["event"]


def test_what_needs_an_sdk_says_which_extra_brings_it(bin_folder: Path, tmp_path: Path) -> None:
    """From the command line and over the API; and the server goes on."""
    user = Server(tmp_path / "home", flags=("--no-local-fleet",), command=(str(bin_folder / "dstack"),), fork=False)
    user.home.mkdir()
    aws = {"type": "aws", "creds": {"type": "access_key", "access_key": "AKIA", "secret_key": "x"}}
    try:
        user.start()
        add = [str(bin_folder / "dstack"), "backend", "add", "aws", "--access-key", "AKIA", "--secret-key", "-"]
        environment = user.environment()
        added = subprocess.run(add, cwd=user.home, env=environment, capture_output=True, text=True, input="x\n")
        assert added.returncode == 1 and added.stderr.count("\n") <= 2, added
        assert "with its extra `aws`" in added.stderr
        with pytest.raises(HttpError, match="with its extra `aws`") as refused:
            user.call("/api/project/main/backends/create", aws)
        assert refused.value.status == 400
        assert not any("Traceback" in line for line in user.lines)
    finally:
        user.close()


LINES = (
    *("apply -f task.dstack.yml -y", "ps -a", "run get small", "logs small", "metrics small", "event", "stop small -y"),
    *(
        "apply -f fleet.dstack.yml -y",
        "fleet list -v",
        "fleet get ours",
        "delete -f fleet.dstack.yml -y",
        "offer --json",
    ),
    *("automation list", "backend list", "export list", "gateway list", "import list", "project list", "user list"),
    *("secret set a b", "secret list", "volume list", "server info", "completion bash", "init", "--version"),
)


def test_a_client_alone_works_with_a_server_elsewhere(client: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    server = Server(home, env={"DSTACK_AGENT_RUNTIME": "process"})
    (home / "task.dstack.yml").write_text("{type: task, name: small, commands: [echo done]}")
    (home / "fleet.dstack.yml").write_text("{type: fleet, name: ours, nodes: 0..1}")
    try:
        server.start("-y")
        for line in LINES:
            place = forks.Place(client / "dstack-serverless")
            status, said = forks.run(line.split(), home, server.environment(), place, seconds=int(PATIENCE))
            assert status == 0 and "Traceback" not in said, f"{line}:\n{said}"
    finally:
        server.close()


def test_a_client_says_what_a_machine_without_time_zones_needs(client: Path, tmp_path: Path) -> None:
    code = f"from {PACKAGE}.plane.domain.specs.cron import problem, zone_problem as of\n"
    code += "print(problem('0 2 * * *'), of('UTC'))\nprint(*of('Europe/Berlin'), sep='; ')"
    command, none = [client / "python", "-P", "-c", code], {"PYTHONTZPATH": ""}
    said = subprocess.run(command, cwd=tmp_path, env=none, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "None None",
        "this machine has no list of time zones, so `Europe/Berlin` can't be looked up; "
        "install the package `tzdata`, with pip or as one of the system's",
    ]


def test_it_prints_the_schema_that_the_reference_tells_of(client: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    (module,) = re.findall(r"`python -m (\S+) profiles`", page)
    command = [client / "python", "-P", "-m", module, "profiles"]
    assert json.loads(subprocess.check_output(command, cwd=tmp_path))["$schema"]


def test_a_client_says_what_programs_need(client: Path, tmp_path: Path) -> None:
    command = [client / "python", "-P", "-c", f"from {PACKAGE} import DstackError; from {PACKAGE} import Client"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "ImportError: Programs need httpx" in done.stderr and "with its extra `sdk`" in done.stderr


def test_a_client_says_what_a_server_needs(client: Path, tmp_path: Path) -> None:
    done = subprocess.run([client / "dstack", "server"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines() == [
        f"What is installed here is a client. A server also needs {', '.join(NEEDED)}.",
        "Install dstack-serverless again, with its extra `server`: see docs/install.md.",
    ]
