"""Counts the house: how many files, how long, how much of it imports, who has a single importer; and draws its rooms.

``python docs/tools/house.py`` prints both; ``docs/tools/pages.py`` puts them into docs/design.md. A file with one
importer may be a fragment that belongs there; a door is none, since everyone outside comes through it: a file named in
its room's ``__init__.pyi``.
"""

from __future__ import annotations

import ast
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dodona"
LIMITS = {
    "files": 290,
    "longest file": 400,
    "imports, % of lines": 6.5,
    "files with one importer": 30,
    "families by prefix": 0,
}
LEAST = {"median lines": 150}


@dataclass(frozen=True)
class House:
    """What was counted."""

    files: int
    lines: int
    median: float
    longest: int
    imports: int
    lonely: tuple[str, ...]
    families: tuple[str, ...]

    def figures(self) -> dict[str, float]:
        """Under the names the limits have."""
        return {
            "files": self.files,
            "lines": self.lines,
            "median lines": self.median,
            "longest file": self.longest,
            "imports, % of lines": round(100 * self.imports / self.lines, 1),
            "files with one importer": len(self.lonely),
            "families by prefix": len(self.families),
        }


def count(source: Path = SOURCE) -> House:
    """Every Python file below ``source``."""
    files = sorted(source.rglob("*.py"))
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    lines = {file: file.read_text(encoding="utf-8").count("\n") for file in files}
    names = {_module(file, source): file for file in files}
    imports, importers = 0, defaultdict(set)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    importers[inner if inner in names else node.module].add(file)
    doors = {line.split()[1] for stub in source.rglob("*.pyi") for line in stub.read_text().splitlines() if line}
    inner = [name for name, file in names.items() if file.stem != "__init__" and name not in doors]
    lonely = [name for name in inner if len(importers[name]) == 1]
    families = Counter((file.parent, file.stem.lstrip("_").split("_")[0]) for file in files if file.stem != "__init__")
    prefixed = [f"{folder.relative_to(source)}/{stem}*" for (folder, stem), many in families.items() if many >= 3]
    return House(
        len(files),
        sum(lines.values()),
        statistics.median(lines.values()),
        max(lines.values()),
        imports,
        tuple(lonely),
        tuple(prefixed),
    )


def _module(file: Path, source: Path) -> str:
    return ".".join((source.name, *file.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")


def table(house: House) -> str:
    """The counts beside their limits, in Markdown."""
    rows = ["| counted | is | limit |", "|---|---|---|"]
    for name, value in house.figures().items():
        limit = f"at most {LIMITS[name]:g}" if name in LIMITS else f"at least {LEAST[name]}" if name in LEAST else ""
        rows.append(f"| {name} | {value:,g} | {limit} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


def rooms(source: Path = SOURCE) -> str:
    """Every room with the first sentence of its docstring, and its files."""
    out = []
    for folder in sorted(path.parent for path in source.rglob("__init__.py")):
        depth = len(folder.relative_to(source).parts)
        if depth > 2:
            continue
        doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        files = sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")
        indent, name = "    " * depth, "dodona" if folder == source else folder.name
        first = " ".join(doc.split("\n\n")[0].split())
        out.append(f"{indent}{name}/  {first}".rstrip())
        if files:
            out.append(f"{indent}    {' '.join(files)}")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    found = count()
    print(rooms())
    print(table(found))
    print("one importer:", ", ".join(found.lonely))
    print("families:", ", ".join(found.families))
