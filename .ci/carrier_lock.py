"""`make carrier-lock`: pins the newest versions of the packages that carriers are made of, for each architecture.

apt looks them up in an empty folder of its own, so this machine's sources, packages and architecture don't matter, and
it checks Debian's signatures. The lock's names stay as they are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chalicelib.carrier.packages import ARCHITECTURES, LOCK, packages

MIRROR = "https://deb.debian.org/"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = (f"{MIRROR}debian bookworm main", f"{MIRROR}debian-security bookworm-security main")
_LINE = re.compile(rf"'{MIRROR}(\S+)' \S+ \d+ SHA256:([0-9a-f]{{64}})")


def main() -> int:
    if not shutil.which("apt-get") or not KEYS.exists():
        sys.exit(f"This needs apt-get, and Debian's keys in {KEYS}: apt-get install debian-archive-keyring.")
    found = {
        each: _newest([package.name for package in packages(each)], debian) for each, debian in ARCHITECTURES.items()
    }
    LOCK.write_text(text(found, datetime.now(UTC)))
    print(
        f"{LOCK} is written. Run `pytest tests/carrier`, which makes a carrier of these and starts the agent with it."
    )
    return 0


def text(found: dict[str, str], now: datetime) -> str:
    """The lock. `found`: apt's output about the packages, by our architecture."""
    lines = [f"dated {now:%Y%m%dT%H%M%SZ}"]
    for architecture, output in found.items():
        files = [(unquote(path), digest) for path, digest in _LINE.findall(output)]
        pinned = sorted(files, key=lambda each: each[0].rsplit("/", 1)[1])
        wanted = {package.name for package in packages(architecture)}
        named = {path.rsplit("/", 1)[1].split("_")[0] for path, _ in pinned}
        if named != wanted:
            sys.exit(f"apt found no packages of these names for {architecture}: {', '.join(sorted(wanted - named))}")
        lines += [f"{ARCHITECTURES[architecture]} {path} {digest}" for path, digest in pinned]
    return "\n".join(lines) + "\n"


def _newest(names: list[str], debian: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for part in ("etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
            (root / part).mkdir(parents=True)
        (root / "etc/sources.list").write_text("".join(f"deb [signed-by={KEYS}] {each}\n" for each in SOURCES))
        (root / "status").touch()
        settings = {
            "Dir::Etc": str(root / "etc"),
            "Dir::State": str(root / "state"),
            "Dir::State::status": str(root / "status"),
            "Dir::Cache": str(root / "cache"),
            "APT::Architecture": debian,
            "APT::Architectures": debian,
            "APT::Sandbox::User": "root",
        }
        apt = ["apt-get", "-qq", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]
        subprocess.run([*apt, "update"], check=True)
        done = subprocess.run([*apt, "download", "--print-uris", *names], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)} failed with status {error.returncode}; its output is above.")
