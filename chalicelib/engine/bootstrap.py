"""The first words between a new machine and the control plane.

A created machine gets its credential through user data, which the cloud keeps and shows to whoever may read it. So what
travels there is good for one exchange only, and it is computed, not drawn: a repeated `create` must be byte-identical,
or the provider's own idempotency would refuse it.
"""

from __future__ import annotations

import hashlib
import hmac


def bootstrap_token(install_key: bytes, instance_id: str, epoch: int) -> str:
    """The single-use token of one purchase. Whoever holds the install key can check it; nothing is stored."""
    return hmac.new(install_key, f"bootstrap/{instance_id}/{epoch}".encode(), hashlib.sha256).hexdigest()
