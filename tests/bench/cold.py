"""A cold start: `import app` over bare Python."""

from __future__ import annotations

import sys

from tests.bench.measure import process_cpu, report


def main() -> None:
    bare = process_cpu([sys.executable, "-c", "pass"], runs=9)
    app = process_cpu([sys.executable, "-c", "import app"], runs=9)
    report("cold", import_app_cpu_ms=round((app - bare) * 1000), bare_python_cpu_ms=round(bare * 1000), budget_ms=400)


if __name__ == "__main__":
    main()
