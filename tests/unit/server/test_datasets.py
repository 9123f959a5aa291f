from fractions import Fraction

import pytest

from dodona.privacy import Budget
from dodona.privacy.ledger import KEYS, UNLIMITED
from dodona.privacy.ledger.sqlite import SqliteLedger
from dodona.server.datasets import FRESH, STALE, Book, Spending
from dodona.server.guard import Metrics


@pytest.fixture
def ledger():
    with SqliteLedger.open(None, Budget(epsilon=Fraction(1, 1000)), atoms=3) as ledger:
        yield ledger


def charge(ledger, analyst, amount, scope=None, name=[0]):  # noqa: B006 - a counter
    name[0] += 1
    return ledger.charge(amount=amount, analyst=analyst, request_id=str(name[0]), what="q", scope=scope)


def test_accounts_follow_the_ledger(ledger):
    book = Book(ledger)
    assert book.account("ann").quota == UNLIMITED
    ledger.grant("ann", 100)
    charge(ledger, "ann", 30)
    charge(ledger, "bob", 7)
    assert (book.account("ann", now=True).spent, book.account("ann").left) == (30, 70)
    ledger.grant("ann", 10)
    assert book.account("ann", now=True).left == 0


def test_left_is_at_most_a_moment_old(ledger):
    now = [0.0]
    book = Book(ledger, clock=lambda: now[0])
    before = book.left_to("ann")
    assert book.glance("ann", None) == before
    charge(ledger, "ann", 50)
    assert book.left_to("ann") == before
    now[0] += FRESH * 1.01
    assert book.left() == before - 50
    now[0] += STALE * 1.01
    assert book.glance("ann", None) is None
    assert book.left_to("ann") == before - 50
    charge(ledger, "ann", 20, (1,))
    now[0] += FRESH * 1.01
    assert (book.left((0,)), book.left((1,)), book.left()) == (before - 50, before - 70, before - 70)


def test_what_is_a_moment_old_is_glanced_at_while_one_alone_reads_anew(ledger):
    now = [0.0]
    book = Book(ledger, clock=lambda: now[0])
    before = book.left_to("ann"), book.left_to("ann", (1,))
    assert not book.due()
    charge(ledger, "ann", 50, (1,))
    now[0] += FRESH
    assert book.due()
    assert not book.due()  # one is enough
    assert (book.glance("ann", None), book.glance("ann", (1,))) == before
    book.refresh()
    assert (book.glance("ann", None), book.glance("ann", (1,))) == (before[0] - 50, before[1] - 50)
    assert not book.due()
    charge(ledger, "ann", 1)
    book.charged()  # by this process: it need not wait until its reading is old
    assert book.due()
    book.refresh()
    assert book.glance("ann", None) == before[0] - 51


def test_a_reader_that_failed_leaves_the_next_one_free_to_read(ledger, monkeypatch):
    now = [0.0]
    book = Book(ledger, clock=lambda: now[0])
    book.left_to("ann")
    now[0] += FRESH
    with monkeypatch.context() as broken:
        broken.setattr(ledger, "entries", lambda *_: 1 / 0)
        assert book.due()
        with pytest.raises(ZeroDivisionError):
            book.refresh()
    assert book.due()
    book.refresh()
    assert not book.due()


def test_pages_of_one_analyst_and_of_all(ledger):
    book = Book(ledger)
    names = ["ann", "bob", "bob", "ann", "ann"] * 3
    seqs = {"ann": [], "bob": []}
    for name in names:
        made = charge(ledger, name, 1)
        ledger.store_answer(made.entry.seq, "{}")  # entries of other kinds lie between
        seqs[name].append(made.entry.seq)
    assert [entry.seq for _, entry in book.page("ann", 0, 100)] == seqs["ann"]
    assert [(number, entry.seq) for number, entry in book.page("ann", 3, 2)] == [
        (4, seqs["ann"][3]),
        (5, seqs["ann"][4]),
    ]
    assert all(number == entry.number for number, entry in book.page("bob", 0, 100))
    everyones = sorted(seqs["ann"] + seqs["bob"])
    assert [(number, entry.seq) for number, entry in book.page(None, 0, 100)] == [(seq, seq) for seq in everyones]
    assert book.page("cyd", 0, 10) == []
    assert book.page(None, 10**9, 10) == []


def test_metrics_are_prometheus_text():
    metrics = Metrics()
    metrics.note("GET", '/a"b\\\n', 200, 0.004)
    metrics.note("GET", '/a"b\\\n', 200, 7.0)
    text = metrics.text([("<img>", "rho", 0.5, 0.25)])
    assert 'route="/a\\"b\\\\\\n",status="200"} 2' in text
    assert 'le="0.005"} 1' in text
    assert 'le="+Inf"} 2' in text
    assert 'dataset="<img>",unit="rho"} 0.25' in text


def test_delta_for_keys_is_counted_apart():
    budget = Budget(epsilon=1, delta=1e-6, keys=1e-7)
    with SqliteLedger.open(None, budget) as ledger:
        book = Book(ledger)
        ledger.grant("ann", 100, KEYS)
        ledger.charge(amount=7, analyst="ann", request_id="k", what="keys", keys=40)
        charge(ledger, "ann", 5)
        assert (book.keys("ann"), book.keys("bob").left) == (Spending(40, 100), UNLIMITED)
        assert (book.account("ann", now=True).spent, book.account("ann").quota) == (12, UNLIMITED)
