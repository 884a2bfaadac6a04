"""The agent's calls over HTTP: sync, its archives, its program."""

from __future__ import annotations

import base64
import hashlib
import io
from dataclasses import replace
from typing import Any

import orjson
import pytest

from chalicelib.agent.kernel.link import Link
from chalicelib.api import dispatch
from chalicelib.api.auth import FIRST_MESSAGE
from chalicelib.domain import keys
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.tenants import Archive
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.runtime.chalice_app import ControlPlane
from chalicelib.store import nouns
from chalicelib.usecases.agents import carriers
from chalicelib.usecases.agents.downloads import publish
from chalicelib.usecases.runs.files import archive_id
from tests.api.rig import ADMIN, Response, Rig, fleet, submit, task
from tests.api.uploads import multipart, send, tar, upload
from tests.harness.lambda_host import api_event
from tests.usecases.cluster import FACTS, INSTANCE, OFFER
from tests.world.ports import Blobs
from tests.world.time import NOW


class Host:
    """An instance of the rig's project, and its agent over HTTP."""

    def __init__(self, rig: Rig, instance_id: str = INSTANCE) -> None:
        self.rig, self.id, self.seq = rig, instance_id, 0
        values = {"fleet_id": "f", "fleet_name": "pool", "num": 0, "name": "pool-0", "status": InstanceStatus.idle}
        at = {"created_at": NOW, "last_processed_at": NOW}
        rig.save(Instance(id=instance_id, project_id=rig.project.id, offer=OFFER, **values, **at))
        self.credential = bootstrap_token(rig.world.plane.install_key, instance_id, 0)

    def sync(self, *tasks: dict[str, Any], **parts: Any) -> dict[str, Any]:
        reply = self.send(*tasks, **parts)
        assert reply.status == 200, reply.body
        self.credential = reply.json.get("credential", self.credential)
        answer: dict[str, Any] = reply.json
        return answer

    def send(self, *tasks: dict[str, Any], **parts: Any) -> Response:
        self.seq += 1
        head = {"v": 1, "instance": self.id, "boot": "boot-1", "seq": self.seq, "tasks": list(tasks)}
        return send(self.rig, "POST", "/agent/sync", orjson.dumps({**head, **parts}), token=self.credential)

    def fetch(self, url: str) -> Response:
        return send(self.rig, "GET", url, token=self.credential)

    def place(self, run: dict[str, Any]) -> Job:
        """The run's job on this host, as the engine would place it."""
        store = self.rig.world.plane.store
        job = nouns.find(store, Job, keys.job(run["id"], 0, 0, 0))
        instance = nouns.find(store, Instance, keys.instance(self.id))
        assert job is not None and instance is not None
        where = Assignment(
            instance_id=self.id, instance_name="pool-0", fleet_id="f", fleet_name="pool", offer=OFFER, assigned_at=NOW
        )
        claim = Claim(job_id=job.id, run_id=job.run_id, blocks=(len(instance.claims),))
        placed = job.with_(status=JobStatus.provisioning, assignment=where)
        self.rig.save(placed, instance.with_(claims=(*instance.claims, claim), status=InstanceStatus.busy))
        return placed


@pytest.fixture
def host(rig: Rig) -> Host:
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet()}, "force": False})
    made = Host(rig)
    made.sync(facts=FACTS)
    return made


def test_a_run_goes_all_the_way_over_http(rig: Rig, host: Host) -> None:
    job = host.place(submit(rig, task(env={"GREETING": "hi"})))
    (wanted,) = host.sync()["tasks"]
    assert (wanted["id"], wanted["want"]) == (job.id, "run")
    assert wanted["spec"]["env"]["GREETING"] == "hi" and wanted["spec"]["env"]["DSTACK_RUN_NAME"] == "hello"
    log = {"task": job.id, "offset": 0, "records": [[NOW, "aGVsbG8K"]]}
    host.sync({"id": job.id, "state": "exited", "exit_status": 0, "log_end": 6}, logs=[log])
    submission = rig.ok("P/runs/get", {"run_name": "hello"})["latest_job_submission"]
    assert (submission["status"], submission["exit_status"]) == ("done", 0)
    page = rig.ok("P/logs/poll", {"run_name": "hello", "job_submission_id": job.id})
    assert [entry["message"] for entry in page["logs"]] == ["aGVsbG8K"]


@pytest.mark.parametrize("credential", ["", "forged", ADMIN])
def test_only_the_agents_own_credential_is_taken(host: Host, credential: str) -> None:
    host.credential = credential
    assert host.send().status == 403
    assert host.fetch(f"/agent/files/{INSTANCE}").status == 403


def test_an_agents_credential_opens_nothing_else(rig: Rig, host: Host) -> None:
    assert rig.call("/api/users/get_my_user", token=host.credential).status == 403


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"\x00\xff", b"[1]", b'{"instance": {}}'])
def test_nonsense_is_refused_for_good(rig: Rig, body: bytes) -> None:
    """422 tells an agent not to send the same again; at a 400 it tries again later."""
    reply = send(rig, "POST", "/agent/sync", body, token="x")
    assert reply.status == 422 and reply.json["detail"][0]["msg"]


def test_an_agent_fetches_the_archives_of_its_own_jobs_only(rig: Rig, host: Host) -> None:
    content = tar(("data/a.txt", b"hello"))
    archive = upload(rig, "/api/files/upload_archive", multipart(content)).json
    other = upload(rig, "/api/files/upload_archive", multipart(tar(("b", b"other")))).json
    spec = task(files=[{"local_path": "data", "path": "/data"}])
    host.place(submit(rig, {**spec, "file_archives": [{"id": archive["id"], "path": "/data"}]}))
    (file,) = host.sync()["tasks"][0]["spec"]["files"]
    got = host.fetch(file["url"])
    assert (got.status, got.body) == (200, content)
    assert host.fetch(f"/agent/files/{other['id']}").status == 400
    assert host.fetch("/agent/files/..%2f..%2fetc").status == 400
    second = Host(rig, rig.world.plane.random_id())
    second.sync(facts=FACTS)
    assert second.fetch(file["url"]).status == 400


def test_a_finished_jobs_archives_are_out_of_reach(rig: Rig, host: Host) -> None:
    archive = upload(rig, "/api/files/upload_archive", multipart(tar(("a", b"1")))).json
    job = host.place(submit(rig, {**task(), "file_archives": [{"id": archive["id"], "path": "/a"}]}))
    assert host.fetch(f"/agent/files/{archive['id']}").status == 200
    host.sync({"id": job.id, "state": "exited", "exit_status": 0})
    assert host.fetch(f"/agent/files/{archive['id']}").status == 400


def test_code_of_a_repo_arrives_as_the_content_of_the_working_folder(rig: Rig, host: Host) -> None:
    rig.ok("P/repos/init", {"repo_id": "vr", "repo_info": {"repo_type": "virtual"}, "repo_creds": None})
    content = tar(("a.py", b"print(1)"))
    body = multipart(content)
    assert upload(rig, "P/repos/upload_code", body, query={"repo_id": "vr"}).status == 200
    (archive,) = [
        nouns.read(Archive, record)
        for record in [rig.world.plane.store.get(keys.archive(_code_id(rig, content)))]
        if record is not None
    ]
    host.place(submit(rig, {**task(), "repo_id": "vr", "repo_code_hash": archive.hash}))
    (file,) = host.sync()["tasks"][0]["spec"]["files"]
    assert file["path"] == "." and b"./a.py" in host.fetch(file["url"]).body


def test_code_that_was_never_uploaded_ends_the_job_with_the_reason(rig: Rig, host: Host) -> None:
    host.place(submit(rig, {**task(), "repo_code_hash": "0" * 64}))
    assert host.sync()["tasks"] == []
    last = rig.ok("P/runs/get", {"run_name": "hello"})["latest_job_submission"]
    assert last["status"] == "terminated" and "never uploaded" in last["termination_reason_message"]


def test_the_agent_program_is_given_to_whoever_asks(rig: Rig) -> None:
    assert send(rig, "GET", "/agent/agent.pyz").status == 400
    first = publish(rig.world.plane.blobs, b"#!zip")
    assert send(rig, "GET", "/agent/agent.pyz").body == b"#!zip"
    second = publish(rig.world.plane.blobs, b"#!newer")
    assert send(rig, "GET", "/agent/agent.pyz").body == b"#!newer"
    for digest, body in ((first, b"#!zip"), (second, b"#!newer")):
        assert send(rig, "GET", "/agent/agent.pyz", query={"sha256": digest}).body == body
    assert send(rig, "GET", "/agent/agent.pyz", query={"sha256": "0" * 64}).status == 400
    assert publish(rig.world.plane.blobs, b"#!zip") == first, "an older program again, after a rollback"
    assert send(rig, "GET", "/agent/agent.pyz").body == b"#!zip"


def test_a_carrier_is_given_by_its_digest_or_where_it_lies(rig: Rig) -> None:
    blobs = rig.world.plane.blobs
    first = carriers.publish(blobs, "x86", "r-1", b"carrier")
    second = carriers.publish(blobs, "x86", "r-2", b"newer")
    assert carriers.newest(blobs, "x86") == ("r-2", second) and carriers.newest(blobs, "arm") == ("", "")
    for digest, body in ((first, b"carrier"), (second, b"newer")):
        answer = send(rig, "GET", "/agent/carrier.tar.gz", query={"sha256": digest})
        assert (answer.status, answer.body) == (200, body)
    for digest in ("", "0" * 64, "../x"):
        assert send(rig, "GET", "/agent/carrier.tar.gz", query={"sha256": digest}).status == 400


def test_in_aws_a_carrier_is_fetched_from_the_bucket(rig: Rig) -> None:
    """It is larger than what Lambda may answer with."""

    class Bucket(Blobs):
        def link(self, name: str, seconds: int) -> str | None:
            return f"https://bucket/{name}?for={seconds}" if self.get(name) is not None else None

    plane = replace(rig.world.plane, blobs=Bucket())
    digest = carriers.publish(plane.blobs, "x86", "r-1", b"carrier")
    assert carriers.content(plane, digest) == f"https://bucket/agent/carrier-{digest}.tar.gz?for=600"
    app = ControlPlane(lambda: plane)
    binary = tuple(app.api.binary_types)

    def fetched(sha256: str) -> Any:
        return app(api_event("GET", "/agent/carrier.tar.gz", f"sha256={sha256}", {}, b"", binary=binary), None)

    found = fetched(digest)
    assert (found["statusCode"], found["headers"]["Location"]) == (302, carriers.content(plane, digest))
    unknown = fetched("a" * 64)
    assert unknown["statusCode"] == 400 and "no such carrier" in unknown["body"]


def through_the_gateway(rig: Rig, method: str, path: str, headers: dict[str, str]) -> Any:
    """What an HTTP connection to the app would answer, without a socket."""
    app = ControlPlane(lambda: rig.world.plane)
    binary = tuple(app.api.binary_types)
    answer = app(api_event(method, path, "", headers, b"", binary=binary), None)
    encoded = answer.get("isBase64Encoded")
    response: Any = io.BytesIO(base64.b64decode(answer["body"]) if encoded else answer["body"].encode())
    response.status, response.headers, response.length = answer["statusCode"], {}, 0
    return response


def test_the_agents_own_link_gets_the_bytes_through_the_gateway(rig: Rig, host: Host) -> None:
    class Wired(Link):
        def _request(
            self, base: str, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float
        ) -> Any:
            return through_the_gateway(rig, method, path, headers)

    content = tar(("data/a.bin", bytes(range(256)) * 20))
    archive = upload(rig, "/api/files/upload_archive", multipart(content)).json
    host.place(submit(rig, {**task(), "file_archives": [{"id": archive["id"], "path": "/a"}]}))
    (file,) = host.sync()["tasks"][0]["spec"]["files"]
    got = io.BytesIO()
    Wired().fetch("http://plane", file["url"], host.credential, got)
    assert got.getvalue() == content


def _code_id(rig: Rig, content: bytes) -> str:
    return archive_id(rig.project.id, hashlib.sha256(content).hexdigest())


def test_a_credential_is_known_before_its_message_is_read(rig: Rig, host: Host) -> None:
    def turned_away(credential: str, size: int) -> bool:
        headers = {"authorization": f"Bearer {credential}"}
        head = dispatch.head_of(dispatch.Request("POST", "/agent/sync", headers=headers))
        assert isinstance(head, dispatch.RequestHead)
        reply = dispatch.refusal(rig.world.plane, head, size)
        assert reply is None or reply.status == 403
        return reply is not None

    assert not turned_away(host.credential, 2_000_000)
    assert turned_away(f"{host.id}.forged", 20) and turned_away("nobody.forged", 20) and turned_away("", 20)
    unused = bootstrap_token(rig.world.plane.install_key, host.id, 1)  # its message says whose it is
    assert not turned_away(unused, FIRST_MESSAGE) and turned_away(unused, FIRST_MESSAGE + 1)
