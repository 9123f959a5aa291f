"""What holds of sources on every engine holds in Spark: no cast raises, and no collation makes two persons one."""

from __future__ import annotations

from typing import Any

import pytest

import dodona as dd
from dodona.engines.spark.dialect import SparkDialect
from dodona.engines.sql.dialect import Physical
from dodona.engines.sql.windows import bounded_relation
from dodona.query.plan import compile_query
from dodona.query.statistic import Partition, Stack, Value, as_expr

pytestmark = pytest.mark.xdist_group("spark")
TYPES = dd.Schema({"x": dd.Real(0, 9), "n": dd.Integer(0, 9), "g": dd.Category("a", "b"), "f": dd.Flag()})
IDS = ["a", "A", "á", "a\u0301", "a ", " a", "ß", "ss"]


def test_no_cast_raises_on_spark_whatever_a_type_has_become(spark: Any) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    held = {
        "x": Physical("x", "float", "double"),
        "n": Physical("n", "integer", "integer"),
        "g": Physical("g", "text", "string"),
        "f": Physical("f", "boolean", "boolean"),
    }
    dialect = SparkDialect(TYPES, held, Physical("w", "integer", "integer"))
    for value in ("'7x'", "CAST(99999999999999999999 AS DECIMAL(38, 0))"):
        source = "(SELECT " + ", ".join(f"{value} AS {n}" for n in (*TYPES, "w")) + ")"
        relation = dialect.relation(source)
        bounded = bounded_relation(TYPES, dd.Unit("w", 2), dialect, relation)
        cleaned = ", ".join(bounded.clean[name] for name in TYPES)
        (row,) = spark.sql(f"SELECT {cleaned} FROM {bounded.relation}").collect()
        assert row[0] is None or 0 <= row[0] <= 9


@pytest.mark.slow
def test_a_collation_of_spark_makes_no_two_persons_one(spark: Any) -> None:
    schema, unit = dd.Schema({"x": dd.Real(0, 9), "g": dd.Category("a", "A", "ß")}), dd.Unit("whose", 2)
    counts = Stack((Value(as_expr("1")), Partition(as_expr("g"), Value(as_expr("1"))), Value(as_expr("g IN ('A')"))))
    program = compile_query(counts, schema, level=False).program
    rows = [(whose, float(i), whose) for whose in IDS for i in range(5)]
    for collation in ("UTF8_LCASE", "UNICODE_CI_AI_RTRIM"):
        kind = f"string collate {collation}"
        frame = spark.createDataFrame(rows, "whose string, x double, g string")
        frame = frame.selectExpr(f"CAST(whose AS {kind}) AS whose", "x", f"CAST(g AS {kind}) AS g")
        assert frame.select("whose").distinct().count() < len(IDS)  # the collation does merge them
        table = dd.Table(frame, schema, neighbours="add-remove", unit=unit, name="t")
        assert [int(total) for total in table.engine.totals(program)] == [2 * len(IDS), 2, 2, 2, 2]
