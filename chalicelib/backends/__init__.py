"""Backends: `spi.py` is the protocol, `registry.py` the table, `accounts.py` the owners; each package is one provider.

Code outside never compares provider names.
"""

from pathlib import Path

_PACKED = Path(__file__).with_name("packed.zip")  # in an installed package: what of the providers only servers import
if _PACKED.exists():
    __path__.append(str(_PACKED))
