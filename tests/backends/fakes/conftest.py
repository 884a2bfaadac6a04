"""Crusoe's fake and a client of it inside the process, on a clock of the test's own."""

from __future__ import annotations

import pytest
import requests

from tests.backends.clock import Clock
from tests.backends.crusoe.fake import Crusoe
from tests.backends.crusoe.plain import Client
from tests.backends.fakes.script import Script
from tests.backends.fakes.transport import InProcess


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def crusoe(clock: Clock, script: Script) -> Crusoe:
    return Crusoe(clock.now, script)


@pytest.fixture
def call(clock: Clock, crusoe: Crusoe) -> Client:
    session = requests.Session()
    session.mount("https://", InProcess(crusoe))
    return Client(clock, session, "https://api.crusoe.example")
