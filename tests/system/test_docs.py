"""The documentation is true: its Python runs, its commands work, and the site builds strictly and without a network."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dodona.sample import write_sample, write_schema

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *```(\w*)", re.MULTILINE)
WHOLE = [
    "start.md",
    "choose-trust.md",
    "choose-epsilon.md",
    *sorted(f"guides/{g.name}" for g in (DOCS / "guides").glob("*.md")),
]
"""Pages that need nothing but themselves."""
FRAME = """
import tomllib
import numpy as np
import dodona as dd
from dodona import release
from dodona.concepts import Conjunctions
from dodona.learn import KMeans
from dodona.sample import COLUMNS
schema = dd.Schema.read(tomllib.loads(COLUMNS)["columns"])
table = dd.Table("survey.parquet", schema)
curator = dd.Curator(table, dd.Budget(epsilon=8, delta=1e-6))
"""
SETTINGS = {
    "noise.md": "",
    "learning.md": FRAME,
    "conjunctions.md": FRAME
    + """
rng = np.random.default_rng(0)
flag = dd.Flag(missing=False)
schema = dd.Schema({"age": dd.Integer(17, 90, missing=17), "smoker": flag, "obese": flag,
                    "region": dd.Category("north", "south", missing="north")})
rows = {"age": rng.integers(17, 91, 2000), "smoker": rng.random(2000) < 0.3, "obese": rng.random(2000) < 0.3,
        "region": np.array(["north", "south"])[rng.integers(0, 2, 2000)]}
curator = dd.Curator(dd.Table(rows, schema, name="survey"), dd.Budget(epsilon=8))
""",
    "ranges.md": FRAME
    + """
rng = np.random.default_rng(0)
schema = dd.Schema({"age": dd.Integer(0, 120), "height": dd.Real(0, 250), "weight": dd.Real(0, 200)})
rows = {"age": rng.integers(0, 100, 2000), "height": rng.normal(170, 10, 2000), "weight": rng.normal(70, 10, 2000)}
curator = dd.Exact(dd.Table(rows, schema, name="people"))
concepts = dd.concepts.Finite.of(["age < 40", "age < 60"])
""",
    "local.md": FRAME
    + """
rng = np.random.default_rng(0)
columns = ("smoker", "married", "obese")
schema = dd.Schema({"age": dd.Integer(16, 95), **dict.fromkeys(columns, dd.Flag(missing=False))})
rows = {"age": rng.integers(16, 96, 6000), **{name: rng.random(6000) < 0.4 for name in columns}}
table = dd.Table(rows, schema, name="people")
query = dd.parse("age >= 65 AND smoker")
query = dd.Value(query)
schema = dd.Schema({"age": dd.Integer(16, 95), "smoker": dd.Flag()})
""",
    "audit.md": FRAME
    + """
rng = np.random.default_rng(0)
numbers = dd.Schema({"x": dd.Real(-1, 1), "y": dd.Real(-1, 1)})
rows = {name: np.append(rng.uniform(-0.2, 0.2, 40), 1.0) for name in numbers}
with_row = dd.Table(rows, numbers)
without_row = dd.Table({name: np.append(values[:-1], -1.0) for name, values in rows.items()}, numbers)
""",
    "privacy.md": FRAME
    + """
import duckdb
from dodona.learn import KMeans
columns = "i % 500 AS patient, i % 7 AS ward, i % 40 AS days, i % 90 AS cost, i % 365 AS day, i % 99 AS age"
duckdb.sql(f"COPY (SELECT {columns} FROM range(2000) t(i)) TO 'visits.parquet'")
schema = dd.Schema({"ward": dd.Category(*range(7)), "days": dd.Integer(0, 60), "cost": dd.Real(0, 1000),
                    "day": dd.Integer(0, 365), "age": dd.Integer(0, 110)})
""",
}
"""What the other pages take for granted: a survey and a curator over it."""

SLOW = {"audit.md"}


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def run_python(script: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(text: str) -> list[str]:
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [line for line in lines if line.startswith("dodona ")]


@pytest.mark.parametrize("page", WHOLE)
def test_a_guide_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    """Its commands and its Python, in order, in one empty folder."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for kind, text in blocks(page):
        for command in commands(text) if kind == "console" else ():
            done = subprocess.run(
                shlex.split(command), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
    script = "\n".join(text for kind, text in blocks(page) if kind == "python")
    assert script
    run_python(script, tmp_path)


@pytest.mark.parametrize("page", [pytest.param(p, marks=[pytest.mark.slow] if p in SLOW else []) for p in SETTINGS])
def test_examples_of_a_topic_run(page: str, tmp_path: Path) -> None:
    write_sample(tmp_path / "survey.parquet", 5_000)
    write_schema(tmp_path / "survey.toml", tmp_path / "survey.parquet")
    run_python(SETTINGS[page] + "\n".join(text for kind, text in blocks(page) if kind == "python"), tmp_path)


def test_every_page_with_python_is_run_or_named() -> None:
    """A page whose Python is run elsewhere says where, here."""
    elsewhere = {
        "server.md": "tests/system/test_server_process.py",
        "engines.md": "tests/conformance/test_engines.py",
        "questions.md": "tests/system/test_readme.py",
    }
    pages = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")}
    with_python = {page for page in pages if any(kind == "python" for kind, _ in blocks(page))}
    assert with_python - set(WHOLE) - set(SETTINGS) - set(elsewhere) == set()
    assert all((ROOT / test).exists() for test in elsewhere.values())


def test_every_fence_names_its_language() -> None:
    for file in DOCS.rglob("*.md"):
        fences = FENCE.findall(file.read_text(encoding="utf-8"))
        assert all(fences[::2]), file


def headings(text: str) -> set[str]:
    """What a page's headings and marked places are called in links."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)
    named = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}
    return named | set(re.findall(r'id="([^"]+)"', outside))


def dead_links(file: Path, text: str) -> list[str]:
    """Links of a page to files that are not there, or to places that are not in them."""
    found = []
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        path, _, place = link.partition("#")
        target = file.parent / path if path else file
        if not target.exists() or (
            place and "reference" not in target.parts and place not in headings(target.read_text(encoding="utf-8"))
        ):
            found.append(link)
    return found


@pytest.mark.parametrize("file", sorted(DOCS.rglob("*.md")), ids=lambda f: str(f.relative_to(DOCS)))
def test_no_link_is_dead(file: Path) -> None:
    assert dead_links(file, file.read_text(encoding="utf-8")) == []


def test_a_dead_link_is_noticed() -> None:
    page = DOCS / "start.md"
    text = (
        "[a](nothing.md) [b](privacy.md#nowhere) [c](#nowhere) [d](privacy.md) [e](errata.md#e1) ![f](gallery/no.png)"
    )
    assert dead_links(page, text) == ["nothing.md", "privacy.md#nowhere", "#nowhere", "gallery/no.png"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs the extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]  # quiet is not strict
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_asks_nobody_for_anything(site: Path) -> None:
    """No page loads a script, a style, a font or a picture from elsewhere."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 35
    loads = re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']?(https?:)?//""")
    for page in pages:
        assert not loads.search(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    reference = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    for room in ("", ".learn", ".release", ".concepts", ".mechanisms", ".audit", ".local", ".errors", ".testing"):
        module = importlib.import_module(f"dodona{room}")
        named = [name for name in getattr(module, "__all__", None) or dir(module) if not name.startswith("_")]
        for name in named:
            home = getattr(getattr(module, name), "__module__", None)
            if home is not None and home.startswith("dodona"):
                assert f'id="{home}.{name}"' in reference, f"{home}.{name}"
