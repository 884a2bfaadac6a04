"""The caller's own public keys over HTTP."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from chalicelib.usecases.people import public_keys
from tests.api.rig import Rig

ONE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAJfXpGgxCBxoFRSgXNqxQo84nLJ4bF7O8Ia5UxZBcqh"
FINGERPRINT = "SHA256:Eh1Ip0zc9iKXVZTtZTPbp7RYQidTo7BViPXgyerDp0k"
ADD, LIST, DELETE = (f"/api/users/public_keys/{verb}" for verb in ("add", "list", "delete"))


def line(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    text = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return text.decode()


def test_a_key_is_added_listed_and_deleted(rig: Rig) -> None:
    made = rig.ok(ADD, {"key": f"  {ONE} me@laptop\n"})
    assert made.keys() == {"id", "added_at", "name", "type", "fingerprint"}
    assert (made["name"], made["type"], made["fingerprint"]) == ("me@laptop", "ssh-ed25519", FINGERPRINT)
    other = rig.ok(ADD, {"key": line(ec.generate_private_key(ec.SECP256R1())), "name": "yubi"})
    assert rig.ok(LIST) == [other, made], "newest first"
    assert rig.ok(DELETE, {"ids": [made["id"]]}) is None and rig.ok(LIST) == [other]
    assert rig.ok("/api/users/get_my_user")["ssh_public_key"].startswith("ssh-ed25519 ")


def test_everybody_has_only_their_own(rig: Rig) -> None:
    key = rig.ok(ADD, {"key": ONE})
    ann = rig.user("ann")
    assert rig.ok(LIST, token=ann) == [] and rig.ok(ADD, {"key": ONE}, token=ann)["name"] == "key of ann"
    assert "no public key" in rig.refused(DELETE, {"ids": [key["id"]]}, token=ann)
    assert rig.ok(LIST) == [key]


def test_none_is_deleted_if_one_is_unknown(rig: Rig) -> None:
    made = rig.ok(ADD, {"key": ONE})
    missing = "00000000-0000-4000-8000-000000000000"
    assert missing in rig.refused(DELETE, {"ids": [made["id"], missing]})
    assert rig.ok(LIST) == [made]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "one line"),
        ("hello", "one line"),
        (f"{ONE}\n{ONE}", "one line"),
        ("ssh-ed25519 AAAA", "of a type that OpenSSH takes: ssh-ed25519"),
        ("ssh-future AAAA", "ssh-future"),
        (f'command="rm" {ONE}', 'command="rm"'),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nx", "a private key"),
        (line(rsa.generate_private_key(65537, 1024)), "1024"),
        ("ssh-dss AAAAB3NzaC1kc3M", "DSA"),
        ("ssh-ed25519-cert-v01@openssh.com AAAAIHNz", "a certificate"),
        (f"{ONE} {'x' * 9000}", "one line"),
    ],
)
def test_what_sshd_wouldnt_take_is_refused_with_what_to_do(rig: Rig, key: str, why: str) -> None:
    error = rig.refused(ADD, {"key": key})
    assert error.startswith("key: ") and why in error and rig.ok(LIST) == []


def test_the_same_key_twice_and_too_many_are_refused(rig: Rig) -> None:
    rig.ok(ADD, {"key": ONE, "name": "work"})
    assert "already, as 'work'" in rig.refused(ADD, {"key": f"{ONE} other"})
    for _ in range(public_keys.MOST - 1):
        rig.ok(ADD, {"key": line(ec.generate_private_key(ec.SECP256R1()))})
    assert "Delete one first" in rig.refused(ADD, {"key": line(ec.generate_private_key(ec.SECP256R1()))})


def test_who_added_or_deleted_which_key_is_in_the_history(rig: Rig) -> None:
    rig.world.clock.pass_(1)
    made = rig.ok(ADD, {"key": ONE, "name": "work\x1b[31m"})
    rig.world.clock.pass_(1)
    rig.ok(DELETE, {"ids": [made["id"]]})
    deleted, added = rig.ok("/api/events/list", {"limit": 2})
    assert added["message"] == f"public key added: work ({FINGERPRINT})" and added["actor_user"] == "admin"
    assert deleted["message"] == f"public key deleted: work ({FINGERPRINT})"
