"""Private keys in every form that people have them in; what can't be used is refused with what to do."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from chalicelib.configuration.private_keys import fingerprint, plain, public
from chalicelib.errors import Invalid

MADE = {
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
    "ecdsa": ec.generate_private_key(ec.SECP256R1()),
    "rsa": rsa.generate_private_key(65537, 2048),
}
FORMS = {
    "openssh": (serialization.PrivateFormat.OpenSSH, None),
    "pkcs8": (serialization.PrivateFormat.PKCS8, None),
    "traditional": (serialization.PrivateFormat.TraditionalOpenSSL, "ed25519"),
}


def text_of(kind: str, form: str, passphrase: bytes = b"") -> str:
    container = FORMS[form][0]
    locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        locked = serialization.BestAvailableEncryption(passphrase)
    if passphrase and container is serialization.PrivateFormat.OpenSSH:  # as quick as may be: nobody guesses
        locked = container.encryption_builder().kdf_rounds(1).build(passphrase)
    return MADE[kind].private_bytes(serialization.Encoding.PEM, container, locked).decode()


ALL = [(kind, form) for kind in MADE for form, (_, lacking) in FORMS.items() if kind != lacking]


@pytest.mark.parametrize(("kind", "form"), ALL)
def test_a_key_is_brought_to_one_form(kind: str, form: str) -> None:
    text = plain(text_of(kind, form))
    assert text.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert public(text) == public(text_of(kind, form)), "it is the same key"
    assert public(plain(f"\n\n{text}\n\n")) == public(text), "whatever blank lines an editor added"


@pytest.mark.parametrize(("kind", "form"), ALL)
def test_a_passphrase_is_refused(kind: str, form: str) -> None:
    with pytest.raises(Invalid, match="is protected by a passphrase") as refused:
        plain(text_of(kind, form, b"open sesame"))
    assert "ssh-keygen -t ed25519 -N ''" in refused.value.hint


@pytest.mark.parametrize(
    "text", ["", "hello", "ssh-ed25519 AAAA me", "-----BEGIN OPENSSH PRIVATE KEY-----\nAA\n", "x" * 70_000]
)
def test_what_isnt_a_key_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        plain(text)


def test_a_key_of_another_kind_is_refused() -> None:
    old = dsa.generate_private_key(1024)
    pem = old.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    with pytest.raises(Invalid, match="aren't supported"):
        plain(pem)


def rsa_key(p: int, q: int) -> str:
    """A key of these primes, written without asking whether they are prime."""
    done, e = (p - 1) * (q - 1), 65537
    d = pow(e, -1, done)
    numbers = (0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    body = b"".join(b"\x02" + _sized(number.to_bytes(number.bit_length() // 8 + 1, "big")) for number in numbers)
    text = base64.encodebytes(b"\x30" + _sized(body)).decode()
    return f"-----BEGIN RSA PRIVATE KEY-----\n{text}-----END RSA PRIVATE KEY-----\n"


def _sized(data: bytes) -> bytes:
    length = len(data)
    return (b"\x82" + length.to_bytes(2, "big") if length > 127 else bytes([length])) + data


READ_TWO = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
from chalicelib.configuration.private_keys import plain
from chalicelib.errors import Invalid
for key in sys.stdin.read().split("|"):
    try:
        print(len(plain(key)) > 0)
    except Invalid as refused:
        print(refused.message)
"""


@pytest.mark.slow
def test_a_large_rsa_key_costs_no_time() -> None:
    """Whether these two are prime takes OpenSSL half a minute and minutes. The processor's limit ends that."""
    allowed, too_large = rsa_key(2**4253 - 1, 2**3217 - 1), rsa_key(2**9689 - 1, 2**9941 - 1)
    done = subprocess.run(
        [sys.executable, "-c", READ_TWO], input=f"{allowed}|{too_large}", text=True, capture_output=True
    )
    assert done.returncode == 0, "it was ended for the time it took"
    assert done.stdout.splitlines() == ["True", "This RSA key has 19630 bits; 1024 to 8192 are accepted."]


@pytest.mark.parametrize("kind", MADE)
def test_a_fingerprint_is_what_ssh_keygen_prints(kind: str, tmp_path: Path) -> None:
    line = public(text_of(kind, "openssh"))
    (tmp_path / "key.pub").write_text(line + "\n")
    output = subprocess.check_output(["ssh-keygen", "-lf", str(tmp_path / "key.pub")], text=True)
    assert fingerprint(line) == output.split()[1]
