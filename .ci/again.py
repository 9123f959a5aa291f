"""After `make test` failed: up to three tests once more, by themselves; whatever else failed stays a failure.

Tests in ``tests/system`` drive browsers, processes and clocks of a machine that may be busy; those in ``tests/unit``
and ``tests/conformance`` may ask a curator whose noise nobody seeds. Where up to three of them failed, and nothing
else, each runs again, alone, and that decides; what failed first is printed too. A law, a statistical test or a planted
bug, a file that cannot be collected or a run that broke off is never tried twice.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

CACHE = Path(".pytest_cache/v")
MOST, TESTS_FAILED = 3, 1
AGAIN = ("tests/system/", "tests/unit/", "tests/conformance/")


def main() -> None:
    """Ends with pytest's exit status, or 1."""
    try:
        failed = sorted(json.loads((CACHE / "cache" / "lastfailed").read_text()))
        status = json.loads((CACHE / "dodona" / "exit").read_text())
    except FileNotFoundError:
        sys.exit("The tests did not come to an end: nothing runs again.")
    lasting = [name for name in failed if not (name.startswith(AGAIN) and "::" in name)]
    if status != TESTS_FAILED or not failed or lasting or len(failed) > MOST:
        sys.exit("Nothing runs again: these failures last.\n" + "\n".join(f"FAILED {name}" for name in failed))
    print("Failed once, and run once more, alone:", *failed, sep="\n  ", flush=True)
    again = ["-m", "pytest", "-n", "0", "-m", "not slow", "--last-failed", "--last-failed-no-failures=none"]
    os.execv(sys.executable, [sys.executable, *again, *AGAIN])


if __name__ == "__main__":
    main()
