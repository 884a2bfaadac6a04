"""Backends: `spi.py` is the protocol, `registry.py` the table, `accounts.py` the owners; each package is one provider.

Code outside never compares provider names.
"""
