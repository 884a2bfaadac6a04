"""The two places of a migration: the data folder of a server, and a stage in AWS."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chalicelib.errors import Refused
from chalicelib.runtime.data_folder import locked, private_file
from chalicelib.runtime.migration.signpost import DATABASE, fenced
from chalicelib.runtime.migration.stage import replace_processes
from chalicelib.runtime.migration.steps import WORK, Place, Say
from chalicelib.runtime.settings import LambdaSettings, emulator, stage_path, stage_settings
from chalicelib.store import copying
from chalicelib.store.port import Store

Clients = Callable[[str], Any]  # boto3's, by service

KEYS = ("install-key", "master-key")  # in Parameter Store; in the folder they are in these files:
FILES = ("install.key", "master.key")
TO_STOP = 120.0  # seconds that a server has to notice the fence, and to let go of its folder


def folder_keys(folder: Path) -> tuple[bytes, bytes]:
    """Raises Refused if the folder has none: no server has ever used it."""
    install, master = (_key(folder / name) for name in FILES)
    return install, master


def _key(path: Path) -> bytes:
    try:
        return bytes.fromhex(path.read_text())
    except (OSError, ValueError) as error:
        raise Refused(
            f"{path} can't be read: {error}.", hint="Name the data folder of a server with --data-dir."
        ) from error


def folder_place(folder: Path, public_url: str, held: ExitStack, *, target: bool) -> Place:
    """`held`: keeps the folder's lock from when it is taken to the end of the command."""
    from chalicelib.store.blobs import FileBlobs
    from chalicelib.store.log_files import FileLogs
    from chalicelib.store.sqlite import SqliteStore

    if target:
        held.enter_context(locked(folder))
        if not all((folder / name).exists() for name in FILES):
            raise Refused(
                f"The folder {folder} has no keys, so it could open nothing.",
                hint="Run the same command with --keys first.",
            )
    elif not (folder / DATABASE).exists():
        raise Refused(f"{folder} has no control plane.", hint="Name the data folder of a server with --data-dir.")
    store = SqliteStore(folder / DATABASE)
    held.callback(store.close)

    def settle() -> None:
        if not target:  # whose lock is held already
            held.enter_context(locked(folder, patience=TO_STOP))

    return Place(
        name=f"the folder {folder}",
        store=store,
        blobs=FileBlobs(folder / "blobs"),
        logs=lambda _: FileLogs(folder / "logs"),
        keys=folder_keys(folder),
        agents_url=public_url,
        people_url=public_url,
        settle=settle,
    )


def stage_place(stage: str, clients: Clients, say: Say, sleep: Callable[[float], None] = time.sleep) -> Place:
    from chalicelib.store.blobs import S3Blobs
    from chalicelib.store.dynamo import DynamoStore
    from chalicelib.store.log_blobs import BlobLogs

    found = settings_of(stage, clients)
    blobs = S3Blobs(found.bucket, lambda: clients("s3"))
    return Place(
        name=f"the stage {stage}",
        store=DynamoStore(found.table, endpoint=found.endpoint),
        blobs=blobs,
        logs=lambda store: BlobLogs(store, blobs),
        keys=(found.install_key, found.master_key),
        agents_url=found.agent_url,
        people_url=found.api_url,
        settle=lambda: replace_processes(clients("lambda"), stage, secrets.token_hex(8), sleep, say),
        watched=True,
    )


def settings_of(stage: str, clients: Clients) -> LambdaSettings:
    from chalicelib.runtime.lambda_ import parameters

    return stage_settings(stage, parameters(clients))


def take_keys_to_stage(folder: Path, stage: str, clients: Clients) -> bool:
    """Give a stage that nothing uses yet the folder's keys. Returns whether it had others, or none."""
    ssm, wanted = clients("ssm"), dict(zip(KEYS, folder_keys(folder), strict=True))
    names = {f"{stage_path(stage)}/{key}": value.hex() for key, value in wanted.items()}
    found = ssm.get_parameters(Names=list(names), WithDecryption=True)["Parameters"]
    if {one["Name"]: one["Value"] for one in found} == names:
        return False
    if found:
        _refuse_if_used(stage, clients, _table)
    for name, value in names.items():
        ssm.put_parameter(Name=name, Value=value, Type="SecureString", Overwrite=True)
    return True


def _table(name: str) -> Store:
    from chalicelib.store.dynamo import DynamoStore

    return DynamoStore(name, endpoint=emulator())


def _refuse_if_used(stage: str, clients: Clients, table: Callable[[str], Store]) -> None:
    """Raises Refused if the stage has records that only its own keys open."""
    dynamo = clients("dynamodb")
    try:
        dynamo.describe_table(TableName=f"dstack-{stage}")
    except dynamo.exceptions.ResourceNotFoundException:
        return
    for page in copying.pages(table(f"dstack-{stage}")):
        if any(record.key.pk.startswith(WORK) for record in page):
            raise Refused(f"The stage {stage} is in use, and has keys of its own.", hint="Choose another stage.")


def take_keys_to_folder(stage: str, folder: Path, clients: Clients) -> bool:
    """The same for a folder that nothing uses yet, or that the control plane came from."""
    found = settings_of(stage, clients)
    wanted = dict(zip(FILES, (found.install_key, found.master_key), strict=True))
    with locked(folder):
        there = {name: (folder / name).read_text().strip() for name in FILES if (folder / name).exists()}
        if there == {name: value.hex() for name, value in wanted.items()}:
            return False
        if (folder / DATABASE).exists() and fenced(folder) is None:
            raise Refused(f"The folder {folder} is in use, and has keys of its own.", hint="Choose another --data-dir.")
        for name, value in wanted.items():
            private_file(folder / name, value.hex())
    return True
