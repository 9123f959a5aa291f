"""The server's memory of prices: one dataset's price is never told of another, nor one analyst's to another."""

import json

import dodona as dd
from dodona.config import Config
from dodona.oracles import noise
from dodona.server.routes import questions
from dodona.server.service import Prices

BODY = {"question": "age >= 65", "effort": {"share": "0.01"}}


def test_a_remembered_price_is_that_of_its_own_dataset(house):
    """The same bytes, by the same person, about two datasets of other budgets: first worked out, then remembered."""
    raw = json.dumps(BODY).encode()
    for _ in range(3):
        told = {name: house.post("price", raw, "curator", name).json() for name in ("people", "hidden")}
        for name, price in told.items():
            config = Config.read(house.folder / f"{name}.toml")
            own = dd.Curator(config.open_table(), config.budget).price("age >= 65", share="0.01")
            assert price["cost"]["unit"] == own.cost.unit
            assert price["cost"]["amount"] == own.cost.amount
            assert price["margin"] == own.margin
    assert told["people"]["cost"]["unit"] != told["hidden"]["cost"]["unit"]


def test_a_remembered_price_is_kept_apart_by_dataset_schema_and_analyst():
    """Nothing that is known of one (dataset, schema, analyst, request) is known of another that differs in one."""

    class Named:
        def __init__(self, name, digest=""):
            self.name = self.analyst = name
            self.table = self.schema = self
            self.digest = digest

    prices, names = Prices(), ("a", "b")
    prices._quotes["a", "a", "a", b"q"] = object()  # what is not looked up is not touched
    for dataset in names:
        for digest in names:
            for analyst in names:
                for raw in (b"q", b"r"):
                    if (dataset, digest, analyst, raw) != ("a", "a", "a", b"q"):
                        assert prices.known(Named(analyst), Named(dataset, digest), raw) is None


def test_a_question_is_compiled_once_however_it_is_priced_and_asked(house, monkeypatch):
    """The oracle that answers is the one that prices, and its plan says how large the answer is."""
    compiled = []

    def compiling(query, schema, *, level):
        compiled.append(str(query))
        return compile_query(query, schema, level=level)

    compile_query = noise.compile_query
    monkeypatch.setattr(noise, "compile_query", compiling)
    for route, times in (("ask", 1), ("price", 1), ("price", 1), ("ask", 1)):
        assert house.post(route, BODY).status_code == 200
        assert len(compiled) == times
    assert house.post("price", BODY, "b").status_code == 200
    assert len(compiled) == 2  # another analyst's plans are theirs: how soon an answer comes tells nobody's questions


def test_an_answer_of_too_many_numbers_is_refused_before_the_charge(house, monkeypatch):
    monkeypatch.setattr(questions, "MOST_NUMBERS", 99)
    select, effort = "SELECT age, COUNT(*) FROM people GROUP BY age", {"share": "0.01"}
    for route, form in (("ask", "sql"), ("sql", "sql")):
        found = house.post(route, {form: select, "effort": effort})
        assert (found.status_code, found.json()["code"], found.json()["charged"]) == (422, "bad-query", False)
        assert "at most 99 numbers. This one would have 101" in found.json()["detail"]
    assert house.spent() == 0
    assert house.post("price", {"sql": select, "effort": effort}).json()["shape"] == [101, 1]  # ages, and those of none
