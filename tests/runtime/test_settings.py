"""Settings from variables and flags: what makes no sense is named."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from chalicelib.domain.retention import Retention
from chalicelib.errors import Invalid
from chalicelib.runtime.event_chains import LONGEST
from chalicelib.runtime.settings import LambdaSettings, ServerSettings, server_settings


def test_nothing_given_is_the_default() -> None:
    assert server_settings({}) == ServerSettings().resolved()


def test_an_empty_variable_is_one_that_isnt_set() -> None:
    """An empty host would listen everywhere."""
    assert server_settings({"DSTACK_SERVER_HOST": "", "DSTACK_SERVER_PORT": ""}, host="") == server_settings({})


def test_a_flag_goes_before_a_variable() -> None:
    found = server_settings({"DSTACK_SERVER_PORT": "4000", "DSTACK_SERVER_HOST": "::1"}, port=0)
    assert (found.port, found.host) == (0, "::1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DSTACK_SERVER_PORT", "abc"),
        ("DSTACK_SERVER_PORT", "65536"),
        ("DSTACK_SERVER_PORT", "-1"),
        ("DSTACK_SERVER_PORT", "²"),
        ("DSTACK_SERVER_PORT", "9" * 5000),
        ("DSTACK_SERVER_URL", "dstack.example.com"),
        ("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "2 MB"),
        ("DSTACK_SERVER_LOG_LEVEL", "loud"),
        ("DSTACK_SERVER_LOG_FORMAT", "xml"),
        ("DSTACK_SERVER_LOG_REQUESTS", "always"),
        ("DSTACK_AGENT_RUNTIME", "podman"),
        ("DSTACK_SERVER_LOCAL_FLEET", "perhaps"),
        ("DSTACK_SERVER_LOCAL_BLOCKS", "two"),
        ("DSTACK_SERVER_FAKE_CLOUD", "aws"),
        ("DSTACK_SERVER_TRUST_JOBS", "some"),
        ("DSTACK_SERVER_JOB_USERS", "root"),
        ("DSTACK_SERVER_JOB_USERS", "0-99"),
        ("DSTACK_SERVER_JOB_USERS", "61000-60999"),
        ("DSTACK_SERVER_JOB_USERS", "²-61000"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=f"{name} is .*Set it as in {name}="):
        server_settings({name: value})


def test_what_stands_in_for_a_provider_is_on_this_machine() -> None:
    """The backend sends it the provider's credentials."""
    name = "DSTACK_BACKEND_ENDPOINTS"
    one, two = "http://127.0.0.1:4566", "http://localhost:4567"
    found = {"crusoe": one, "gcp": two}
    for read in (server_settings, deployed):
        assert read({}).endpoints == {}
        assert read({name: f"crusoe={one},gcp={two}"}).endpoints == found
    for wrong in ("https://127.0.0.1", "http://api.example.com", "http://127.0.0.1/v1", "http://me@127.0.0.1", ""):
        with pytest.raises(Invalid, match=f"{name} has '{wrong}' for the backend 'crusoe', not the address"):
            server_settings({name: f"gcp={two},crusoe={wrong}"})


def test_a_catalogue_of_prices_is_published_somewhere() -> None:
    """A function has no folder, and what it buys by comes over no line that others can write to."""
    name, address = "DSTACK_CATALOG_URL", "https://prices.example.com/v1"
    for read in (server_settings, deployed):
        assert (read({}).catalog_url, read({name: address}).catalog_url) == ("", address)
    for local in ("file:///srv/prices", "http://prices.lan"):
        assert server_settings({name: local}).catalog_url == local
        with pytest.raises(Invalid, match=f"{name} is '{local}', not the address of a catalogue.*begin with https"):
            deployed({name: local})
    for wrong in ("prices.csv", "https://me:secret@prices.example.com", "https://prices.example.com/?v=1", "ftp://a/b"):
        with pytest.raises(Invalid, match=f"Set it as in {name}=https://prices.example.com/v1"):
            server_settings({name: wrong})


NAMES = {
    "DSTACK_TABLE": "t",
    "DSTACK_BUCKET": "b",
    "DSTACK_WAKE_FUNCTION": "w",
    "DSTACK_EFFECT_FUNCTION": "e",
    "DSTACK_KEYS": "k",
    "DSTACK_API_URL": "u",
}


def deployed(changes: dict[str, str]) -> LambdaSettings:
    """The settings of a function whose stack is whole."""
    keys = {"install-key": "00" * 32, "master-key": "11" * 32}
    return LambdaSettings.read(lambda path, names: keys, NAMES | changes)


def test_how_long_a_chain_of_events_may_be_is_for_who_has_an_emulator() -> None:
    assert (deployed({}).longest_chain, deployed({"DSTACK_LONGEST_CHAIN": "12"}).longest_chain) == (LONGEST, 12)
    for wrong in ("1", "many"):
        with pytest.raises(Invalid, match=f"DSTACK_LONGEST_CHAIN is '{wrong}', not a number from 2"):
            deployed({"DSTACK_LONGEST_CHAIN": wrong})


def test_how_long_things_are_kept_is_set_alike_for_both_roots() -> None:
    chosen = {f"DSTACK_RETAIN_{field.name.upper()}": str(number) for number, field in enumerate(fields(Retention), 3)}
    wanted = Retention(events=3, metrics=4, logs=5, deleted=6, fleets=7, archives=8)
    assert server_settings(chosen).retention == deployed(chosen).retention == wanted
    assert server_settings({}).retention == deployed({}).retention == Retention()
    assert server_settings({"DSTACK_RETAIN_DELETED": "0"}).retention.deleted == 0  # with the next sweep


def test_the_page_says_what_holds_unless_it_is_set() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "retention.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| (\d+) \| `DSTACK_RETAIN_(\w+)` \|", page)
    assert {name.lower(): int(days) for days, name in rows} == asdict(Retention())


@pytest.mark.parametrize("days", ["0", "-1", "90d", "36501"])
def test_a_number_of_days_that_makes_no_sense_is_named(days: str) -> None:
    with pytest.raises(
        Invalid, match=r"DSTACK_RETAIN_EVENTS is .*from 1 to 36500.*Set it as in DSTACK_RETAIN_EVENTS=90"
    ):
        deployed({"DSTACK_RETAIN_EVENTS": days})


@pytest.mark.parametrize("field", ["local_fleet", "fake_cloud", "stop_jobs", "trust_jobs", "enter_project"])
def test_a_switch(field: str) -> None:
    name = f"DSTACK_SERVER_{field.upper()}"
    for text, value in (("on", True), ("TRUE", True), ("1", True), ("off", False), ("0", False), ("no", False)):
        assert getattr(server_settings({name: text}), field) is value
    assert getattr(server_settings({name: "on"}, **{field: False}), field) is False  # the flag wins


def test_the_simulated_cloud_stands_in_for_a_known_type() -> None:
    assert server_settings({}).fake_cloud_name == "dstack"
    assert server_settings({"DSTACK_SERVER_FAKE_CLOUD_NAME": "AWS"}).fake_cloud_name == "aws"
    assert server_settings({"DSTACK_SERVER_FAKE_CLOUD_NAME": "aws"}, fake_cloud_name="gcp").fake_cloud_name == "gcp"
    with pytest.raises(Invalid, match=r"--fake-cloud-name is 'sky'.*Set it as in --fake-cloud-name aws"):
        server_settings({}, fake_cloud_name="sky")
    with pytest.raises(Invalid, match="DSTACK_SERVER_FAKE_CLOUD_NAME is 'sky'"):
        server_settings({"DSTACK_SERVER_FAKE_CLOUD_NAME": "sky"})


def test_who_jobs_run_as() -> None:
    assert server_settings({}).agent_users == "61000-61999"
    assert server_settings({"DSTACK_SERVER_JOB_USERS": "70000-70009"}).agent_users == "70000-70009"
    assert server_settings({"DSTACK_SERVER_JOB_USERS": "70000-70009"}, trust_jobs=True).agent_users == "agent"


@pytest.mark.parametrize("blocks", ["", "auto", "1", "16"])
def test_blocks(blocks: str) -> None:
    assert server_settings({}, local_blocks=blocks).local_blocks == (blocks or "1")


@pytest.mark.parametrize("blocks", ["0", "-1", "two", "99999", "1.5"])
def test_blocks_that_make_no_sense(blocks: str) -> None:
    with pytest.raises(Invalid, match="--local-blocks"):
        server_settings({}, local_blocks=blocks)


def test_the_public_url_is_kept_as_scheme_host_and_port() -> None:
    assert server_settings({}).public_url is None
    assert server_settings({"DSTACK_SERVER_URL": "https://D.example.com/"}).public_url == "https://d.example.com"
    flag = server_settings({"DSTACK_SERVER_URL": "nonsense"}, public_url="http://[2001:DB8::5]:3000")
    assert flag.public_url == "http://[2001:db8::5]:3000"


def test_a_public_url_that_makes_no_sense_is_named_by_its_flag() -> None:
    with pytest.raises(Invalid, match=r"--public-url is 'ftp://x': .*http.*Set it as in --public-url https://"):
        server_settings({}, public_url="ftp://x")


def test_a_password_in_a_public_url_is_not_repeated() -> None:
    with pytest.raises(Invalid) as refused:
        server_settings({}, public_url="https://me:s3cr3t@x.example")
    assert "user name or a password" in str(refused.value) and "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("pace", ["0", "-1", "61", "nan", "fast"])
def test_a_pace_of_a_stack_that_makes_no_sense_is_named(pace: str) -> None:
    assert deployed({}).sync_seconds == 2.0
    with pytest.raises(Invalid, match=f"DSTACK_SYNC_SECONDS is '{pace}'"):
        deployed({"DSTACK_SYNC_SECONDS": pace})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"DSTACK_SERVER_TLS_CERT": "c.pem"}, "--tls-cert is set without --tls-key"),
        ({"DSTACK_SERVER_TLS_KEY": "k.pem"}, "--tls-key is set without --tls-cert"),
        ({"DSTACK_SERVER_TLS_ACME": "localhost"}, "isn't the name of a host that an authority certifies"),
        ({"DSTACK_SERVER_TLS_ACME": "10.0.0.1"}, "isn't the name of a host that an authority certifies"),
        (
            {f"DSTACK_SERVER_TLS_{name}": "a.example.com" for name in ("CERT", "KEY", "ACME")},
            "--tls-acme and --tls-cert contradict each other",
        ),
        ({"DSTACK_SERVER_TRUSTED_PROXIES": "everybody"}, "DSTACK_SERVER_TRUSTED_PROXIES is 'everybody'"),
        ({"DSTACK_SERVER_ACME_PORT": "0x50"}, "DSTACK_SERVER_ACME_PORT is '0x50'"),
    ],
)
def test_contradictions_about_tls_and_proxies_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        server_settings(given)


def test_a_server_has_a_certificate_and_proxies() -> None:
    found = server_settings({"DSTACK_SERVER_TRUSTED_PROXIES": "10.0.0.0/8"}, tls_cert="~/c.pem", tls_key="~/k.pem")
    assert found.tls_cert == Path("~/c.pem").expanduser() and "10.1.2.3" in found.trusted_proxies
    assert server_settings({}).tls_cert is None and "127.0.0.1" not in server_settings({}).trusted_proxies
