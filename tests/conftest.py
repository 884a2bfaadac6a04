"""What holds for every test.

Profiles of Hypothesis: everything by default, a taste in `make test-fast`. No deadline: machines are shared.
A test that needs something real (an engine, an emulator, root) skips where there is none and says why; under
REQUIRE_REAL, as the submission sets it, every skip is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("full"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("REQUIRE_REAL"):
        reason = call.excinfo.value if call.excinfo else "no reason given"
        report.outcome, report.longrepr = "failed", f"REQUIRE_REAL is set, and {item.name} was skipped: {reason}"
    return report
