"""The first exchange between a new machine and the control plane.

A new machine gets its credential through user data, which the cloud keeps and shows to anyone with access. So the token
in it is good for a single exchange, and it is computed, not random: a repeated `create` must be byte-identical, or the
provider's own idempotency would refuse it.
"""

from __future__ import annotations

import hashlib
import hmac

from chalicelib.errors import Bug


def bootstrap_token(install_key: bytes, instance_id: str, epoch: int) -> str:
    """The single-use token of one purchase. The install key is enough to verify it; nothing is stored."""
    return keyed(install_key, f"bootstrap/{instance_id}/{epoch}").hex()


def keyed(install_key: bytes, purpose: str) -> bytes:
    """What only who has the install key can compute. Not every function in AWS has it, and with an empty one anybody
    could."""
    if not install_key:
        raise Bug("this process has no install key: see `reads` in infra/functions.py.")
    return hmac.new(install_key, purpose.encode(), hashlib.sha256).digest()
