"""What an apply refuses about hosts before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.usecases.hosts import MOST_HOSTS, problems
from tests.hosts.bad_host import KEY
from tests.world import nouns as b

SSH: dict[str, Any] = {
    "user": "ubuntu",
    "ssh_key": {"public": "", "private": KEY},
    "hosts": ["h1", "10.0.0.7", "fd00::7"],
}


def refused(**changes: Any) -> list[str]:
    found = problems(b.fleet_spec(ssh_config={**SSH, **changes}))
    return [f"{'.'.join(map(str, [each.path]))}: {each.message}" for each in found]


def test_names_and_addresses_are_accepted() -> None:
    assert refused() == []
    assert (
        refused(user="first.last", proxy_jump={"hostname": "jump.example.com", "user": "svc-1", "identity_file": ""})
        == []
    )


def test_a_fleet_has_so_many_hosts() -> None:
    """Each is an instance and a workflow, and one call answers with them all."""
    assert refused(hosts=[f"h{number}" for number in range(MOST_HOSTS)]) == []
    (said,) = refused(hosts=[f"h{number}" for number in range(MOST_HOSTS + 1)])
    assert "1001 hosts, and a fleet has at most 1000" in said


@pytest.mark.parametrize("bad", ["a b", "h\x1b[2J", "-oProxyCommand=x", "", "x" * 300, "a';rm -rf ~;'", "h\n"])
def test_names_that_arent_are_refused_where_they_stand(bad: str) -> None:
    """People see them on their terminals, and copy them in the commands that errors suggest."""
    at = "configuration.ssh_config"
    host = {"hostname": "h1", "user": "me", "proxy_jump": {"hostname": "j", "user": "me", "identity_file": ""}}
    for changes, path in (
        ({"user": bad}, f"{at}.user"),
        ({"hosts": [{**host, "user": bad}]}, f"{at}.hosts.0.user"),
        ({"proxy_jump": {"hostname": "j", "user": bad, "identity_file": ""}}, f"{at}.proxy_jump.user"),
        (
            {"hosts": [{**host, "proxy_jump": {"hostname": bad or " ", "user": "me", "identity_file": ""}}]},
            f"{at}.hosts.0.proxy_jump.hostname",
        ),
        ({"hosts": [bad or " "]}, f"{at}.hosts.0.hostname"),
    ):
        found = refused(**changes)
        assert any(said.startswith(f"{path}: ") and "can't be the name of" in said for said in found), (changes, found)
        assert all(said.isprintable() for said in found)
