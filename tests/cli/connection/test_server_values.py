"""Values from a server for other programs on this machine: which are accepted, and which refused."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.errors import Refused
from cli.connection.server_values import is_word, private_key, public_key, seconds, token, web_address
from cli.repositories.access import stored_access
from tests.cli.fake_ssh import PRIVATE, PUBLIC
from tests.harness.rows import each

HINT = "Is it the server you mean?"


@pytest.mark.parametrize(
    "address",
    [
        "https://login.example/authorize?client_id=a&scope=openid%20email&state=s#x",
        "http://127.0.0.1:8080/realms/lab",
        "https://[::1]:8443?x=1",
        "HTTPS://login.example".lower(),
        "https://login.example",
    ],
)
def test_what_a_browser_may_open(address: str) -> None:
    assert web_address(address) == address


@each(
    "address",
    [
        *("file:///etc/passwd", "javascript:alert(1)", "ftp://x", "vscode://x", "data:text/html,x", "//x", "x", ""),
        *("https://", "https:///path", "https://?x", "http://[", "http://[::1", "https://h:99999", "https://h:x/"),
        *(
            "https://a b",
            "https://a\nb",
            "ht\ntps://a",
            " https://a",
            "https://a/\x1b[2J",
            'https://a/"',
            "https://a/`id`",
        ),
        *(
            "https://a\\b",
            "https://-a",
            "--https://a",
            "https://me@evil.example",
            "https://a/\u202e",
            "https://é.example",
        ),
        *(None, 7, ["https://a"], {"a": 1}, b"https://a"),
    ],
    ids=repr,
)
def test_what_no_browser_gets(address: Any) -> None:
    with pytest.raises(Refused, match="as a web address, which it can't be") as refused:
        web_address(address)
    assert HINT in refused.value.hint and "\n" not in refused.value.message


NO_KEY = ["", "key", PUBLIC, PRIVATE + "x", "x" + PRIVATE, PRIVATE.replace("AAAA", "A\x00A"), 7, None, [PRIVATE]]


@pytest.mark.parametrize("value", NO_KEY, ids=repr)
def test_a_private_key_is_one_and_isnt_shown_if_it_isnt(value: Any) -> None:
    with pytest.raises(Refused, match=r"^The server sent something else as a private key"):
        private_key(value)
    assert private_key(PRIVATE) == PRIVATE
    old = "-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\n\r\nab+/=\r\n-----END RSA PRIVATE KEY-----"
    assert private_key(old) == old


@pytest.mark.parametrize(
    "value", ["", "x", f"{PUBLIC}\n{PUBLIC}", f"no-pty {PUBLIC}", f"{PUBLIC} \x1b", 7, None], ids=repr
)
def test_a_public_key_is_one(value: Any) -> None:
    with pytest.raises(Refused, match="as a public key"):
        public_key(value)
    for known in (PUBLIC, f"{PUBLIC}\n", f"{PUBLIC} ann at home"):
        assert public_key(known) == known


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "a b", "é", 7, None, ""], ids=repr)
def test_a_token_is_one_word(value: Any) -> None:
    with pytest.raises(Refused, match=r"^The server sent something else as a token"):
        token(value)


@pytest.mark.parametrize(
    "stored", [{"oauth_token": "a\nurl=https://evil"}, {"private_key": "-oProxyCommand=x"}, {"private_key": 7}]
)
def test_git_gets_no_credentials_that_are_none(stored: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="something else"):
        stored_access(stored)


@pytest.mark.parametrize("value", [-1, 10**9, "5", True, None, float("nan")], ids=repr)
def test_how_long_to_wait_is_a_number(value: Any) -> None:
    with pytest.raises(Refused, match="a number of seconds"):
        seconds(value)


def test_a_shell_completes_words_and_nothing_more() -> None:
    assert all(map(is_word, ["train", "my_secret", "ann@lab.example", "a.b-c", "größe", "7"]))
    odd = [
        "$(id)",
        "`id`",
        "a b",
        "a;b",
        "-rf",
        "--force",
        "a'b",
        'a"b',
        "a|b",
        "a&b",
        "a>b",
        "a\nb",
        "~",
        "*",
        "",
        "!x",
        7,
        None,
    ]
    assert not any(map(is_word, odd))
