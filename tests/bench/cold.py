"""Cold starts, over a bare Python that does nothing: `import app`, and a fresh process until its first answer.

Whole processes, from start to end, with their bytecode compiled, as the functions' zips have it. Deployed without the
functions' version of Python, they have none, and every start compiles what it imports: that is `uncompiled`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from tests.bench.measure import compiled, over, process_cpu_ms, report
from tests.harness.server import ROOT

FIRST = [sys.executable, "-m", "tests.bench.first_answer"]


def main() -> None:
    bare = process_cpu_ms([sys.executable, "-c", "pass"])
    app = process_cpu_ms([sys.executable, "-c", "import app"])
    libraries = process_cpu_ms([sys.executable, "-c", "import chalice.app, pydantic._internal._generate_schema"])
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        subprocess.run([*FIRST, folder, "prepare"], cwd=ROOT, env=compiled(), stdout=subprocess.DEVNULL, check=True)
        listed = process_cpu_ms([*FIRST, folder, "list"])
        planned = process_cpu_ms([*FIRST, folder, "plan"])
        uncached = [sys.executable, "-B", "-X", f"pycache_prefix={folder}/none", *FIRST[1:]]
        uncompiled = process_cpu_ms([*uncached, folder, "plan"], runs=3)
    report(
        "cold",
        import_app_cpu_ms=over(app, bare),
        first_answer_cpu_ms=over(listed, bare),
        first_plan_cpu_ms=over(planned, bare),
        first_plan_uncompiled_cpu_ms=over(uncompiled, bare),
        libraries_cpu_ms=over(libraries, bare),
        bare_python_cpu_ms=bare,
    )


if __name__ == "__main__":
    main()
