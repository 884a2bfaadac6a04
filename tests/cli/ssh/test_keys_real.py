"""Private keys as ssh-keygen reads them: real ones of the usual kinds, and what isn't one."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from chalicelib.configuration.private_keys import public
from chalicelib.errors import Refused
from cli.ssh.keys import read_key

HOME = Path("/nowhere")


def make(folder: Path, *options: str, passphrase: str = "") -> tuple[str, str]:
    """A new key and its public key; the file of the latter is gone."""
    command = ["ssh-keygen", "-q", "-N", passphrase, "-C", "of mine", "-f", "key", *options]
    subprocess.run(command, cwd=folder, check=True)
    beside = folder / "key.pub"
    public = beside.read_text()
    beside.unlink()
    return (folder / "key").read_text(), public


@pytest.mark.parametrize("options", [["-t", "ed25519"], ["-t", "ecdsa", "-m", "PEM"], ["-t", "ecdsa", "-m", "PKCS8"]])
def test_a_key_has_its_public_key(options: list[str], tmp_path: Path) -> None:
    private, beside = make(tmp_path, *options)
    (tmp_path / "key").chmod(0o644)  # a mounted secret's; whoever logs in with it may refuse it
    (tmp_path / "key").write_text(private.rstrip("\n"))
    found = read_key("key", tmp_path, HOME)
    assert found == {"public": " ".join(beside.split()[:2]), "private": private}


def test_the_public_key_beside_it_is_taken_as_it_is(tmp_path: Path) -> None:
    make(tmp_path, "-t", "ed25519")
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA as written\n")
    assert read_key("~/key", HOME, tmp_path)["public"] == "ssh-ed25519 AAAA as written\n"


@pytest.mark.parametrize("options", [["-t", "ed25519"], ["-t", "ecdsa", "-m", "PEM"]])
def test_a_passphrase_is_refused(options: list[str], tmp_path: Path) -> None:
    make(tmp_path, *options, passphrase="secret")
    with pytest.raises(Refused, match=r"^--ssh-identity: .*/key has a passphrase\."):
        read_key("key", tmp_path, HOME, named_by="--ssh-identity")


@pytest.mark.parametrize("around", ["\ufeff{}", "# of mine\n\n{}", "{}\nthe end"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("options", [["-t", "ed25519"], ["-t", "ecdsa", "-m", "PEM"]])
def test_what_is_around_a_key_is_cut_off(options: list[str], line_end: str, around: str, tmp_path: Path) -> None:
    private, beside = make(tmp_path, *options)
    (tmp_path / "key").write_bytes(around.replace("{}", private).replace("\n", line_end).encode())
    assert read_key("key", tmp_path, HOME) == {"public": " ".join(beside.split()[:2]), "private": private}


def test_a_key_of_openssl_is_written_anew_as_openssh_reads_it(tmp_path: Path) -> None:
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "key"], cwd=tmp_path, check=True)
    found = read_key("key", tmp_path, HOME)
    assert found == {"public": public(text := (tmp_path / "key").read_text()), "private": found["private"]}
    assert public(found["private"]) == found["public"] and "BEGIN PRIVATE KEY" in text
    (tmp_path / "anew").write_text(found["private"])
    assert read_key("anew", tmp_path, HOME, as_it_is=True) == found == read_key("key", tmp_path, HOME)
    with pytest.raises(Refused, match="not a private key that OpenSSH reads"):
        read_key("key", tmp_path, HOME, as_it_is=True)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_of_another_length_is_no_ed25519_key(length: int, tmp_path: Path) -> None:
    der = bytes.fromhex("302e020100300506032b657004220420") + bytes(length)
    body = base64.b64encode(der).decode()
    (tmp_path / "key").write_text(f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
    with pytest.raises(Refused, match="not a private key that OpenSSH reads"):
        read_key("key", tmp_path, HOME)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "-----BEGIN PRIVATE KEY-----\nA\n-----END PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_is_no_key_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(
        Refused, match=r"^identity_file: .*/key is not a private key that OpenSSH reads: [\w ]+\."
    ) as refused:
        read_key("key", tmp_path, HOME)
    assert "ssh-keygen -t ed25519" in refused.value.hint
