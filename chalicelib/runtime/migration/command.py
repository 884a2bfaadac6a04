"""What `dstack server migrate` does, from the places to the answer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from chalicelib.errors import Invalid, Refused
from chalicelib.runtime.clock import SystemClock, random_id
from chalicelib.runtime.migration import places
from chalicelib.runtime.migration.checks import Finding, to_folder, to_stage
from chalicelib.runtime.migration.places import Clients
from chalicelib.runtime.migration.steps import Migration, Place, Say
from chalicelib.runtime.server_file import declared
from chalicelib.runtime.settings import ServerSettings, emulator

NEEDED = ("boto3", "pynamodb")
OF_FUNCTIONS = f"{(__package__ or '').rpartition('.')[0]}.lambda_"  # what pip installs hasn't got it
_STAGE = re.compile(r"[a-z][a-z0-9-]{0,20}")


@dataclass(frozen=True)
class Wish:
    """What the operator wants."""

    stage: str
    back: bool = False  # from the stage into the folder
    keys: bool = False  # only take the keys there
    check: bool = False  # only say what can't move
    abort: bool = False  # give up a migration that isn't finished


@dataclass(frozen=True)
class Console:
    say: Say
    agree: Callable[[str], bool]
    sleep: Callable[[float], None] = time.sleep


def migrate(settings: ServerSettings, wish: Wish, console: Console, clients: Clients | None = None) -> int:
    """Returns the exit status."""
    if not _STAGE.fullmatch(wish.stage):
        raise Invalid(f"{wish.stage!r} can't name a stage.", hint="Name the one of `make deploy STAGE=prod`.")
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking or find_spec(OF_FUNCTIONS) is None:
        raise Refused(
            f"Moving to or from AWS needs {' and '.join(lacking) or 'what the functions there run'}.",
            hint="Run the command where `make deploy` runs: in a clone of the repository, after `make install`.",
        )
    if clients is None:
        from chalicelib.runtime.lambda_ import Boto

        clients = Boto(emulator())
    if wish.back and not settings.public_url and not (wish.keys or wish.abort or wish.check):
        raise Invalid(
            "--back needs the address at which agents will find the server.",
            hint="Add it as in --public-url https://dstack.example.com:3000.",
        )
    with _explained(), ExitStack() as held:
        if wish.keys:
            return _take_keys(settings.data_dir, wish, console, clients)
        return _between(settings, wish, console, clients, held)


@contextmanager
def _explained() -> Iterator[None]:
    """Raises Refused for an error of AWS, or of the way there."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Refused(
            f"AWS can't do that: {error}.",
            hint="Check the credentials and the region, as for `make deploy`: AWS_PROFILE, AWS_REGION.",
        ) from error


def _take_keys(folder: Path, wish: Wish, console: Console, clients: Clients) -> int:
    to, what = (f"the folder {folder}", "start nothing") if wish.back else (f"the stage {wish.stage}", "deploy it")
    if not console.agree(
        f"Take the keys of the control plane to {to}? Whatever was sealed there can't be opened then."
    ):
        return 1
    if wish.back:
        changed = places.take_keys_to_folder(wish.stage, folder, clients)
    else:
        changed = places.take_keys_to_stage(folder, wish.stage, clients)
    if not changed:
        console.say(f"There were the same keys in {to}.")
    elif wish.back:
        console.say(f"The keys are in {to}: go on with `dstack server migrate {wish.stage} --back`, and {what} before.")
    else:
        console.say(f"The keys are in {to}: {what} now, with `make deploy STAGE={wish.stage}`.")
    return 0


def _between(settings: ServerSettings, wish: Wish, console: Console, clients: Clients, held: ExitStack) -> int:
    folder = places.folder_place(settings.data_dir, settings.public_url or "", held, target=wish.back)
    stage = places.stage_place(wish.stage, clients, console.say, console.sleep)
    source, target = (stage, folder) if wish.back else (folder, stage)
    migration = Migration(source, target, SystemClock(), random_id, console.say)
    if wish.abort:
        migration.give_up()
        return 0
    findings = _findings(settings, wish, folder, stage, clients)
    for each in findings:
        console.say(f"{'Not possible' if each.stops else 'Different'}: {each.what}. To do: {each.hint}.")
    if any(each.stops for each in findings):
        raise Refused(
            f"{source.first} can't move to {target.name} yet.", hint="Do the above, and run the command again."
        )
    if wish.check:
        console.say(f"{source.first} can move to {target.name}.")
        return 0
    if not console.agree(f"Move the control plane from {source.name} to {target.name}?"):
        return 1
    migration.run()
    return 0


def _findings(settings: ServerSettings, wish: Wish, folder: Place, stage: Place, clients: Clients) -> Sequence[Finding]:
    found = places.settings_of(wish.stage, clients)
    known = {found.fake_cloud_name} if found.fake_cloud and settings.fake_cloud else set()
    if wish.back:
        return to_folder(stage.store, known)
    return to_stage(folder.store, declared(settings), (folder.blobs, stage.blobs), known)
