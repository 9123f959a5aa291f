"""The routes that price and ask. Everything is refused, or priced, before anything is charged (``trust.curator``)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from dodona.answer import Answer
from dodona.errors import AnswerLost, BadQuery
from dodona.oracle import Request
from dodona.query.schema import Schema
from dodona.query.select import is_select, parse_select
from dodona.query.statistic import Query, Stack, as_query
from dodona.report import finish
from dodona.server import outputs
from dodona.server.auth import require
from dodona.server.bodies import QuestionBody, RunBody, SelectBody, SqlBody, checked
from dodona.server.datasets import Dataset
from dodona.server.describe import asks, asks_once
from dodona.server.keys import Key
from dodona.server.requests import idempotency_key, read_bytes
from dodona.server.service import Service
from dodona.server.strict_json import parse
from dodona.server.values import candidates_of, procedure_of, query_of
from dodona.trust.wire import price_to_json

MOST_NUMBERS = 500_000
"""Numbers in one answer: what leaves, and what the ledger stores with the charge."""
router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["questions"])


@router.post("/price", **asks(QuestionBody, outputs.Price))
async def price(request: HttpRequest, dataset: str) -> Response:
    """What a question would cost and how good its answer would be; reads no row, charges nothing."""
    service, key, data = await _opened(request, dataset)
    found = await service.price(key, data, await read_bytes(request), _read)
    return Response(json.dumps(price_to_json(found)), media_type="application/json")


@router.post("/ask", **asks_once(QuestionBody, outputs.Answer))
async def ask(request: HttpRequest, dataset: str) -> Response:
    """Charge, then answer with noise."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        asked = _asked(checked(QuestionBody, parse(raw)), data, name)
        _affordable_size(data, key, asked)
        return data.asker(key).answer(asked)

    return await _charged(request, dataset, work, lambda answer: answer.to_json())


@router.post("/sql", **asks_once(SqlBody, outputs.Rows))
async def sql(request: HttpRequest, dataset: str) -> Response:
    """Charge, then answer a SELECT as a table of estimates with error bars."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = checked(SqlBody, parse(raw))
        select = parse_select(body.sql, data.table.schema, data.name)
        asked = Request(select.query, body.effort.effort(), name, body.sql)
        _affordable_size(data, key, asked)
        answer = data.asker(key).answer(asked)
        return table(finish(select, answer), answer)

    return await _charged(request, dataset, work, json.dumps)


@router.post("/select", **asks_once(SelectBody, outputs.Selection))
async def select(request: HttpRequest, dataset: str) -> Response:
    """Charge, then choose the candidate with about the largest total."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = checked(SelectBody, parse(raw))
        if (body.candidates is None) == (body.query is None):
            raise BadQuery("exactly one of candidates and query must be given.")
        oracle = data.asker(key)
        if body.candidates is not None:
            query: Query = Stack(tuple(map(as_query, body.candidates)))
        else:
            query = candidates_of(body.query, oracle)
        return oracle.choose(Request(query, body.effort.effort(), name), body.mechanism)

    return await _charged(request, dataset, work, lambda found: found.to_json())


@router.post("/run", **asks_once(RunBody, outputs.Finding))
async def run(request: HttpRequest, dataset: str) -> Response:
    """Charge, then run a procedure that no statistical query can express."""

    def work(raw: bytes, name: str | None, key: Key, data: Dataset) -> Any:
        body = checked(RunBody, parse(raw))
        return data.asker(key).perform(Request(procedure_of(body.procedure), body.effort.effort(), name))

    return await _charged(request, dataset, work, lambda found: found.to_json())


def table(rows: Any, answer: Answer) -> dict[str, Any]:
    """A SELECT's result as plain data."""
    columns, records = list(rows.columns), rows.to_dicts()
    known = {"confidence": rows.confidence, "cost": vars(rows.cost)}
    return {"columns": columns, "records": records, **known, "answer": json.loads(answer.to_json())}


def question_of(given: tuple[str, Any], schema: Schema, name: str) -> tuple[Query, str | None]:
    """A question in any of its three forms, as a query; and the text of a SELECT."""
    form, value = given
    if form == "query":
        return query_of(value), None
    if form == "question" and not is_select(value):
        return as_query(value), None
    return parse_select(value, schema, name).query, value


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
    start = request.state.start
    service, key, data = await _opened(request, dataset)
    name = idempotency_key(request)
    raw = await read_bytes(request)

    def once() -> tuple[str, Any]:
        try:
            found = work(raw, name, key, data)
        except AnswerLost:
            if name is None:
                raise
            found = _awaited(lambda: work(raw, name, key, data))
        data.book.charged()
        service.look_again(data)
        return written(found), found

    with service.running.one(key.id):
        text, found = await service.paced(start, once, len(raw))
    cost = getattr(found, "cost", None)
    request.state.charge = cost.seq if cost is not None else found["cost"]["seq"]
    return Response(text, media_type="application/json")


_TRIES, _PAUSE = 10, 0.2


def _awaited(again: Callable[[], Any]) -> Any:
    """A named request without a stored answer: lost, or still at work in another process or thread; wait a while."""
    for _ in range(_TRIES):
        time.sleep(_PAUSE)
        try:
            return again()
        except AnswerLost:
            continue
    raise AnswerLost


def _asked(body: QuestionBody, data: Dataset, name: str | None) -> Request:
    query, text = question_of(body.given(), data.table.schema, data.name)
    return Request(query, body.effort.effort(), name, text)


def _affordable_size(data: Dataset, key: Key, asked: Request) -> None:
    """Refuse what would fail or be too large before anything is charged."""
    size = int(np.size(data.price(key, asked).spread))
    if size > MOST_NUMBERS:
        raise BadQuery(f"an answer must have at most {MOST_NUMBERS:,} numbers. This one would have {size:,}.")


def _read(raw: bytes, data: Dataset) -> Request:
    return _asked(checked(QuestionBody, parse(raw)), data, None)
