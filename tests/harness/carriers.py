"""The carrier for this machine, made of the packages that its lock pins, which apt fetches; kept between runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from chalicelib.carrier.make import make
from chalicelib.carrier.packages import Package, release
from tests.harness.debian import NotHere
from tests.harness.images import CACHE

HERE = {"x86_64": "x86", "aarch64": "arm"}


def architecture() -> str:
    return HERE[os.uname().machine]


def carrier() -> bytes:
    """NotHere if apt has these packages no more, or there is none."""
    cached = CACHE / f"carrier-{release()}.tar.gz"
    if not cached.exists():
        made = make(architecture(), package)
        with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as file:
            file.write(made)
        Path(file.name).rename(cached)
    return cached.read_bytes()


def package(wanted: Package) -> bytes:
    cached = CACHE / "debian" / wanted.sha256
    cached.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE / "debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cached.exists():
            _fetch(wanted, cached)
    return cached.read_bytes()


def _fetch(wanted: Package, place: Path) -> None:
    if not shutil.which("apt-get"):
        raise NotHere("there is no apt-get to fetch packages with")
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        fetch = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", wanted.name]
        subprocess.run(fetch, cwd=folder, capture_output=True, check=False)
        for file in Path(folder).glob("*.deb"):
            if hashlib.sha256(file.read_bytes()).hexdigest() == wanted.sha256:
                shutil.move(file, place)
                return
    version = wanted.path.rsplit("/", 1)[1].split("_")[1]
    raise NotHere(f"apt hasn't {wanted.name} in version {version}, which the carrier's lock pins")
