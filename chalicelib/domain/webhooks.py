"""How a webhook's receiver knows that a message is ours: by the headers of the Standard Webhooks specification.

The signature is an HMAC-SHA256, under the secret that both know, of the message's id, its time and its body, so neither
can be replaced. A receiver refuses what is old by its time, and drops what it has seen by its id. Libraries that check
this exist for most languages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64  # bytes of a secret


def key_of(secret: str) -> bytes:
    """Raises ValueError for what isn't a secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("this isn't base64") from None
    if not secret.startswith(PREFIX) or not SHORTEST <= len(key) <= LONGEST:
        raise ValueError(f"this isn't `{PREFIX}` and {SHORTEST} to {LONGEST} bytes in base64")
    return key


def headers(secret: str, id: str, at: int, body: bytes) -> dict[str, str]:
    """`at`: epoch seconds of this attempt."""
    said = f"{id}.{at}.".encode() + body
    signature = base64.b64encode(hmac.new(key_of(secret), said, hashlib.sha256).digest()).decode()
    return {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{signature}",
    }
