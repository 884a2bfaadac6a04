"""Tokens with which new machines get their credentials.

A new machine gets its token through user data, which the cloud stores and shows to everybody with access. So the token
is valid for a single exchange, and it is computed instead of random: a repeated `create` must be byte-identical, or the
provider's idempotency check would refuse it.
"""

from __future__ import annotations

import hashlib
import hmac

from chalicelib.errors import Bug


def bootstrap_token(install_key: bytes, instance_id: str, epoch: int) -> str:
    """The single-use token of one purchase. It is verified with the install key alone, so nothing is stored."""
    return keyed(install_key, f"bootstrap/{instance_id}/{epoch}").hex()


def keyed(install_key: bytes, purpose: str) -> bytes:
    """A digest that can be computed only with the install key. Raises Bug if this process has none: not every function
    in AWS has it, and an empty key would be no secret."""
    if not install_key:
        raise Bug("this process has no install key: see `reads` in infra/functions.py.")
    return hmac.new(install_key, purpose.encode(), hashlib.sha256).digest()
