"""One table is one table, whatever it is called."""

import os

import duckdb
import pytest

import dodona as dd
from dodona.engines.homes import home_of
from dodona.errors import BadTable
from dodona.sample import write_sample

SCHEMA = dd.Schema({"x": dd.Real(0, 1)})


def identities(address):
    return home_of(address).identities(address)


@pytest.fixture
def data(tmp_path):
    write_sample(tmp_path / "people.parquet", 10)
    write_sample(tmp_path / "others.parquet", 10)
    return tmp_path / "people.parquet"


def test_a_link_and_a_hard_link_are_the_same_file(data, tmp_path, monkeypatch):
    (tmp_path / "link.parquet").symlink_to(data)
    os.link(data, tmp_path / "hard.parquet")
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    own = identities(str(data))
    for name in ("people.parquet", "link.parquet", "hard.parquet", "folder/people.parquet", "p*.parquet", "spark:."):
        assert identities(name) & own, name
    assert not identities("others.parquet") & own
    assert not identities("o*.parquet") & own
    assert identities("spark:hdfs://cluster/people") == {"spark:hdfs://cluster/people"}


def test_a_link_is_the_same_population(data, tmp_path):
    (tmp_path / "link.parquet").symlink_to(data)
    schema = dd.Schema({"smoker": dd.Flag()})
    one, other = (dd.Table(path, schema) for path in (data, tmp_path / "link.parquet"))
    assert one.population == other.population == str(data.resolve())
    assert one.identities() == other.identities()
    assert (one.folder, dd.Table({"smoker": [True]}, schema).folder) == (str(tmp_path.resolve()), None)
    assert dd.Table({"smoker": [True]}, schema).identities() == frozenset()


def test_a_table_in_a_duckdb_file_is_known_by_both(tmp_path):
    file = tmp_path / "a.duckdb"
    with duckdb.connect(str(file)) as db:
        db.execute("CREATE TABLE t(x DOUBLE); CREATE TABLE u(x DOUBLE); INSERT INTO t VALUES (1)")
    (tmp_path / "b.duckdb").symlink_to(file)
    own = identities(f"{file}#t")
    assert identities(f"{tmp_path}/b.duckdb#main.t") & own
    assert not identities(f"{file}#u") & own
    tables = [dd.Table(f"{tmp_path}/{name}", SCHEMA) for name in ("a.duckdb#t", "a.duckdb#main.t", "b.duckdb#t")]
    assert {table.population for table in tables} == {f"{file.resolve()}#t"}
    assert tables[0].protects(f"{tmp_path}/b.duckdb#main.t")
    assert not tables[0].protects(f"{file}#u")


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("{here}/a.csv", "{here}"),
        ("{here}/a.duckdb#main.t", "{here}"),
        ("{here}/year=*/part*.parquet", "{here}"),
        ("{here}/*.parquet", "{here}"),
        ("spark:{here}/people", "{here}"),
        ("spark:hdfs://cluster/people", None),
        ("postgresql://host/base#t", None),
    ],
)
def test_the_folder_of_the_data(path, folder, tmp_path):
    here = str(tmp_path.resolve())
    address = path.format(here=here)
    assert home_of(address).folder(address) == (None if folder is None else folder.format(here=here))


def test_places_that_are_no_files_stay_as_they_are():
    for place in ("postgresql://host/base#public.t", "spark:people"):
        assert home_of(place).real_place(place) == place


def test_a_postgresql_view_is_the_tables_it_reads(postgres):
    with postgres.connect() as db:
        db.execute("CREATE SCHEMA IF NOT EXISTS known")
        for statement in (
            "CREATE TABLE known.people(x double precision)",
            "CREATE TABLE known.others(x double precision)",
            "CREATE VIEW known.north AS SELECT x FROM known.people WHERE x < 0.5",
            "CREATE VIEW known.far_north AS SELECT x FROM known.north WHERE x < 0.1",
            "CREATE MATERIALIZED VIEW known.stored AS SELECT x FROM known.people",
            "CREATE TABLE known.years(x double precision, y int) PARTITION BY LIST (y)",
            "CREATE TABLE known.year_1 PARTITION OF known.years FOR VALUES IN (1)",
            "CREATE TABLE known.year_2 PARTITION OF known.years FOR VALUES IN (2)",
        ):
            db.execute(statement)

    def known(table, options=""):
        return dd.Table(f"{postgres.url()}{options}#{table}", SCHEMA).identities()

    own = known("known.people")
    for other in ("known.north", "known.far_north", "known.stored"):
        assert known(other) & own, other
    assert known("known.north") & known("known.stored")
    assert known("people", "?options=-csearch_path%3Dknown") == own
    assert known("known.people", "?application_name=another") == own
    assert not known("known.others") & own
    assert known("known.years") & known("known.year_1")
    assert not known("known.year_1") & known("known.year_2")


def test_a_postgresql_that_cannot_be_reached_tells_no_password():
    with pytest.raises(BadTable) as refusal:
        identities("postgresql://ann:secret@127.0.0.1:1/none#t")
    assert "secret" not in str(refusal.value)
