"""A server's certificate: what is refused, and how renewed files take over."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from chalicelib.errors import Refused
from chalicelib.runtime.tls import ServerCertificate, name_in
from tests.harness.pebble import made_certificate


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "cert.pem", tmp_path / "key.pem", made_certificate("dstack.example.com"))


def write(certificate: Path, key: Path, made: tuple[str, str]) -> tuple[Path, Path]:
    for path, text in zip((certificate, key), made, strict=True):
        draft = path.with_suffix(".new")
        draft.write_text(text)
        draft.replace(path)
    return certificate, key


def shown(context: ssl.SSLContext) -> str:
    """The certificate that a client of a context gets."""
    ends = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    near = client.wrap_bio(ends[0], ends[1])
    far = context.wrap_bio(ends[1], ends[0], server_side=True)
    for one in (near, far, near, far):
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ssl.DER_cert_to_PEM_cert(near.getpeercert(binary_form=True) or b"")


def test_new_connections_get_a_renewed_certificate(files: tuple[Path, Path]) -> None:
    certificate = ServerCertificate(*files)
    before = certificate.context
    assert shown(before) == files[0].read_text() and certificate.name == "dstack.example.com"
    certificate.check_files()
    assert certificate.context is before
    write(*files, made_certificate("dstack.example.com"))
    certificate.check_files()
    assert shown(certificate.context) == files[0].read_text() != shown(before)


def test_half_a_renewal_changes_nothing(files: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    certificate, other = ServerCertificate(*files), made_certificate("dstack.example.com")
    before = certificate.context
    files[0].write_text(other[0])
    with caplog.at_level(logging.ERROR):
        certificate.check_files()
        certificate.check_files()
    assert certificate.context is before
    assert len(caplog.records) == 1 and "KEY_VALUES_MISMATCH" in caplog.text.upper().replace(" ", "_")
    files[1].unlink()
    certificate.check_files()
    assert certificate.context is before
    files[1].write_text(other[1])
    certificate.check_files()
    assert shown(certificate.context) == other[0]


def test_what_is_no_certificate_with_its_key_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    for pair in ((tmp_path / "missing.pem", files[1]), (files[0], files[0]), (files[1], files[1])):
        with pytest.raises(Refused, match="aren't a certificate with its key"):
            ServerCertificate(*pair)


def test_an_encrypted_key_is_refused_and_nobody_is_asked(files: tuple[Path, Path]) -> None:
    key = serialization.load_pem_private_key(files[1].read_bytes(), None)
    sealed = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, sealed))
    with pytest.raises(Refused, match="is encrypted"):
        ServerCertificate(*files)


def test_a_server_is_called_by_the_first_name_that_is_no_wildcard(tmp_path: Path) -> None:
    for hosts, name in ((("*.example.com", "b.example.com"), "b.example.com"), (("127.0.0.1",), "127.0.0.1"), ((), "")):
        path = tmp_path / "cert.pem"
        path.write_text(made_certificate(*hosts)[0])
        assert name_in(path) == name
