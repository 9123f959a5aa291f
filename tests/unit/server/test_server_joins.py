"""Datasets of several tables over HTTP: a SELECT names its tables, one ledger pays, a key opens what it opens."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.config import Config
from dodona.errors import BadQuery, Refused
from dodona.server.datasets import Datasets
from dodona.server.guard import Problem
from dodona.server.keys import Key
from dodona.server.requests import PeopleBody
from dodona.server.settings import Settings, read_sources
from tests.support.servers import add_key, in_thread

SURVEY = """
unit = "patient"
neighbours = "add-remove"
population = "patients 2026"
[budget]
epsilon = 100000
[tables.visits]
data = "visits.parquet"
rows = 4
unit = {{ column = "patient", max_rows = 4 }}
columns.zip = {{ type = "category", values = ["01", "02", "03"] }}
columns.cost = {{ type = "integer", low = 0, high = 100 }}
[tables.patients]
data = "patients.parquet"
unit = {{ column = "id", max_rows = 1 }}
columns.age = {{ type = "integer", low = 0, high = 120 }}
[tables.zips]
public = true
data = "{zips}"
"""


def write(folder: Path, zips: str = "zips.csv") -> Path:
    pq.write_table(
        pa.table({"patient": [1, 1, 2, 3], "zip": ["01", "02", "02", "x"], "cost": [1, 2, 3, 4]}),
        folder / "visits.parquet",
    )
    pq.write_table(pa.table({"id": [1, 2, 3], "age": [10, 20, 30]}), folder / "patients.parquet")
    (folder / "zips.csv").write_text("zip,city\n01,Oslo\n02,Bergen\n")
    (folder / "survey.toml").write_text(SURVEY.format(zips=zips))
    return folder / "survey.toml"


CITIES = "SELECT city, COUNT(*) AS n FROM visits JOIN zips USING (zip) GROUP BY city"


def test_a_file_of_several_tables_is_one_dataset(tmp_path):
    config = Config.read(write(tmp_path))
    assert [member.name for member in config.members] == ["visits", "patients"]
    curator = config.open_curator("me", create=True)
    assert curator.ledger.genesis.population == 'patients 2026; one "patient"'
    assert [round(row["n"]) for row in curator.sql(CITIES, share=0.1).to_dicts()][:2] == [2, 1]
    assert round(curator.sql("SELECT SUM(age) AS a FROM patients", share=0.1).to_dicts()[0]["a"]) == 60
    again = config.members[1].open_curator("me")
    assert again.left == curator.left == pytest.approx(80_000)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("public = true", "public = 1", "public = true, data"),
        ("public = true", 'public = true\nunit = "x"', "public = true, data"),
        ('unit = "patient"\n', 'data = "x"\n', r"states data in each"),
        ('unit = { column = "id", max_rows = 1 }', "", "whose row a row is"),
        ("[tables.zips]\npublic = true", '[tables."two words"]\npublic = true', "must be a word"),
    ],
)
def test_what_a_file_of_several_tables_lacks_is_said(tmp_path, old, new, said):
    file = write(tmp_path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(Refused, match=said):
        Config.read(file).open_table()


def test_a_table_that_is_private_elsewhere_is_not_served_as_public(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write(tmp_path)
    file = write(other, zips=str(tmp_path / "visits.parquet"))
    text = file.read_text().replace("tables.visits", "tables.stays").replace("tables.patients", "tables.people")
    file.write_text(text.replace("patients 2026", "others 2026"))
    with pytest.raises(Refused, match="stated to be public"):
        read_sources((str(file), str(tmp_path / "survey.toml")), None)


def test_a_server_answers_about_tables_joined(tmp_path):
    file = write(tmp_path)
    Config.read(file).open_curator("curator", create=True).ledger.close()
    key, narrow = (add_key(tmp_path, name, datasets=opened) for name, opened in (("ana", None), ("ben", ["visits"])))
    with in_thread(tmp_path, [file]) as url:
        visits = dd.connect(url, key=key, dataset="visits")
        patients = dd.connect(url, key=key, dataset="patients")
        assert [round(row["n"]) for row in visits.sql(CITIES, share=0.1).to_dicts()][:2] == [2, 1]
        assert patients.left == visits.left == pytest.approx(90_000)
        assert visits.price(CITIES, share=0.1).cost.share == pytest.approx(0.1)
        assert round(patients.sql(CITIES, share=0.01).to_dicts()[1]["n"]) == 1
        joined = visits.join("visits JOIN zips AS z USING (zip)")
        assert joined.schema["city"] == dd.Category("Bergen", "Oslo")
        assert joined.ask("city = 'Bergen'", share=0.01).total == pytest.approx(2, abs=0.5)
        assert joined.price("1", share=0.01).cost == visits.price("1", share=0.01).cost
        assert joined.select(["city = 'Oslo'", "city = 'Bergen'"], share=0.1).index == 1
        assert [row["column"] for row in joined.losses(["cost"], share=0.01).to_dicts()][:1] == ["cost"]
        with pytest.raises(BadQuery, match="not a table here"):
            visits.sql("SELECT COUNT(*) AS n FROM visits JOIN towns USING (zip)", share=0.1)
        ben = dd.connect(url, key=narrow, dataset="visits")
        assert round(ben.sql(CITIES, share=0.01).to_dicts()[0]["n"]) == 2
        for ask in (ben.sql, ben.price):
            with pytest.raises(Refused):
                ask("SELECT SUM(age) AS a FROM patients", share=0.01)
        with pytest.raises(Refused):
            ben.join("patients")


PEOPLE = "SELECT patient, LEAST(SUM(cost), 50) AS spent, LEAST(COUNT(*), 3) AS visits FROM visits GROUP BY patient"


def test_people_and_bounds_mean_the_same_over_http(tmp_path):
    file = write(tmp_path)
    Config.read(file).open_curator("curator", create=True).ledger.close()
    here = dd.open(file)["visits"]
    key = add_key(tmp_path, "ana")
    with in_thread(tmp_path, [file]) as url:
        there = dd.connect(url, key=key, dataset="visits")
        nested = f"SELECT AVG(spent) AS mean FROM ({PEOPLE})"
        clipped = "SELECT SUM(cost) AS spent FROM visits OPTIONS (clip = 2)"
        for statement in (nested, clipped):
            asked = [oracle.price(statement, share=0.01) for oracle in (there, here)]
            assert asked[0].cost == asked[1].cost
            assert str(asked[0].margin) == str(asked[1].margin)
        assert there.sql(clipped, share=0.1).to_dicts()[0]["spent"] == pytest.approx(6, abs=0.5)
        people, own = (oracle.persons(PEOPLE, rows=4) for oracle in (there, here))
        assert (people.schema, people.rows, people.whose) == (own.schema, 4, "patient")
        assert people.price("spent", share=0.01).cost.neighbours == own.price("spent", share=0.01).cost.neighbours
        assert people.ask("visits >= 2", share=0.01).total == pytest.approx(1, abs=0.5)
        assert people.sql("SELECT SUM(spent) AS s FROM visits", share=0.01).to_dicts()[0]["s"] == pytest.approx(
            10, abs=1
        )
        assert people.select(["visits = 1", "visits = 2"], share=0.01).index == 0
        assert there.bounded(clip=2).ask("cost", share=0.1).total == pytest.approx(6, abs=0.5)
        few = there.bounded(max_rows=1)
        assert few.ask("1", share=0.01).total == pytest.approx(3, abs=0.5)
        assert few.price("1", share=0.01).margin == here.bounded(max_rows=1).price("1", share=0.01).margin
        with pytest.raises(BadQuery, match="GROUP BY patient"):
            there.persons("SELECT cost FROM visits")
        body = {"kind": "intervals", "settings": {"column": "visits"}, "effort": {"share": "0.00001"}}
        price = lambda **more: there._line.post(  # noqa: E731
            ("v1", "datasets", "visits", "releases", "price"), {**body, **more}
        )
        stated = {"select": PEOPLE, "rows": 4}
        assert "spent" not in price(people=stated)
        cost = {**body, "settings": {"column": "cost"}}
        loose, tight = (
            there._line.post(("v1", "datasets", "visits", "releases", "price"), {**cost, "bounds": {"max_rows": most}})
            for most in (4, 1)
        )
        errors = [json.loads(found)["methods"][0]["error"] for found in (loose, tight)]
        assert errors[1] < errors[0]


def test_a_key_joins_only_what_it_opens(tmp_path):
    file = write(tmp_path)
    Config.read(file).open_curator("curator", create=True).ledger.close()
    datasets = Datasets(Settings((str(file),), str(tmp_path)))
    key = Key("1", "ben", "analyst", Fraction(1, 2), ("visits",), "", None, None)
    (visits,) = (dataset for dataset in datasets if dataset.name == "visits")
    assert visits.joined(key, "visits JOIN zips USING (zip)").schema["city"]
    for text in ("patients", "PATIENTS", "visits JOIN patients ON patients.id = visits.patient"):
        with pytest.raises(Problem):
            visits.joined(key, text)
    with pytest.raises(Problem):
        visits.read(key, "SELECT SUM(age) AS a FROM patients")
    inner = "SELECT visits.patient, MAX(age) AS x FROM visits JOIN patients ON visits.patient = patients.id"
    nested = f"SELECT SUM(x) AS s FROM ({inner} GROUP BY visits.patient)"
    for text in (nested, "SELECT age, COUNT(*) FROM patients GROUP BY id"):
        people = PeopleBody(select=inner + " GROUP BY visits.patient" if text is nested else text)
        with pytest.raises(Problem):
            visits.joined(key, None, people)
    for text in (nested, f"WITH visits AS (SELECT COUNT(*) AS n FROM visits) {nested}"):
        with pytest.raises((Problem, Refused)):
            visits.read(key, text)
        with pytest.raises(Refused, match="not a table here"):
            visits.asker(key).read(text)
    everyone = Key("2", "ben", "analyst", Fraction(1, 2), None, "", None, None)
    assert visits.read(everyone, nested)[0].whose == "patient"
    datasets.close()
