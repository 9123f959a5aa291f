"""A whole curator on PostgreSQL: rows and ledger both there; asking, SELECT, selection, reports and learning."""

from __future__ import annotations

import numpy as np
import pytest

import dodona as dd
from dodona.errors import Refused
from dodona.learn import GaussianNB

SCHEMA = dd.Schema({"age": dd.Integer(0, 100), "sex": dd.Category("Female", "Male"), "smoker": dd.Flag()})


@pytest.fixture
def people(postgres):
    draw = np.random.default_rng(5)
    count = 4_000
    with postgres.connect() as admin:
        admin.execute("DROP TABLE IF EXISTS people; CREATE TABLE people (age int, sex text, smoker boolean)")
        with admin.cursor().copy("COPY people FROM STDIN") as copy:
            for _ in range(count):
                male = bool(draw.random() < 0.5)
                copy.write_row([int(draw.integers(0, 60) + 30 * male), "Male" if male else "Female", bool(male)])
        if admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'asker'").fetchone() is None:
            admin.execute("CREATE ROLE asker LOGIN PASSWORD 'asks'")
        admin.execute("GRANT SELECT ON people TO asker")
        admin.commit()
    return postgres.url(user="asker", password="asks") + "#public.people"


def test_asking_learning_and_selecting(postgres, people):
    table = dd.Table(people, SCHEMA)
    assert table.name == "people"
    assert "ask" not in table.population
    place = postgres.url() + "#people_ledger"
    curator, exact = dd.Curator(table, dd.Budget(epsilon=20), place, create=True), dd.Exact(table)
    answer = curator.ask("smoker AND age >= 50", tolerance=0.01)
    assert abs(answer.mean - exact.ask("smoker AND age >= 50").mean) < 0.03
    rows = curator.sql("SELECT sex, COUNT(*) AS n, AVG(age) FROM people GROUP BY sex", epsilon=2).to_dicts()
    assert [row["sex"] for row in rows] == ["Female", "Male", "(other)"]
    assert curator.select(["age < 0", "smoker"], epsilon=1).index == 1
    model = GaussianNB(share=0.3).fit(curator, y="sex")
    assert model.cost_.share == pytest.approx(0.3, abs=0.01)
    spent = curator.left
    again = dd.Curator(table, dd.Budget(epsilon=20), place)
    assert again.left == spent
    with pytest.raises(Refused):
        dd.Curator(table, dd.Budget(epsilon=30), place)


def test_each_row_for_itself(people):
    everyone = dd.Local(dd.Table(people, SCHEMA), epsilon=4)
    assert everyone.ask("smoker", share=0.5).mean == pytest.approx(0.5, abs=0.15)
