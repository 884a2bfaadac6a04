"""JSON text in the place of the value that it is the JSON of.

The type checker can't see into a text, so whoever splices one in says what it is: `run_spec: contract.RunSpec =
spliced(text)`. The tests read every answer, and with it these texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

spliced: Callable[[str | bytes], Any] = orjson.Fragment
