"""What can be done there. Readable without the SDK."""

from __future__ import annotations

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import SECOND

FACTS = BackendFacts(name="vultr", title="Nimbus", visibility_lag=1 * SECOND, create_timeout=1 * SECOND)
