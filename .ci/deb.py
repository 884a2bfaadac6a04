"""Unpack a program that is published as a Debian package only, without installing it.

`deb.py FOLDER LOCK` fetches what the lock pins for this machine's architecture, by hash. A lock's line has a package,
its version, an architecture and the SHA-256 of the file.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main(folder: Path, lock: Path) -> int:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        print(f"{lock} pins Debian packages, and this machine has no apt: the tests that need them are skipped.")
        return 0
    machine = _output(["dpkg", "--print-architecture"])
    for line in lock.read_text().splitlines():
        package, version, architecture, digest = line.split()
        if architecture == machine:
            _unpack(f"{package}={version}", digest, folder)
    return 0


def _unpack(what: str, digest: str, folder: Path) -> None:
    print(f"Unpacking {what} into {folder} …", flush=True)
    with tempfile.TemporaryDirectory() as here:
        fetch = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", what]
        if subprocess.run(fetch, cwd=here, capture_output=True).returncode:
            subprocess.run(["apt-get", "-qq", "update"], check=True)
            subprocess.run(fetch, cwd=here, check=True)
        (file,) = Path(here).glob("*.deb")
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            sys.exit(f"{file.name} isn't what the lock pins: its hash differs.")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "-x", str(file), str(folder)], check=True)


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)} failed with status {error.returncode}; its output is above.")
