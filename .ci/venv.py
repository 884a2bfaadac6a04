"""Make a virtual environment from a lock file with nothing but the Python that runs this.

`venv.py FOLDER LOCK [--project]` installs what the lock pins, by hash; with `--project` also this repository's own
`dstack` command, without building anything from the network. uv does it in seconds, the one on the path or the one in
`.venvs/uv`; without any, or where it fails, pip does it in a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

OUR_UV = Path(".venvs/uv/bin/uv")


def main(folder: Path, lock: Path, project: bool) -> int:
    if sys.version_info < (3, 11):
        print(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}. Try: make PYTHON=python3.11 …")
        return 1
    uv = shutil.which("uv") or (str(OUR_UV) if OUR_UV.exists() else None)
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"Making {folder} …", flush=True)
        if not (uv and made_by_uv(uv, folder)):
            make_venv(folder)
    count = sum(line[:1].isalnum() for line in lock.read_text().splitlines())
    print(f"Installing the {count} packages of {lock} into {folder} …", flush=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    if not (uv and with_uv(uv, python, lock)):
        with_pip([*pip, "--require-hashes", "--no-deps", "-r", str(lock)], count)
    if project:
        subprocess.run([*pip, "--quiet", "--no-deps", "--no-build-isolation", "-e", "."], check=True)
    return 0


def made_by_uv(uv: str, folder: Path) -> bool:
    command = [uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, str(folder)]
    return subprocess.run(command, check=False).returncode == 0


def with_uv(uv: str, python: Path, lock: Path) -> bool:
    """Install the packages with uv, which shows its own progress. Returns False if it fails: pip may be configured with
    indexes that uv doesn't know."""
    command = [uv, "pip", "install", "--python", str(python), "--require-hashes", "--no-deps", "-r", str(lock)]
    if subprocess.run(command, check=False).returncode == 0:
        return True
    print("uv can't install them; trying pip …", flush=True)
    return False


def with_pip(command: list[str], count: int) -> None:
    """Print a line for each package that pip starts on, or all of pip's output if it fails."""
    output, number = [], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            output.append(line)
            if line.startswith(("Collecting ", "Processing ")):
                number += 1
                print(f"  {number}/{count} {line.split()[1].rpartition('/')[2]}", flush=True)
            elif line.startswith("Installing "):
                print("  unpacking …", flush=True)
    if pip.returncode:
        print("".join(output))
        raise subprocess.CalledProcessError(pip.returncode, command)


def make_venv(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
    if done.returncode == 0:
        return
    if os.geteuid() == 0 and shutil.which("apt-get") and "ensurepip" in done.stdout + done.stderr:
        # Debian and Ubuntu ship `venv` apart from Python.
        print("Installing python3-venv …", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "-qq", "update"], check=True, env=environment)
        subprocess.run(["apt-get", "-qq", "install", "-y", "python3-venv"], check=True, env=environment)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        return
    print(done.stdout + done.stderr)
    raise SystemExit(f"Can't make a virtual environment in {folder}. On Debian or Ubuntu: apt-get install python3-venv")


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), "--project" in sys.argv))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd[:6])} … failed with status {error.returncode}; its output is above.")
