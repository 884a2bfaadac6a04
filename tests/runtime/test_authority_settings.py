"""Which certificate authority is asked: alike for both roots, and named by what set it if it makes no sense."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from chalicelib.errors import Invalid
from chalicelib.identity.acme import Acme
from chalicelib.runtime.lambda_ import _authority
from chalicelib.runtime.settings import LETS_ENCRYPT, AuthoritySettings, authority_in, server_settings
from tests.harness.pebble import made_certificate

DIRECTORY_URL = "https://ca.example.com/directory"
KEY = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"


def test_lets_encrypt_is_asked_unless_another_is_set() -> None:
    assert server_settings({}).authority == authority_in("") == AuthoritySettings()
    assert AuthoritySettings().build() == Acme(LETS_ENCRYPT)


def test_another_is_set_alike_for_both_roots(tmp_path: Path) -> None:
    ca, _ = made_certificate("ca.example.com")
    (tmp_path / "ca.pem").write_text(ca)
    env = {"SERVER": DIRECTORY_URL, "CA": str(tmp_path / "ca.pem"), "EAB_KID": "kid-1", "EAB_HMAC_KEY": KEY}
    found = server_settings({f"DSTACK_ACME_{name}": value for name, value in env.items()}).authority
    assert found == authority_in(
        json.dumps({"server": DIRECTORY_URL, "ca": ca, "eab_kid": "kid-1", "eab_hmac_key": KEY})
    )
    assert found.build() == Acme(DIRECTORY_URL, ca, "kid-1", KEY)
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"SERVER": "http://ca.example.com/directory"}, "DSTACK_ACME_SERVER is"),
        ({"SERVER": "https://user:secret@ca.example.com"}, "DSTACK_ACME_SERVER is"),
        ({"CA": "/nowhere/ca.pem"}, "DSTACK_ACME_CA is '/nowhere/ca.pem', which can't be read"),
        ({"CA": __file__}, "isn't a list of certificates"),
        ({"EAB_KID": "kid-1"}, "one is set without the other"),
        ({"EAB_HMAC_KEY": KEY}, "one is set without the other"),
        ({"EAB_KID": "kid-1", "EAB_HMAC_KEY": "not base64!"}, "isn't base64url"),
    ],
    ids=["http", "password", "no-file", "no-pem", "kid", "key", "base64"],
)
def test_what_makes_no_sense_is_named(env: dict[str, str], named: str) -> None:
    with pytest.raises(Invalid) as refused:
        server_settings({f"DSTACK_ACME_{name}": value for name, value in env.items()})
    assert named in str(refused.value) and "not base64!" not in str(refused.value)


@pytest.mark.parametrize("text", ["[", "[]", '{"server": 5}', '{"directory": "x"}', '{"server": "ftp://x"}'])
def test_a_mistake_in_aws_stops_nothing_but_certificates(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    assert _authority(text) is None
    assert "no certificates can be ordered" in caplog.text and "acme" in caplog.text
    made: Any = _authority("{}")
    assert made == Acme(LETS_ENCRYPT)


def test_its_key_is_not_inherited_by_what_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSTACK_ACME_EAB_KID", "kid-1")
    monkeypatch.setenv("DSTACK_ACME_EAB_HMAC_KEY", KEY)
    assert server_settings().authority.eab_hmac_key == KEY
    assert "DSTACK_ACME_EAB_HMAC_KEY" not in os.environ
