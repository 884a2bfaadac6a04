"""Images for engines that pull from nowhere: made of this machine's own files, once, and kept between runs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.harness.debian import NotHere, busybox, run
from tests.harness.mpi import mpirun

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/tmp")) / "dstack-test-engines"
BUSYBOX, PYTHON, ENGINE, MPI = "test/busybox:1", "test/python:1", "test/engine:1", "test/mpi:1"
GLOO = "test/gloo:1"
GATEWAY = "test/gateway:1"
APPLETS = (
    "sh",
    "cat",
    "sleep",
    "env",
    "ls",
    "ps",
    "echo",
    "pwd",
    "id",
    "head",
    "dd",
    "seq",
    "stty",
    "kill",
    "wc",
    "tr",
    "setsid",
    "md5sum",
    "nc",
)


@dataclass(frozen=True)
class Image:
    """`archive` holds the whole root, for `docker import`."""

    name: str
    archive: Path
    env: Mapping[str, str]
    command: str
    working_dir: str = ""
    entry_point: tuple[str, ...] = ()
    user: str = ""

    @property
    def changes(self) -> list[str]:
        where = [f"WORKDIR {self.working_dir}"] if self.working_dir else []
        where += [f"ENTRYPOINT {json.dumps(self.entry_point)}"] if self.entry_point else []
        where += [f"USER {self.user}"] if self.user else []
        return [*(f'ENV {name}="{value}"' for name, value in self.env.items()), f'CMD ["{self.command}"]', *where]


def busybox_image() -> Image:
    return Image(BUSYBOX, _once("busybox-3", _make_busybox), {"PATH": "/bin"}, "/bin/sh")


def python_image() -> Image:
    """Python and bash from this machine's own files: a program, its libraries, the standard library."""
    archive = _once(
        f"python-{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}-1", _make_python
    )
    return Image(PYTHON, archive, {"PATH": "/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/usr"}, "/bin/bash")


def gloo_image(extension: Path) -> Image:
    """The same with the libraries of gloo's extension module."""

    def make(root: Path) -> None:
        _make_python(root)
        for library in libraries_of([extension]):
            place = root / library.relative_to("/")
            if not place.exists():
                shutil.copy(library.resolve(), place)

    plain = python_image()
    return replace(plain, name=GLOO, archive=_once(f"gloo-{plain.archive.stem}", make))


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """The archive of a root that `make` fills, kept for the next."""
    archive = CACHE / f"{name}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as work:
                make(Path(work) / "root")
                run("tar", "-C", f"{work}/root", "-cf", f"{work}/root.tar", ".")
                Path(work, "root.tar").rename(archive)
    return archive


def _make_busybox(root: Path) -> None:
    for name in ("bin", "etc", "tmp", "proc", "dev", "root", "home/somebody"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox(), root / "bin/busybox")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nsomebody:x:1234:1234::/home/somebody:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nsomebody:x:1234:\n")


def _make_python(root: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    for name in ("bin", "etc", "tmp", "proc", "dev", "root", "usr/bin", "usr/local"):
        (root / name).mkdir(parents=True)
    home = root / base.relative_to("/")
    shutil.copytree(
        base / f"lib/python{version}",
        home / f"lib/python{version}",
        ignore=shutil.ignore_patterns(
            "test", "site-packages", "__pycache__", "idlelib", "ensurepip", "tkinter", "config-*"
        ),
    )
    real = (base / f"bin/python{version}").resolve()
    (home / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(real, home / f"bin/python{version}")
    tools = [
        Path(shutil.which(name) or f"/bin/{name}").resolve() for name in ("bash", "env", "cat", "ls", "sleep", "id")
    ]
    for tool in tools:
        shutil.copy(tool, root / "bin" / tool.name)
    for name in ("python3", "python"):
        (root / "usr/bin" / name).symlink_to(f"{base}/bin/python{version}")
    (root / "bin/sh").symlink_to("bash")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nsomebody:x:1234:1234::/tmp:/bin/bash\n")
    extensions = list((base / f"lib/python{version}/lib-dynload").glob("*.so"))
    for library in libraries_of([real, *tools, *extensions]):
        place = root / library.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copy(library.resolve(), place)


def applets_image() -> Image:
    """All of a static busybox, a folder to work in, and nothing else: no Python, no library."""

    env = {"PATH": "/bin", "IMAGE": "its own"}
    return Image("test/applets:1", _once("applets-1", _make_applets), env, "/bin/sh", "/work")


def _make_applets(root: Path) -> None:
    for name in ("bin", "tmp", "proc", "dev", "work"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    _all_applets(root)


NVIDIA_SMI = """#!/bin/sh
fields=
for word in "$@"; do
case $word in --query-gpu=*) fields=$(echo "${word#*=}" | tr , ' ');; esac
done
number=0
while [ "$number" -lt "${CARDS:-0}" ]; do
row=
for field in $fields; do
case $field in
index) value=$number;;
uuid) value=GPU-$number;;
pci.bus_id) value=00000000:0$number:00.0;;
name) value=${CARD%,*};;
memory.total) value=${CARD#*, };;
driver_version) value=570.86.10;;
memory.used) value=${USED:-1024};;
utilization.gpu) value=${LOAD:-37};;
*) echo "Field \\"$field\\" is not a valid field to query."; exit 2;;
esac
row=$row${row:+, }$value
done
echo "$row"
number=$((number + 1))
done
"""


def cards_image() -> Image:
    """The same, with a stub of NVIDIA's tool for as many cards as $CARDS says, each of a name and MiB as in $CARD."""

    def make(root: Path) -> None:
        _make_applets(root)
        (root / "bin/nvidia-smi").write_text(NVIDIA_SMI)
        (root / "bin/nvidia-smi").chmod(0o755)

    return replace(applets_image(), name="test/cards:1", archive=_once("cards-1", make))


def _all_applets(root: Path) -> None:
    shutil.copy(busybox(), root / "bin/busybox")
    for applet in subprocess.run([str(busybox()), "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def pythonic_image() -> Image:
    """Python, and busybox for the rest, which can't fetch and check anything by itself."""

    def make(root: Path) -> None:
        _make_python(root)
        shutil.copy(busybox(), root / "bin/busybox")
        for name in ("mkdir", "rm", "chmod", "id", "pwd"):
            (root / "bin" / name).unlink(missing_ok=True)
            (root / "bin" / name).symlink_to("busybox")

    plain = python_image()
    env = {"PATH": plain.env["PATH"], "IMAGE": "its own"}
    return Image("test/pythonic:1", _once(f"pythonic-{plain.archive.stem}", make), env, plain.command)


HELLO = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    char here[256];
    printf("hello from %s: %s %s %s\n", FROM, getcwd(here, sizeof here), getenv("IMAGE"), getenv("OURS"));
    return 7;
}
"""


def musl_image() -> Image:
    """No libc but musl, with a program that is linked with it. NotHere if there is no compiler for it."""

    def make(root: Path) -> None:
        for name in ("bin", "tmp", "proc", "dev", "lib"):
            (root / name).mkdir(parents=True)
        _all_applets(root)
        _compile(root / "bin/hello", "musl", "musl-gcc")
        loader = f"ld-musl-{os.uname().machine}.so.1"
        shutil.copy(Path("/lib", loader).resolve(), root / "lib" / loader)

    return Image("test/musl:1", _once("musl-1", make), {"PATH": "/bin", "IMAGE": "its own"}, "/bin/hello")


SERVE = r"""
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sockaddr_in place = {AF_INET, htons(atoi(words[1])), {htonl(INADDR_LOOPBACK)}};
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&place, sizeof place) || listen(listener, 8)) return 1;
    for (;;) {
        char asked[512];
        int caller = accept(listener, 0, 0);
        read(caller, asked, sizeof asked);
        write(caller, "HTTP/1.0 200 OK\r\n\r\nserved\n", 26);
        close(caller);
    }
}
"""


def distroless_image() -> Image:
    """Two static programs: no shell, no library, no list of users."""

    def make(root: Path) -> None:
        for name in ("proc", "dev"):
            (root / name).mkdir(parents=True)
        _compile(root / "hello", "nothing", "gcc", "-static")
        _compile(root / "serve", "nothing", "gcc", "-static", source=SERVE)

    return Image("test/distroless:1", _once("distroless-3", make), {"IMAGE": "its own"}, "/hello")


def _compile(program: Path, name: str, *compiler: str, source: str = HELLO) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "hello.c").write_text(source)
        run(*compiler, f'-DFROM="{name}"', "-O2", "-o", str(program), f"{folder}/hello.c")


LINKED = ("bin", "sbin", "lib", "lib64")  # in Debian, into /usr
ESSENTIAL = (
    *("base-files", "base-passwd", "bash", "coreutils", "dash", "debianutils", "findutils", "grep", "gzip", "hostname"),
    *("libc-bin", "mawk", "ncurses-base", "perl-base", "sed", "tar", "util-linux"),
)


def debian_image(*more: str, name: str = "test/debian:1") -> Image:
    """What every Debian has, from this machine's files: a locked root, no Python, nothing to fetch with. `more`:
    packages to add. NotHere if this machine isn't a Debian that has them."""

    def make(root: Path) -> None:
        for folder in (*(f"usr/{name}" for name in LINKED), "etc", "tmp", "proc", "dev", "run", "root", "var/lib"):
            (root / folder).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        for folder in LINKED:
            (root / folder).symlink_to(f"usr/{folder}")
        done = subprocess.run(["dpkg", "-L", *ESSENTIAL, *more], capture_output=True, text=True)
        if done.returncode:
            raise NotHere(f"these packages aren't here: {done.stderr.strip()}")
        listed = [Path(line) for line in done.stdout.splitlines() if line.startswith("/")]
        shared = {"base-passwd", "lua"}
        chosen = [path for path in listed if not path.is_relative_to("/usr/share") or shared & {*path.parts}]
        files = [path for path in chosen if path.is_file() and not path.is_symlink()]
        programs = [path for path in files if os.access(path, os.X_OK) or "modules" in path.parts]
        for path in [*chosen, *libraries_of(programs)]:
            place = root / path.relative_to("/")
            if (path.is_file() or path.is_symlink()) and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place, follow_symlinks=not path.is_symlink() or path.suffix != "")
        for listed_in in ("passwd", "group"):
            shutil.copy(f"/usr/share/base-passwd/{listed_in}.master", root / "etc" / listed_in)
        (root / "etc/shadow").write_text("root:!:19000:0:99999:7:::\n")
        (root / "etc/shadow").chmod(0o640)

    archive = _once("-".join(["debian-1", *more]), make)
    return Image(name, archive, {"PATH": "/usr/local/bin:/usr/bin:/bin", "IMAGE": "its own"}, "/bin/bash", "/tmp")


def gateway_image() -> Image:
    """A Debian with nginx and its Lua module, so that a gateway installs nothing there."""
    nginx = ("nginx", "libnginx-mod-http-lua", "libnginx-mod-http-ndk", "openssl")
    return debian_image(*nginx, "lua-cjson", "lua-resty-core", "lua-resty-lrucache", name=GATEWAY)


def engine_image() -> Image:
    """Docker's own programs from this machine, for an engine in a container, without a network."""
    return Image(ENGINE, _once("engine-1", _make_engine), {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, "/bin/sh")


def _make_engine(root: Path) -> None:
    for name in ("bin", "etc/docker", "tmp", "proc", "dev", "run", "sys", "root", "var/run", "var/log", "usr/bin"):
        (root / name).mkdir(parents=True)
    _all_applets(root)
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    names = ("dockerd", "docker", "containerd", "containerd-shim-runc-v2", "runc")
    programs = [Path(found).resolve() for name in names if (found := shutil.which(name, path=path))]
    for program in programs:
        shutil.copy(program, root / "usr/bin" / program.name)
    for library in libraries_of(programs):
        (root / library.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library.resolve(), root / library.relative_to("/"))
    (root / "etc/docker/daemon.json").write_text('{"iptables": false, "ip6tables": false, "bridge": "none"}')
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")


def mpi_image() -> Image:
    """Open MPI and the SSH client of this machine. NotHere if it has no client, or Open MPI can't be had."""
    program = mpirun()
    archive = _once(f"mpi-{program.parent.parent.name}-2", lambda root: _make_mpi(root, program.parent.parent))
    return Image(MPI, archive, {"PATH": f"{program.parent}:/usr/bin:/bin"}, "/bin/sh")


def _make_mpi(root: Path, release: Path) -> None:
    _make_busybox(root)
    (root / "tmp").chmod(0o1777)
    client = shutil.which("ssh")
    if not client:
        raise NotHere("there is no ssh client")
    shutil.copytree(release, root / release.relative_to("/"), symlinks=True, ignore=shutil.ignore_patterns("include"))
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy(client, root / "usr/bin/ssh")
    programs = [Path(client), *(release / "bin").iterdir(), *release.glob("lib/**/*.so*")]
    for library in libraries_of(programs):
        place = root / library.relative_to("/")
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library.resolve(), place)


def libraries_of(programs: list[Path]) -> set[Path]:
    found = set()
    for program in programs:
        done = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
        for token in done.stdout.split():
            if token.startswith("/"):
                found.add(Path(token))
    return found
