"""Private SSH keys named on a command line or in a configuration, and their public keys."""

from __future__ import annotations

from pathlib import Path

from chalicelib.errors import Refused


def read_key(name: str, folder: Path, home: Path, *, named_by: str = "identity_file") -> dict[str, str]:
    """A file's private key and its public key, which is read from the `.pub` file beside it if there is one."""
    from cryptography.hazmat.primitives import serialization

    path = home / name[2:] if name.startswith("~/") else folder / name
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Refused(
            f"{named_by}: {path} can't be read: {error.strerror}.", hint="Name a private key that you can read."
        ) from error
    if text.startswith((b"ssh-", b"ecdsa-")):
        raise Refused(f"{named_by}: {path} is a public key.", hint="Name the private key, without .pub.")
    try:
        if b"BEGIN OPENSSH PRIVATE KEY" in text:
            key = serialization.load_ssh_private_key(text, password=None)
        else:
            key = serialization.load_pem_private_key(text, password=None)  # type: ignore[assignment]
    except TypeError as error:
        raise Refused(f"{named_by}: {path} has a passphrase.", hint="Use a key without one.") from error
    except ValueError as error:
        raise Refused(
            f"{named_by}: {path} is not a private key: {error}.", hint="Create one: `ssh-keygen -t ed25519 -f FILE`."
        ) from error
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    beside = path.with_name(path.name + ".pub")
    if beside.is_file():  # it may have a comment, and clients compare the text
        public = beside.read_text(encoding="utf-8", errors="replace")
    return {"public": public, "private": text.decode()}
