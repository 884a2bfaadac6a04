"""Private SSH keys in any of the usual file formats, converted to one.

The primes of an RSA key aren't verified: that would block for seconds with 4096 bits and for minutes with a few times
as many. A key with wrong ones harms only its owner.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from chalicelib.errors import Invalid

MOST_BYTES = 64 * 1024
BITS = (1024, 8192)  # of RSA; fewer can't sign, and a login with more takes a second of the processor
_KINDS = (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)
_Key = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def plain(text: str) -> str:
    """The key in OpenSSH's own format. Raises Invalid if it is protected by a passphrase or isn't a private key."""
    key = loaded(text)
    serialized = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return serialized.decode()


def public(text: str) -> str:
    """The public key, as in `authorized_keys`."""
    form = serialization.PublicFormat.OpenSSH
    return loaded(text).public_key().public_bytes(serialization.Encoding.OpenSSH, form).decode()


def fingerprint(public_key: str) -> str:
    """`SHA256:…` of a public key line, as `ssh-keygen -l` prints it (RFC 4253 §6.6 for what is hashed)."""
    blob = base64.b64decode(public_key.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def loaded(text: str) -> _Key:
    """The parsed key. Raises Invalid, like `plain`."""
    data = text.strip().encode() + b"\n"
    if len(data) > MOST_BYTES:
        raise Invalid("This is too long for a private key.", hint="Give a key that ssh-keygen made.")
    opener = serialization.load_ssh_private_key
    if b"BEGIN OPENSSH PRIVATE KEY" not in data:
        opener = serialization.load_pem_private_key  # type: ignore[assignment]
    try:
        key = opener(data, password=None, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        raise Invalid("This private key is protected by a passphrase.", hint=_UNENCRYPTED) from None
    except (ValueError, UnsupportedAlgorithm) as problem:
        if "password" in str(problem).lower() or "passphrase" in str(problem).lower():
            raise Invalid("This private key is protected by a passphrase.", hint=_UNENCRYPTED) from None
        raise Invalid("This isn't a private SSH key.", hint="Give the file without `.pub`.") from None
    if not isinstance(key, _KINDS):
        raise Invalid("Keys of this type aren't supported.", hint="Use ed25519, ecdsa or RSA.")
    if isinstance(key, rsa.RSAPrivateKey) and not BITS[0] <= key.key_size <= BITS[1]:
        text = f"This RSA key has {key.key_size} bits; {BITS[0]} to {BITS[1]} are accepted."
        raise Invalid(text, hint="Make one with: ssh-keygen -t ed25519")
    return key


_UNENCRYPTED = "Give an unencrypted key; this makes one: ssh-keygen -t ed25519 -N '' -f ~/.ssh/dstack"
