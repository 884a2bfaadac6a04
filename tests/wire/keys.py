"""Private keys for cases, made when they are asked for: none is kept in the repository.

A file whose text is `<rsa key>` gets one of that kind, the same all session long; `<rsa key>.pub` is its public half.
"""

from __future__ import annotations

from collections.abc import Iterator

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

OPENSSH, PEM = serialization.PrivateFormat.OpenSSH, serialization.PrivateFormat.TraditionalOpenSSL

_PAIRS: dict[str, tuple[str, str]] = {}


def pair(kind: str) -> tuple[str, str]:
    if kind not in _PAIRS:
        _PAIRS[kind] = _new(kind)
    return _PAIRS[kind]


def made() -> Iterator[tuple[str, str]]:
    """What asks for each half of each pair that there is by now, and the half."""
    for kind, (private, public) in _PAIRS.items():
        yield from ((f"<{kind} key>", private.strip()), (f"<{kind} key>.pub", public.strip()))


def _new(kind: str) -> tuple[str, str]:
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    if kind.startswith("rsa"):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    else:
        key = ec.generate_private_key(ec.SECP256R1()) if kind == "ecdsa" else ed25519.Ed25519PrivateKey.generate()
    locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if kind.endswith("locked"):
        locked = serialization.BestAvailableEncryption(b"a passphrase")
    private = key.private_bytes(serialization.Encoding.PEM, PEM if "pem" in kind else OPENSSH, locked)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode() + "\n"


def filled(text: str) -> str:
    """The text itself, or the key that it asks for."""
    kind, is_key, rest = text.partition(" key>")
    if not is_key or not kind.startswith("<"):
        return text
    return pair(kind[1:])[1 if rest == ".pub" else 0]
