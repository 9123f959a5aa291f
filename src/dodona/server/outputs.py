"""The shapes of responses, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, RootModel

Numbers = float | list[Any]


class Cost(BaseModel):
    """What was, or would be, charged, and the receipt."""

    amount: float
    unit: str
    share: float
    left: float
    neighbours: str
    mechanism: str
    seq: int | None
    hash: str | None


class Price(BaseModel):
    """What a question would cost; one number stands for an array of equal ones."""

    question: str
    cost: Cost
    shape: list[int]
    spread: Numbers
    margin: Numbers
    tolerance: Numbers
    confidence: float
    rows: int | None
    sensitivity: str
    affordable: bool


class Segment(BaseModel):
    """A part of an answer: its shape, and the keys along each axis."""

    shape: list[int]
    labels: list[list[str | int | bool]]


class Answer(BaseModel):
    """Noisy sums over rows with their error."""

    question: str
    total: Numbers
    spread: Numbers
    margin: Numbers
    confidence: float
    rows: int | None
    shape: list[int]
    segments: list[Segment]
    cost: Cost


class Rows(BaseModel):
    """A SELECT's table: each estimate by its column's name, its margin beside it as NAME ±."""

    columns: list[str]
    records: list[dict[str, Any]]
    confidence: float
    cost: Cost
    answer: Answer


class Free(RootModel[Answer | Rows]):
    """An answer from what is published."""


class Selection(BaseModel):
    """The chosen candidate."""

    index: int
    question: str
    margin: float
    confidence: float
    rows: int | None
    cost: Cost


class Finding(BaseModel):
    """What a procedure found."""

    value: Any
    question: str
    rows: int | None
    cost: Cost


class Named(BaseModel):
    """A dataset's name."""

    name: str


class DatasetPage(BaseModel):
    """Datasets the key opens."""

    items: list[Named]
    next: str | None


class Asker(BaseModel):
    """The caller, as one dataset's ledger knows them."""

    name: str
    role: str
    share: str | None
    spent: float
    left: float


class Dataset(BaseModel):
    """The public facts of a dataset, and what the caller can spend on it."""

    name: str
    columns: dict[str, Any] = Field(alias="schema")
    rows: int | None
    neighbours: str
    unit: str
    budget: dict[str, Any]
    left: float
    analyst: Asker


class Charge(BaseModel):
    """One charge of a ledger."""

    entry: int
    time: str
    analyst: str
    text: str
    cost: float
    share: float


class LedgerPage(BaseModel):
    """Charges in order, and totals."""

    items: list[Charge]
    next: int | None
    unit: str
    total: float
    spent: float
    left: float


class Key(BaseModel):
    """A key without its secret."""

    id: str
    analyst: str
    role: str
    share: str | None
    datasets: list[str] | None
    created: str
    expires: str | None
    revoked: str | None


class NewKey(Key):
    """A key with its token, shown this once."""

    token: str


class KeyPage(BaseModel):
    """All keys."""

    items: list[Key]
    next: str | None


class Synopsis(BaseModel):
    """What is known of a published synopsis."""

    id: str
    about: str
    accuracy: str
    method: str
    rows: int | None
    cost: Cost
    columns: list[str]


class SynopsisPage(BaseModel):
    """Published synopses."""

    items: list[Synopsis]
    next: str | None


class Progress(BaseModel):
    """How far a release is: questions asked, the share of the budget spent, and the most it may spend."""

    asked: int
    share: float
    most: float | None


class Release(BaseModel):
    """A release: running, done, refused or lost."""

    id: str
    kind: str
    state: str
    progress: Progress
    synopsis: str | None
    detail: str | None


class ReleaseCost(BaseModel):
    """What a release would spend at most, and what would be left after it."""

    amount: float
    unit: str
    share: float
    left: float


class Promise(BaseModel):
    """One method of a release: its predicted error in rows, and what that is an error of."""

    method: str
    error: float | None
    words: str


class ReleasePrice(BaseModel):
    """A release before anything is spent; the first method is the one that would be taken."""

    kind: str
    cost: ReleaseCost
    affordable: bool
    methods: list[Promise]


class ReleasePage(BaseModel):
    """All releases of a dataset."""

    items: list[Release]
    next: str | None


class Started(BaseModel):
    """A release that has begun."""

    id: str


class Health(BaseModel):
    """Whether every ledger can be used."""

    status: str


class Problem(BaseModel):
    """Why a request was refused or failed."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    charged: bool | None
    price: float | None = None
    left: float | None = None
    unit: str | None = None
