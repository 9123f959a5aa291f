"""SELECT statements: what they become, what is refused (V31, V33, V37)."""

import pytest

from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.select import is_select, parse_select

SCHEMA = Schema(
    {
        "age": Integer(0, 99, missing=0),
        "sex": Category("f", "m"),
        "income": Real(0, 1000),
        "free": Real(0, 1e9),
        "smoker": Flag(),
    }
)


def parsed(text):
    return parse_select(text, SCHEMA, "people")


def test_every_key_of_the_schema_appears():
    select = parsed("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex, smoker")
    plan = compile_query(select.query, SCHEMA, level=False)
    assert plan.segments[0].shape == (3, 3, 1)
    assert plan.segments[0].labels == (("f", "m", "(other)"), (False, True, "(other)"))
    assert select.columns == ("sex", "n")


def test_v37_a_mean_is_charged_for_its_sum_and_its_count():
    alone = compile_query(parsed("SELECT SUM(income) FROM people WHERE smoker").query, SCHEMA, level=False)
    mean = compile_query(parsed("SELECT AVG(income) FROM people WHERE smoker").query, SCHEMA, level=False)
    variance = compile_query(parsed("SELECT VARIANCE(income) FROM people WHERE smoker").query, SCHEMA, level=False)
    assert [p.dimension for p in (alone, mean, variance)] == [1, 2, 3]
    sizes = [p.reach.size.l2_squared for p in (alone, mean, variance)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[2]


def test_sums_are_shared_between_fields():
    select = parsed("SELECT AVG(income), STDDEV(income), VARIANCE(income), COUNT(income) FROM people")
    assert compile_query(select.query, SCHEMA, level=False).dimension == 3


def test_group_by_case_and_bucket_and_alias():
    text = "SELECT CASE WHEN age < 30 THEN 'young' ELSE 'old' END AS life, COUNT(*) FROM people GROUP BY life"
    plan = compile_query(parsed(text).query, SCHEMA, level=False)
    assert plan.segments[0].labels == (("young", "old"),)
    text = "SELECT BUCKET(age, 0, 18, 65, 99) AS b, COUNT(*) FROM people GROUP BY b"
    assert compile_query(parsed(text).query, SCHEMA, level=False).segments[0].labels == (
        ("[0, 18)", "[18, 65)", "[65, 99]"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM other",
        "SELECT COUNT(*)",
        "SELECT COUNT(*) FROM people, people",
        "SELECT COUNT(*) FROM people JOIN people",
        "SELECT COUNT(*) FROM (SELECT 1)",
        "SELECT SUM(DISTINCT age) FROM people",
        "SELECT MAX(age) FROM people",
        "SELECT age FROM people",
        "SELECT * FROM people",
        "SELECT sex, COUNT(*) FROM people",
        "SELECT SUM(sex) FROM people",
        "SELECT AVG(1 / age) FROM people",
        "SELECT COUNT(*) FROM people WHERE age",
        "SELECT COUNT(*) FROM people WHERE COUNT(*) > 1",
        "SELECT MEDIAN(age) FROM people GROUP BY CUBE(sex)",
        "SELECT GROUPING(sex) FROM people GROUP BY sex",
        "SELECT COUNT(*) FROM people GROUP BY CUBE(sex, age, smoker, age + 1, age + 2, age + 3, age + 4)",
        "SELECT COUNT(*) FROM people UNION SELECT COUNT(*) FROM people",
        "WITH t AS (SELECT 1) SELECT COUNT(*) FROM people",
        "WITH t AS (SELECT COUNT(*) FROM people) SELECT COUNT(*) FROM people",
        "SELECT COUNT(*) FROM people AS p WHERE people.age > 3 AND q.age > 3",
        "SELECT COUNT(*) FROM people ORDER BY 2",
        "SELECT COUNT(*) FROM people ORDER BY age",
        "SELECT COUNT(*) FROM people LIMIT -1",
        "SELECT COUNT(*) FROM people LIMIT 1 + 1",
        "SELECT COUNT(*) FROM people LIMIT age",
        "SELECT DISTINCT COUNT(*) FROM people GROUP BY sex",
        "SELECT COUNT(*) FROM people HAVING age > 1",
        "SELECT COUNT(*) FROM people HAVING COUNT(*)",
        "SELECT SUM(age) OVER () FROM people",
        "SELECT SUM(SUM(age)) OVER (ORDER BY sex ROWS 3 PRECEDING) FROM people GROUP BY sex",
        "SELECT SUM(age FILTER (WHERE smoker)) FROM people",
        "SELECT sex + 1 FROM people GROUP BY sex",
        "SELECT sex, COUNT(*) = 'a' FROM people GROUP BY sex",
        "SELECT n FROM (SELECT COUNT(*) AS n, SUM(age) AS n FROM people)",
        "SELECT m FROM (SELECT COUNT(*) AS n FROM people)",
        "SELECT n, SUM(n) FROM (SELECT COUNT(*) AS n FROM people)",
        "SELECT (SELECT COUNT(*) FROM people) FROM people",
        "SELECT sex FROM people GROUP BY sex UNION ALL SELECT COUNT(*) FROM people",
        "SELECT 1, 2 FROM people UNION ALL SELECT COUNT(*) FROM people",
        "SELECT MEDIAN(age) FROM people UNION ALL SELECT COUNT(*) FROM people",
        "SELECT COUNT(*) FROM people /* a /* b */ */",
        "SELECT COUNT(*) FROM people; SELECT 1",
        "DELETE FROM people",
        "age > 3",
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(BadQuery):
        compile_query(parsed(text).query, SCHEMA, level=False)


def test_v31_a_key_without_listed_values_is_refused():
    with pytest.raises(BadQuery, match="listed values"):
        compile_query(parsed("SELECT COUNT(*) FROM people GROUP BY free").query, SCHEMA, level=False)


def test_select_is_told_from_expressions():
    assert is_select("  select 1")
    assert not is_select("age >= 3")
