"""Changes on condition: of runs, fleets and gateways, by the tags of their specs; of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from tests.api.rig import Rig
from tests.api.v1.bodies import FLEET, GATEWAY
from tests.api.v1.rest import TASK, Client
from tests.world.ports import accounts

NODES = {"min": 0, "target": 0}
SPECS = {  # the path, the spec, and what can be changed in place
    "runs": (TASK, {"priority": 3}, {"priority": 5}),
    "fleets": (FLEET, {"nodes": {**NODES, "max": 3}}, {"nodes": {**NODES, "max": 5}}),
    "gateways": (GATEWAY, {"domain": "example.com"}, {"domain": "example.org"}),
}


@pytest.fixture
def api(tmp_path: Path) -> Client:
    return Client.of(Rig.at(tmp_path, backends=accounts(BackendFacts(name="aws", gateways=True))))


@pytest.mark.parametrize("noun", SPECS)
def test_a_spec_is_changed_only_as_the_caller_knows_it(api: Client, noun: str) -> None:
    spec, one, other = SPECS[noun]
    url = f"/api/v1/projects/{api.project}/{noun}/thing/spec"
    made = api.call("PUT", url, spec, if_none_match="*")
    assert made.status == 201, made
    assert api.refused("PUT", url, spec, if_none_match="*")[:2] == (412, "changed-since")
    tag = api.call("GET", url).headers["ETag"]
    assert tag == made.headers["ETag"]
    changed = api.call("PUT", url, {**spec, **one}, if_match=tag)
    assert changed.status == 200 and changed.headers["ETag"] != tag, changed
    assert api.refused("PUT", url, {**spec, **other}, if_match=tag)[:2] == (412, "changed-since")
    assert api.refused("PUT", url, {**spec, **other}, if_match=f"W/{changed.headers['ETag']}")[0] == 412
    api.ok("PUT", url, {**spec, **other}, if_match=f'"older", {changed.headers["ETag"]}')
    api.ok("PUT", url, {**spec, **one}, if_match="*")
    api.ok("PUT", url, {**spec, **other})
    assert api.call("GET", url, if_none_match=tag).status == 200
    assert api.call("GET", url, if_none_match=api.call("GET", url).headers["ETag"]).status == 304


@pytest.mark.parametrize("noun", SPECS)
def test_a_change_on_condition_is_repeated_in_peace(api: Client, noun: str) -> None:
    spec, one, _ = SPECS[noun]
    url = f"/api/v1/projects/{api.project}/{noun}/thing/spec"
    made, again = (api.call("PUT", url, spec, if_none_match="*", idempotency_key="a") for _ in range(2))
    assert (made.status, made.body, made.headers["ETag"]) == (again.status, again.body, again.headers["ETag"])
    assert made.status == 201
    tag = made.headers["ETag"]
    changed, again = (api.call("PUT", url, {**spec, **one}, if_match=tag, idempotency_key="b") for _ in range(2))
    assert (changed.status, changed.body) == (again.status, again.body) and changed.status == 200
    assert api.call("PUT", url, spec, if_none_match="*", idempotency_key="a").status == 201, "as it was answered then"
    assert again.headers["Idempotency-Replayed"] == "true"
    for headers in ({"if_match": tag}, {"if_none_match": "*"}):
        assert api.refused("PUT", f"{url}?dry_run=true", {**spec, **one}, **headers)[:2] == (412, "changed-since")


@pytest.mark.parametrize("noun", [*SPECS, "secrets"])
def test_a_dry_run_says_whether_it_would_create_or_change(api: Client, noun: str) -> None:
    spec, one, _ = SPECS.get(noun, ({"value": "v"}, {"value": "w"}, {}))
    url = f"/api/v1/projects/{api.project}/{noun}/thing" + ("/spec" if noun in SPECS else "")
    assert api.ok("PUT", f"{url}?dry_run=true", spec)["action"] == "create"
    api.ok("PUT", url, spec, status=201)
    assert api.ok("PUT", f"{url}?dry_run=true", {**spec, **one})["action"] == "change"
    if noun in SPECS:
        assert api.ok("PUT", f"{url}?dry_run=true", spec)["action"] == "none"
        api.ok("PUT", url, {**spec, **one})
        assert api.ok("PUT", f"{url}?dry_run=true", {**spec, **one})["action"] == "none"


@pytest.mark.parametrize("noun", SPECS)
def test_a_spec_that_isnt_there_is_no_match(api: Client, noun: str) -> None:
    url = f"/api/v1/projects/{api.project}/{noun}/thing/spec"
    assert api.refused("PUT", url, SPECS[noun][0], if_match="*")[:2] == (412, "changed-since")
    assert api.refused("GET", url)[:2] == (404, "not-found")


@pytest.mark.parametrize("noun", SPECS)
def test_a_spec_has_the_name_of_its_address(api: Client, noun: str) -> None:
    url = f"/api/v1/projects/{api.project}/{noun}/thing/spec"
    status, _, problem = api.refused("PUT", url, {**SPECS[noun][0], "name": "another"})
    assert (status, problem["errors"][0]["pointer"]) == (422, "/name")


@pytest.mark.parametrize("headers", [{"if_match": "*"}, {"if_match": '"x"'}, {"if_none_match": "*"}])
def test_a_condition_that_nothing_could_keep_is_refused(api: Client, headers: dict[str, Any]) -> None:
    project = f"/api/v1/projects/{api.project}"
    for method, path, body in (
        ("PUT", "/secrets/one", {"value": "v"}),
        ("POST", "/runs", TASK),
        ("DELETE", "/fleets/x", None),
    ):
        assert api.refused(method, project + path, body, **headers)[:2] == (412, "changed-since")
    assert api.ok("GET", f"{project}/secrets")["items"] == []
