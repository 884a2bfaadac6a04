"""Signatures of webhook messages: the headers of the Standard Webhooks specification.

The signature is an HMAC-SHA256 of the message's id, its time and its body under a shared secret, so none of them can be
replaced. The time lets a receiver refuse old messages, and the id lets it drop repeated ones. Libraries for receivers
exist for most languages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64  # bytes of a secret


def key_of(secret: str) -> bytes:
    """The key of a secret. Raises ValueError if the text isn't a secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("this isn't base64") from None
    if not secret.startswith(PREFIX) or not SHORTEST <= len(key) <= LONGEST:
        raise ValueError(f"this isn't `{PREFIX}` and {SHORTEST} to {LONGEST} bytes in base64")
    return key


def headers(secret: str, id: str, at: int, body: bytes) -> dict[str, str]:
    """The headers of a message. `at`: epoch seconds of this attempt."""
    signed = f"{id}.{at}.".encode() + body
    signature = base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()
    return {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{signature}",
    }
