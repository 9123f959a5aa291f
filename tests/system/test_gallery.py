"""The gallery runs: every script draws its picture, small enough to keep, and every picture has its script."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra 'plot'")
pytest.importorskip("sklearn", reason="learners need the extra 'learn'")

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ROOT / "examples" / "gallery"
SCRIPTS = sorted(file for file in GALLERY.glob("*.py") if not file.stem.startswith("_"))
MOST_BYTES = 80_000


@pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])
def test_it_draws_its_picture(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DODONA_GALLERY", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(GALLERY), *sys.path])
    runpy.run_path(str(script), run_name="__main__")
    picture = tmp_path / f"{script.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])
def test_it_is_short_and_says_what_it_shows(script: Path) -> None:
    source = script.read_text(encoding="utf-8")
    title, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    assert title.endswith((".", "?"))
    assert len(rest) > 80, "what is shown, on which data"
    assert source.count("\n") <= 70


def test_every_picture_has_its_script_and_every_script_its_picture() -> None:
    pictures = {file.stem for file in (ROOT / "docs" / "gallery").glob("*.png")}
    assert pictures == {script.stem for script in SCRIPTS}
    assert len(SCRIPTS) >= 20
