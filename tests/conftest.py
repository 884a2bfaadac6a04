"""Profiles of Hypothesis: everything by default, a taste in `make test-fast`. No deadline: machines are shared."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("full"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))
