"""Private SSH keys named on a command line or in a configuration, and their public keys."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from chalicelib.errors import Refused


def read_key(name: str, folder: Path, home: Path, *, named_by: str = "identity_file") -> dict[str, str]:
    """A file's private key and its public key, which is read from the `.pub` file beside it if there is one."""
    path = home / name[2:] if name.startswith("~/") else folder / name
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Refused(
            f"{named_by}: {path} can't be read: {error.strerror}.", hint="Name a private key that you can read."
        ) from error
    if text.startswith((b"ssh-", b"ecdsa-")):
        raise Refused(f"{named_by}: {path} is a public key.", hint="Name the private key, without .pub.")
    public = _public_key(text, f"{named_by}: {path}")
    beside = path.with_name(path.name + ".pub")
    if beside.is_file():  # it may have a comment, and clients compare the text
        public = beside.read_text(encoding="utf-8", errors="replace")
    return {"public": public, "private": text.decode()}


def _public_key(private: bytes, named: str) -> str:
    """Made by ssh-keygen: who has keys has it, and a library for this would be a third of a client's installation."""
    with tempfile.NamedTemporaryFile() as copy:  # nobody else can read it; ssh-keygen refuses a file that others can
        copy.write(private.strip() + b"\n")
        copy.flush()
        try:
            command = ["ssh-keygen", "-y", "-P", "", "-f", copy.name]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except FileNotFoundError:
            raise Refused(
                f"{named} can't be checked: ssh-keygen isn't installed.", hint="Install OpenSSH's client."
            ) from None
    if "passphrase" in done.stderr:
        raise Refused(f"{named} has a passphrase.", hint="Use a key without one.")
    if done.returncode:
        why = done.stderr.strip().rpartition(": ")[2]
        raise Refused(
            f"{named} is not a private key that OpenSSH reads: {why}.",
            hint="Create one: `ssh-keygen -t ed25519 -f FILE`.",
        )
    return " ".join(done.stdout.split()[:2])  # without a comment
