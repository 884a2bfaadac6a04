"""What we use of libraries beyond what they document. Each is held to a minor version, and tests say what we count on.

A test that fails with a newer version names the file to look at. What that file does has tests of its own.
"""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
HELD = ("boto3", "pydantic", "pynamodb", "typer", "uvicorn")


@pytest.mark.parametrize("library", HELD)
def test_it_is_held_to_a_minor_version(library: str) -> None:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras, groups = written["project"]["optional-dependencies"], written["dependency-groups"]
    wanted = [*written["project"]["dependencies"], *extras["server"], *extras["aws"], *groups["deploy"]]
    (held,) = {each for each in wanted if each.startswith(library)}
    major, minor = map(int, version(library).split(".")[:2])
    assert held == f"{library}>={major}.{minor},<{major}.{minor + 1}", "look at its seam, and then move the limit on"


def has(thing: Any, *names: str) -> None:
    assert [name for name in names if not hasattr(thing, name)] == []


def test_typer_ends_with_an_exception_of_its_copy_of_click() -> None:
    """`cli/main.py` shows it as typer would, and takes its exit code."""
    import typer
    from typer._click.exceptions import ClickException

    assert issubclass(typer.BadParameter, ClickException)
    has(ClickException("no"), "show", "format_message", "exit_code")


def test_typer_completes_when_a_shell_asks() -> None:
    """`cli/main.py` completes without `typer.Typer.__call__`, and `cli/commands/completion.py` prints the script."""
    from typer._click.shell_completion import CompletionItem
    from typer._completion_classes import completion_init
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    item = CompletionItem("ps", help="List runs.")
    assert (item.value, item.help) == ("ps", "List runs.")
    assert not inspect.signature(completion_init).parameters
    assert "_X_COMPLETE" in get_completion_script(prog_name="x", complete_var="_X_COMPLETE", shell="bash")


def test_typer_converts_values_by_what_a_parameter_carries() -> None:
    """`cli/screen/parameters.py` puts a conversion of its own into each, which needs no model library."""
    import typer

    app = typer.Typer()

    @app.command()
    def run(count: int = typer.Option(1, min=0, max=9)) -> None: ...

    (found,) = (each for each in typer.main.get_command(app).params if each.name == "count")
    param: Any = found
    has(param, "_runtime_param", "metavar", "param_type_name", "display_type_rich")
    kind = param.type_descriptor
    assert (kind.annotation, kind.parameter_info.min, kind.parameter_info.max) == (int, 0, 9)
    has(kind, "choices")


def test_uvicorn_reads_requests_where_we_look_in() -> None:
    """`chalicelib/runtime/connection.py` derives from its protocol, and answers in the place of its cycle."""
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

    assert STATUS_LINE[404] == b"HTTP/1.1 404 Not Found\r\n"
    assert list(inspect.signature(HttpToolsProtocol._start_asgi_task).parameters) == ["self", "cycle", "app"]
    has(
        HttpToolsProtocol,
        "_unset_keepalive_if_required",
        "on_message_begin",
        "on_url",
        "on_header",
        "on_headers_complete",
    )
    has(
        HttpToolsProtocol,
        "on_body",
        "on_message_complete",
        "on_response_complete",
        "connection_made",
        "connection_lost",
    )
    own = set(inspect.getsource(RequestResponseCycle.__init__).split())
    assert {f"self.{name}" for name in ("scope", "disconnected", "keep_alive", "waiting_for_100_continue")} <= own
    assert {f"self.{name}" for name in ("body", "more_body", "message_event", "on_response")} <= own
    assert {f"self.{name}" for name in ("response_started", "response_complete")} <= own
    own = set(inspect.getsource(FlowControl.__init__).split())
    assert {"self.read_paused", "self.write_paused"} <= own
    has(FlowControl, "drain", "pause_reading", "resume_reading")


def test_uvicorn_starts_and_ends_in_steps_that_can_be_replaced() -> None:
    """`chalicelib/runtime/web.py` listens, waits and drains in its own way."""
    import uvicorn

    assert list(inspect.signature(uvicorn.Server.startup).parameters) == ["self", "sockets"]
    assert list(inspect.signature(uvicorn.Server.handle_exit).parameters) == ["self", "sig", "frame"]
    assert inspect.iscoroutinefunction(uvicorn.Server.main_loop)
    assert "server.close()" in inspect.getsource(uvicorn.Server.shutdown), "it closes what `servers` has"


def test_pydantic_models_consist_of_four_slots() -> None:
    """`chalicelib/domain/noun.py` assembles a frozen model out of them, without its validation."""
    from pydantic import BaseModel, ConfigDict

    class Pair(BaseModel):
        model_config = ConfigDict(frozen=True)
        one: int
        two: int = 2

    pair = Pair(one=1)
    slots = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
    assert {name for name in slots if not hasattr(vars(BaseModel)[name], "__set__")} == set()
    assert [getattr(pair, name) for name in slots] == [{"one": 1, "two": 2}, {"one"}, None, None]
    assert set(Pair.__pydantic_fields__) == {"one", "two"}
    assert (
        Pair.__pydantic_serializer__.to_json(pair, exclude_defaults=True) == b'{"one":1}'
    )  # `chalicelib/store/nouns.py`


def test_pynamodb_lends_a_models_connection_to_a_transaction() -> None:
    """`chalicelib/store/dynamo.py` sends both over one connection, whose session has `dynamo_calls.py` in it."""
    from pynamodb.attributes import UnicodeAttribute
    from pynamodb.connection import Connection
    from pynamodb.models import Model
    from pynamodb.transactions import TransactWrite

    class Item(Model):  # type: ignore[misc]
        class Meta:
            table_name, region, host = "t", "eu-central-1", "http://127.0.0.1:1"

        pk = UnicodeAttribute(hash_key=True)

    connection = Item._get_connection().connection
    assert isinstance(connection, Connection)
    TransactWrite(connection=connection, client_request_token="a")


@pytest.mark.slow
def test_botocore_lets_a_handler_answer_a_call() -> None:
    """`chalicelib/store/dynamo_calls.py` does, with what it is given; nothing is sent here."""
    from botocore.awsrequest import AWSResponse
    from botocore.httpsession import get_cert_path
    from botocore.parsers import create_parser
    from botocore.session import Session
    from botocore.utils import get_environ_proxies

    given: dict[str, Any] = {}

    def answer(**params: Any) -> Any:
        given.update(params)
        return AWSResponse("", 200, {}, None), {"Item": {"pk": {"S": "a"}}}

    session = Session()
    session.get_component("event_emitter").register_first("before-call.dynamodb", answer)  # others may be there
    session.set_credentials("key", "secret")
    client = session.create_client("dynamodb", region_name="eu-central-1")
    assert client.get_item(TableName="t", Key={"pk": {"S": "a"}}) == {"Item": {"pk": {"S": "a"}}}
    assert {"url", "headers", "body"} <= given["params"].keys() and given["model"].name == "GetItem"
    assert create_parser(given["model"].service_model.resolved_protocol) is not None
    assert Path(get_cert_path(True)).exists() and get_environ_proxies("http://127.0.0.1") is not None
    assert given["context"]["client_config"].signature_version == "v4"
    signer = given["request_signer"]
    assert signer.get_auth_instance(signer.signing_name, signer.region_name, "v4").credentials.access_key == "key"
