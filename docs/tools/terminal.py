"""Draws docs/figures/terminal.svg: what the real commands really print, in a terminal.

``python docs/tools/terminal.py`` makes a survey in a temporary folder and runs the commands below in it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

OUTPUT = Path(__file__).resolve().parents[1] / "figures" / "terminal.svg"
COMMANDS = (
    "dodona sample survey.parquet --rows 100000 --schema survey.toml",
    'dodona ask survey.toml "age >= 65 AND smoker" --tolerance 0.005',
    'dodona sql survey.toml "SELECT sex, COUNT(*) AS n, AVG(hours) FROM survey WHERE smoker GROUP BY sex" --share 0.05',
    'dodona ask survey.toml "income - AVG(income)" --share 0.01',
    "dodona ledger survey.toml --verify",
)
WIDTH = 100


def run(command: str, folder: Path) -> str:
    """What a command prints, both streams."""
    words = [sys.executable, "-m", "dodona", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return (done.stdout + done.stderr).rstrip()


def main() -> None:
    """Runs them and draws the picture; no font is fetched when it is shown."""
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w", encoding="utf-8"), force_terminal=True)  # noqa: SIM115
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
            shown = run(command, Path(folder))
            console.print(Text(shown, style="red" if shown.startswith("dodona:") else ""), end="\n\n")
    svg = console.export_svg(title="dodona")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # the fonts would come from a network
    svg = svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    OUTPUT.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
