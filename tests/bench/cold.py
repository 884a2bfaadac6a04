"""A cold start: `import app` over bare Python."""

from __future__ import annotations

import sys

from tests.bench.measure import process_cost, report


def main() -> None:
    bare, bare_wall = process_cost([sys.executable, "-c", "pass"], runs=9)
    app, app_wall = process_cost([sys.executable, "-c", "import app"], runs=9)
    report(
        "cold",
        import_app_cpu_ms=round((app - bare) * 1000),
        import_app_wall_ms=round((app_wall - bare_wall) * 1000),
        bare_python_cpu_ms=round(bare * 1000),
        budget_ms=400,
    )


if __name__ == "__main__":
    main()
