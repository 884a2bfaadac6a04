"""Private SSH keys named on a command line or in a configuration, and their public keys.

OpenSSH reads fewer forms than people have: not ed25519 in PKCS8, as `openssl genpkey` writes it, and neither a BOM,
CRLF nor text before the key. Such a key is written anew in a form that it reads.
"""

from __future__ import annotations

import base64
import re
import subprocess
import tempfile
from pathlib import Path

from chalicelib.errors import Refused

_PEM = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
# What RFC 8410 puts before the 32 bytes of a key.
_ED25519_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_ED25519_PUBLIC = bytes.fromhex("302a300506032b6570032100")
_NEW_KEY = "Create one: `ssh-keygen -t ed25519 -f FILE`."


def read_key(
    name: str, folder: Path, home: Path, *, named_by: str = "identity_file", as_it_is: bool = False
) -> dict[str, str]:
    """A file's private key and its public key, which is read from the `.pub` file beside it if there is one.

    `as_it_is`: ssh will open the file itself, so a form that OpenSSH doesn't read is refused.
    """
    path = home / name[2:] if name.startswith("~/") else folder / name
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Refused(
            f"{named_by}: {path} can't be read: {error.strerror}.", hint="Name a private key that you can read."
        ) from error
    if text.startswith((b"ssh-", b"ecdsa-")):
        raise Refused(f"{named_by}: {path} is a public key.", hint="Name the private key, without .pub.")
    named = f"{named_by}: {path}"
    if not as_it_is:
        text = _readable(text, named)
    public = _public_key(text, named)
    beside = path.with_name(path.name + ".pub")
    if beside.is_file():  # it may have a comment, and clients compare the text
        public = beside.read_text(encoding="utf-8", errors="replace")
    return {"public": public, "private": text.decode()}


def _readable(text: bytes, named: str) -> bytes:
    """The private key in a file, in a form that OpenSSH reads; all of the text if none is seen in it."""
    pem = _PEM.search(text)
    if pem is None:
        return text
    key = pem[0].replace(b"\r\n", b"\n") + b"\n"
    seed = _ed25519_seed(key) if pem[1] == b"PRIVATE KEY" else b""
    return _openssh(seed, _ed25519_public(key, named)) if seed else key


def _ed25519_seed(pkcs8: bytes) -> bytes:
    """Empty: it is another kind of key, or none."""
    try:
        der = base64.b64decode(b"".join(pkcs8.splitlines()[1:-1]))
    except ValueError:
        return b""
    is_one = der.startswith(_ED25519_PKCS8) and len(der) == len(_ED25519_PKCS8) + 32
    return der[-32:] if is_one else b""


def _ed25519_public(key: bytes, named: str) -> bytes:
    """From the program that made it, most likely: ssh-keygen can't."""
    command = ["openssl", "pkey", "-pubout", "-outform", "DER"]
    try:
        done = subprocess.run(command, input=key, capture_output=True, check=False)
    except FileNotFoundError:
        why = "openssl isn't installed, which reads an ed25519 key in PKCS8"
        raise Refused(f"{named} can't be checked: {why}.", hint=f"Install openssl. {_NEW_KEY}") from None
    if not done.stdout.startswith(_ED25519_PUBLIC):
        why = done.stderr.decode(errors="replace").strip().rpartition(":")[2].strip()
        raise Refused(f"{named} is not a private key that openssl reads: {why}.", hint=_NEW_KEY)
    return done.stdout.removeprefix(_ED25519_PUBLIC)


def _openssh(seed: bytes, public: bytes) -> bytes:
    """OpenSSH's own form, as its PROTOCOL.key says, always the same for a key: who applies it twice changes nothing."""
    kind = _string(b"ssh-ed25519") + _string(public)
    private = bytes(8) + kind + _string(seed + public) + _string(b"")
    private += bytes(range(1, -len(private) % 8 + 1))
    head = _string(b"none") + _string(b"none") + _string(b"") + (1).to_bytes(4, "big")
    whole = base64.encodebytes(b"openssh-key-v1\0" + head + _string(kind) + _string(private))
    return b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + whole + b"-----END OPENSSH PRIVATE KEY-----\n"


def _string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


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
            hint=_NEW_KEY,
        )
    return " ".join(done.stdout.split()[:2])  # without a comment
