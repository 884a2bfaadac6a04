"""A cloud's fake as the journey needs it: its account, what is sold there, and what its books say.

What differs from cloud to cloud is a field or a method here; the rest is read from the fake and from its side of the
conformance suite, which know of boot scripts and of what costs money.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from chalicelib.backends.spi import Backend
from chalicelib.configuration.server_spec import config_model
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Offer
from chalicelib.runtime.accounts import providers
from tests.backends.fakes.books import Resource
from tests.backends.fakes.transport import serving

CLOUDS = ("aws", "azure", "crusoe", "gcp", "lambda", "nebius", "tensordock")  # that have a file here

PRICES = "prices.csv"
# A cloud's service of this kind on a machine, as a program. /run/spot-notice has the notice, once there is one.
METADATA = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        there = os.path.exists("/run/spot-notice")
        notice = open("/run/spot-notice").read() if there else ""
        status, text = answer(self.command, self.path, self.headers, notice)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    do_PUT = do_GET
http.server.HTTPServer(("169.254.169.254", 80), Handler).serve_forever()
"""


def now() -> Micros:
    return time.time_ns() // 1000


class Cloud:
    config: ClassVar[Mapping[str, Any]]  # its entry of `backends`
    prices: ClassVar[Mapping[str, float]] = {}  # what the operator knows of its prices, where it tells none
    fleet: ClassVar[Mapping[str, Any]]  # what of its offers is bought
    running: ClassVar[str]  # the state of a machine that boots: from then on it runs its script
    notices: ClassVar[str] = ""  # where machines hear of their end: `answer` of METADATA
    fake: Any
    provider: Any  # the fake's side of the conformance suite

    def serving(self, port: int = 0) -> AbstractContextManager[str]:
        """Its address. Port 0: any."""
        return serving(self.fake, port)

    @property
    def type(self) -> str:
        return str(self.config["type"])

    def backend(self, url: str, prices: Path | None = None) -> Backend:
        """Of its account, at that address."""
        model = config_model(self.type)
        assert model is not None
        return providers(prices, endpoints={self.type: url}).make(model.model_validate(self.config))

    def offer(self, backend: Backend) -> Offer:
        """One that the journey buys."""
        types = self.fleet["instance_types"]
        return next(
            each for each in backend.offers() if each.instance.name in types and not each.instance.resources.spot
        )

    def machines(self) -> Sequence[tuple[str, str | None]]:
        """Each that was ever bought, with its state, in the order of purchase."""
        books = self.fake.books
        return [(each.id, each.state(books.now())) for each in books.made("vm")]

    def owned(self) -> set[str]:
        """What exists, and what costs money or was left behind."""
        found: set[str] = self.provider.existing()
        return found

    def billed(self) -> float:
        """Dollars an hour, for all that exists."""
        dollars: float = self.fake.billed()
        return dollars

    def boot_script(self, machine: str) -> str:
        """What it runs when it has booted."""
        (made,) = (each for each in self.fake.books.made("vm") if each.id == machine)
        script: str = self.provider.user_data([self.handle(made)])
        return script

    def handle(self, machine: Resource) -> Handle:
        """As the backend has it."""
        return Handle(kind="vm", id=machine.id)

    def doubles_prices(self) -> None:
        """Of all that it sells, from now on."""
        raise NotImplementedError("no journey needs it here")

    def deny(self) -> Sequence[str]:
        """Takes permissions from the account's key: their names, as the provider has them. None, where a key has all
        permissions or is wrong."""
        self.provider.fail("check", "MissingPermission", times=1000)
        return []

    def allow(self) -> None:
        """Gives them back."""
        self.fake.script.faults.clear()


def cloud_of(name: str) -> Cloud:
    made: Cloud = import_module(f"tests.e2e.clouds.{name}").Journey()
    return made


def price_file(folder: Path, *clouds: Cloud) -> Path:
    """The operator's, with what the clouds don't tell."""
    rows = [f"{each.type},{name},,{price},\n" for each in clouds for name, price in each.prices.items()]
    file = folder / PRICES
    file.write_text("".join(["provider,instance_type,region,price,spot_price\n", *rows]))
    return file
