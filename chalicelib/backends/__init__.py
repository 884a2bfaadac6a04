"""Backends: `spi.py` is the protocol, every other file one provider. Nothing outside compares provider names."""
