"""``python -m benchmarks [name ...]``: runs ``main()`` of the named files in this folder, or of all of them."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path


def names() -> list[str]:
    """Every benchmark in this folder."""
    return sorted(file.stem for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith("_"))


def main(wanted: list[str]) -> int:
    """Runs them one after the other; a failing one does not stop the rest."""
    known = names()
    strange = [name for name in wanted if name not in known]
    if strange:
        print(f"no such benchmark: {', '.join(strange)}. There are: {', '.join(known)}.", file=sys.stderr)
        return 2
    failed = []
    for name in wanted or known:
        module = importlib.import_module(f"benchmarks.{name}")
        if not hasattr(module, "main"):
            continue
        print(f"\n== {name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
        started = time.perf_counter()
        try:
            module.main()
        except Exception as error:
            print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
            failed.append(name)
        print(f"== {name}: {time.perf_counter() - started:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
