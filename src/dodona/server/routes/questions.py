"""The routes that price and ask. Everything is refused, or priced, before anything is charged (``oracles.curator``)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from dodona.errors import AnswerLost, BadQuery
from dodona.oracles.answer import Answer, Finding, Price, Selection
from dodona.oracles.effort import Effort
from dodona.oracles.finishing import finish
from dodona.oracles.fronts import quoted
from dodona.oracles.oracle import Oracle, Request
from dodona.oracles.rows import Rows, tabled
from dodona.oracles.wire import candidates_of, procedure_of, query_of
from dodona.query.select import is_select, read_from
from dodona.query.statistic import Losses, Query, Stack, as_query
from dodona.query.unit import Bounds
from dodona.server import requests
from dodona.server import shapes as outputs
from dodona.server.datasets import Dataset
from dodona.server.keys import Key
from dodona.server.service import Service, require
from dodona.server.shapes import asks, asks_once

MOST_NUMBERS = 500_000
"""Numbers in one answer: what leaves, and what the ledger stores with the charge."""
router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["questions"])
_QUESTION = {"question": "age >= 65 AND smoker", "effort": {"share": 0.01}}
_GROUPS = "SELECT region, COUNT(*) AS n, AVG(income) AS mean FROM survey GROUP BY region"
_SELECT = {"sql": _GROUPS, "effort": {"share": 0.01}}
_LOSSES = {"columns": ["age", "income"], "effort": {"share": 0.01}}
_CHOICE = {"candidates": ["age < 30", "age BETWEEN 30 AND 60", "age > 60"], "effort": {"share": 0.01}}


@router.post("/price", **asks(requests.QuestionBody, outputs.Price, example=_QUESTION))
async def price(request: HttpRequest, dataset: str) -> Response:
    """What a question would cost and how good its answer would be; reads no row, charges nothing."""
    service, key, data = await _opened(request, dataset)
    found = await service.price(key, data, await requests.read_bytes(request), _read_request)
    return Response(found.to_json(), media_type="application/json")


@router.post("/ask", **asks_once(requests.QuestionBody, outputs.Answer, example=_QUESTION))
async def ask(request: HttpRequest, dataset: str) -> Response:
    """Charge, then answer with noise."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = requests.checked(requests.QuestionBody, requests.parse(raw))
        oracle, asked = _make_request(body, data, key)
        return oracle.answer(replace(asked, key=name, most=MOST_NUMBERS))

    return await _charged(request, dataset, work, outward)


@router.post("/sql", **asks_once(requests.SqlBody, outputs.Rows, example=_SELECT))
async def sql(request: HttpRequest, dataset: str) -> Response:
    """Charge, then answer a SELECT as a table of estimates with error bars."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = requests.checked(requests.SqlBody, requests.parse(raw))
        oracle, select = data.read(key, body.sql)
        answer = oracle.answer(Request.of(select, body.effort.effort(), name, MOST_NUMBERS))
        return table(finish(select, answer), answer)

    return await _charged(request, dataset, work, json.dumps)


@router.post("/losses", **asks_once(requests.LossesBody, outputs.Rows, example=_LOSSES))
async def losses(request: HttpRequest, dataset: str) -> Response:
    """Charge, then count what the schema's bounds and lists, and the unit's limit, leave out."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = requests.checked(requests.LossesBody, requests.parse(raw))
        oracle = data.joined(key, body.source, body.people)
        query = Losses(tuple(oracle.schema.stored if body.columns is None else body.columns))
        text = f"losses of {', '.join(query.columns)}"
        asked = Request(query, body.effort.effort(), name, text, MOST_NUMBERS, bounds=_bounds(body.bounds))
        answer = oracle.answer(asked)
        return table(tabled(query, oracle.schema, answer), answer)

    return await _charged(request, dataset, work, json.dumps)


@router.post("/select", **asks_once(requests.SelectBody, Selection, example=_CHOICE))
async def select(request: HttpRequest, dataset: str) -> Response:
    """Charge, then choose the candidate with about the largest total."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = requests.checked(requests.SelectBody, requests.parse(raw))
        if (body.candidates is None) == (body.query is None):
            raise BadQuery("exactly one of candidates and query must be given.")
        oracle = data.joined(key, body.source, body.people)
        if body.candidates is not None:
            query: Query = Stack(tuple(map(as_query, body.candidates)))
        else:
            query = candidates_of(body.query, oracle)
        asked = Request(query, body.effort.effort(), name, bounds=_bounds(body.bounds))
        return oracle.choose(asked, body.mechanism)

    return await _charged(request, dataset, work, lambda found: found.to_json())


@router.post("/join", **asks(requests.JoinBody, outputs.Joined))
async def join(request: HttpRequest, dataset: str) -> Response:
    """The public facts of tables joined, and what names mean there, or of people; reads no row, charges nothing."""
    service, key, data = await _opened(request, dataset)
    body = await requests.read_body(request, requests.JoinBody)

    def work() -> dict[str, Any]:
        if (body.source is None) == (body.people is None):
            raise BadQuery("exactly one of from and people must be given.")
        if body.source is None:
            oracle = data.joined(key, None, body.people)
            about = {"name": oracle.name, "schema": oracle.schema.describe(), "rows": oracle.rows}
            return {**about, "tables": {}, "conditions": []}
        oracle, scope = data.source(key, read_from(body.source))
        conditions = [condition.to_json() for condition in scope.conditions]
        tables = {called: dict(own) for called, own in scope.columns.items()}
        about = {"name": oracle.name, "schema": oracle.schema.describe(), "rows": oracle.rows}
        return {**about, "tables": tables, "conditions": conditions}

    return Response(json.dumps(await service.off_loop(work)), media_type="application/json")


@router.post("/run", **asks_once(requests.RunBody, Finding))
async def run(request: HttpRequest, dataset: str) -> Response:
    """Charge, then run a procedure that no statistical query can express."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = requests.checked(requests.RunBody, requests.parse(raw))
        asked = Request(procedure_of(body.procedure), body.effort.effort(), name, bounds=_bounds(body.bounds))
        return data.joined(key, body.source, body.people).perform(asked)

    return await _charged(request, dataset, work, lambda found: found.to_json())


def table(rows: Rows, answer: Answer) -> dict[str, Any]:
    """A SELECT's result as plain data."""
    columns, records = list(rows.columns), rows.to_dicts()
    known = {"confidence": rows.confidence, "proven": rows.proven, "told": rows.told, "leaves_out": rows.leaves_out}
    return {
        "columns": columns,
        "records": records,
        **known,
        "notes": rows.notes(),
        "cost": vars(rows.cost),
        "answer": json.loads(outward(answer)),
    }


def outward(answer: Answer) -> str:
    """An answer as it leaves: also per row, where the number of rows is public, and with the ends of the interval."""
    known = answer.rows is not None
    centre, half = (answer.mean, answer.margin / max(answer.rows or 1, 1)) if known else (answer.total, answer.margin)
    more = {"mean": centre if known else None, "mean_margin": half if known else None}
    more |= {"low": centre - half, "high": centre + half}
    told = {name: None if value is None else np.asarray(value).tolist() for name, value in more.items()}
    return f"{answer.to_json()[:-1]}, {json.dumps(told, allow_nan=False)[1:]}"


def request_of(given: tuple[str, Any], effort: Effort) -> Request:
    """A question that is no SELECT, with its effort."""
    form, value = given
    return Request(query_of(value) if form == "query" else as_query(value), effort)


async def _opened(request: HttpRequest, dataset: str) -> tuple[Service, Key, Dataset]:
    service: Service = request.app.state.service
    key = await require(request)
    data = service.datasets.get(key, dataset)
    request.state.dataset = data.name
    return service, key, data


async def _charged(
    request: HttpRequest,
    dataset: str,
    work: Callable[[bytes, str | None, Key, Dataset], Any],
    written: Callable[[Any], str],
) -> Response:
    service, key, data = await _opened(request, dataset)
    name = requests.idempotency_key(request)
    raw = await requests.read_bytes(request)

    def once() -> tuple[str, Any]:
        try:
            found = work(raw, name, key, data)
        except AnswerLost:
            if name is None:
                raise
            found = _await_answer(lambda: work(raw, name, key, data))
        service.look_again(data)
        return written(found), found

    with service.running.one(key.id):
        async with service.turn(data, key, name):
            text, found = await service.at_work(once, len(raw))
    cost = getattr(found, "cost", None)
    request.state.charge = cost.seq if cost is not None else found["cost"]["seq"]
    return Response(text, media_type="application/json")


_TRIES, _PAUSE = 10, 0.2


def _await_answer(again: Callable[[], Any]) -> Any:
    """A named request without a stored answer: lost, or still at work in another process; wait a while.

    The answer is stored at the moment of the first request's work, so a repeat sees that moment and nothing else.
    """
    for _ in range(_TRIES):
        time.sleep(_PAUSE)
        try:
            return again()
        except AnswerLost:
            continue
    raise AnswerLost


def _make_request(body: requests.QuestionBody, data: Dataset, key: Key) -> tuple[Oracle, Request]:
    """A question in any of its three forms, and the oracle it is for."""
    form, value = body.given()
    if form == "query" or not is_select(value):
        asked = request_of((form, value), body.effort.effort())
        return data.joined(key, body.source, body.people), replace(asked, bounds=_bounds(body.bounds))
    if body.source is not None or body.people is not None:
        raise BadQuery("a SELECT says itself what it reads: leave out from and people.")
    oracle, select = data.read(key, value)
    asked, stated = Request.of(select, body.effort.effort()), _bounds(body.bounds)
    return oracle, replace(asked, bounds=stated if asked.bounds is None else asked.bounds.over(stated))


def _bounds(body: requests.BoundsBody | None) -> Bounds | None:
    return None if body is None else body.bounds()


def _read_request(raw: bytes, data: Dataset, key: Key) -> Price:
    """The quote of a question; reads no row."""
    oracle, asked = _make_request(requests.checked(requests.QuestionBody, requests.parse(raw)), data, key)
    return quoted(oracle, asked)
