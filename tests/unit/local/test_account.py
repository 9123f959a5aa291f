"""A person's account is spent once: by all handles, forks, processes, pickles and saved copies together."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from itertools import product

import pytest

from dodona.errors import (
    BadEffort,
    BudgetSpent,
    DodonaError,
    LedgerCorrupt,
    LedgerError,
    LedgerUnavailable,
    Refused,
    Unsupported,
)
from dodona.local import Client, Collector, invitation
from dodona.local.account import FileAccount
from dodona.privacy.budget import UNITS, Budget
from dodona.privacy.ledger.sqlite import SqliteLedger
from dodona.query.statistic import Partition, Value, as_expr, bucket
from dodona.testing.oracles import SCHEMA, SeededBits

TEXT = invitation(Value(as_expr("smoker")), SCHEMA, 0.4)  # of a total of 1, two fit
MANY = invitation(Partition(bucket("income", [0, *range(2, 500, 2), 500]), Value(as_expr("1"))), SCHEMA, 0.4)
STRONG = invitation(Value(as_expr("smoker")), SCHEMA, 1)
ME = {"smoker": True}


def reports(client, most=4):
    """How many reports leave a client that is asked until it refuses."""
    for made in range(most):
        try:
            assert Collector(TEXT).add(client.report(TEXT, ME))
        except DodonaError:
            return made
    return most


def in_a_fork(work):
    """What ``work`` returns in a forked child, a number up to 255."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def place(tmp_path):
    return tmp_path / "me.account"


def test_a_total_is_never_passed(place):
    for client in (Client(1), Client(1, account=place, create=True)):
        client.report(TEXT, ME)
        client.report(TEXT, ME)
        with pytest.raises(BudgetSpent, match=r"0\.2 of 1 is left"):
            client.report(TEXT, ME)
        assert client.left == pytest.approx(0.2)


def test_forked_copies_of_a_client_spend_one_account(place):
    for client, there in ((Client(1), 0), (Client(1, account=place, create=True), 1)):
        client.report(TEXT, ME)
        assert [in_a_fork(lambda c=client: reports(c)) for _ in range(3)] == [there, 0, 0]
        assert reports(client) == 1 - there


def test_a_fork_says_where_an_account_in_memory_belongs():
    client = Client(1)

    def child():
        with pytest.raises(Unsupported, match="belongs to the process that made it"):
            client.report(TEXT, ME)
        return reports(Client(1))

    assert in_a_fork(child) == 2


def test_a_saved_client_loaded_many_times_spends_one_account(place):
    saved = Client(1, account=place, create=True).save()
    assert json.loads(saved) == {"account": str(place)}
    assert sum(reports(Client.load(saved)) for _ in range(4)) == 2


def test_what_would_copy_an_account_in_memory_is_refused():
    client = Client(1)
    for act in (copy.copy, copy.deepcopy, pickle.dumps, lambda c: c.save(), lambda c: copy.copy(c._account)):
        with pytest.raises(Unsupported, match="would spend the same remainder"):
            act(client)


def test_a_copied_or_pickled_client_spends_the_same_file(place):
    client = Client(1, account=place, create=True)
    copies = [copy.copy(client), copy.deepcopy(client), pickle.loads(pickle.dumps(client)), client]
    assert sum(map(reports, copies)) == 2


def test_threads_of_one_client_spend_one_account(place):
    for client in (Client(1), Client(1, account=place, create=True)):
        made = []
        threads = [threading.Thread(target=lambda c=client, m=made: m.append(reports(c))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(made) == 2


def test_processes_that_know_only_the_place_spend_one_account(place):
    Client(1, account=place, create=True)
    program = (
        "import sys\nfrom dodona.local import Client\nfrom dodona.errors import BudgetSpent\n"
        "client, made = Client(account=sys.argv[1]), 0\n"
        "try:\n    while True:\n        client.report(sys.argv[2], {'smoker': True})\n        made += 1\n"
        "except BudgetSpent:\n    print(made)\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, place, TEXT], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert sum(int(process.communicate(timeout=60)[0]) for process in started) == 2


def ended(*_):
    raise KeyboardInterrupt


def permanent(client, name="2026", me=True):
    return client.report(MANY, {"income": 400.0 if me else 3.0}, permanent=name)


def test_a_permanent_report_is_the_same_for_good_and_charged_once(place):
    """By every handle, fork, pickle and later answer; of some hundred reports there could be, two alike are no luck."""
    for client in (Client(1), Client(1, account=place, create=True)):
        first = permanent(client)
        again = [permanent(client, me=turn % 2 == 0) for turn in range(20)]
        assert set(again) == {first}
        assert client.left == pytest.approx(0.6)
    others = [Client(account=place), pickle.loads(pickle.dumps(client)), Client.load(client.save())]
    assert {permanent(other) for other in others} == {first}
    assert in_a_fork(lambda: int(permanent(client, me=False) == first)) == 1
    assert Client(account=place).left == pytest.approx(0.6)
    assert Collector(MANY).add(first)


def test_a_new_period_is_a_new_report_and_a_new_charge(place):
    client = Client(1, account=place, create=True)
    made = {permanent(client, name) for name in ("2026", "2027") for _ in range(3)}
    assert len(made) == 2
    assert client.left == pytest.approx(0.2)
    with pytest.raises(BudgetSpent):
        permanent(client, "2028")
    assert permanent(client, "2027") in made  # what was paid for stays
    assert permanent(Client(account=place)) in made


def test_permanent_and_other_reports_spend_one_account(place):
    client = Client(1, account=place, create=True)
    permanent(client)
    assert reports(client) == 1
    permanent(client)
    for wrong in ("", "x" * 300, 5):
        with pytest.raises(BadEffort, match="name of a period"):
            permanent(client, wrong)


def test_a_permanent_report_that_was_never_kept_is_charged_anew(place, monkeypatch):
    """The process ended between charge and keeping: what it drew may have been seen, so another one is paid for."""
    client = Client(1, account=place, create=True)
    with monkeypatch.context() as patch:
        patch.setattr(type(client._account._ledger), "store_answer", ended)
        with pytest.raises(KeyboardInterrupt):
            permanent(client)
    assert client.left == pytest.approx(0.6)
    kept = permanent(client)
    assert client.left == pytest.approx(0.2)
    assert permanent(Client(account=place)) == kept
    assert client.left == pytest.approx(0.2)


def test_threads_share_one_permanent_report():
    client, made = Client(1), []
    threads = [threading.Thread(target=lambda: made.append(permanent(client))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert client.left == pytest.approx(0.6)


def test_means_over_time_count_the_same_reports_in_each_period():
    """Two periods of one name: the second collector says what the first did, for nothing; a new name tells more."""
    n = 400
    people = [Client(2, bits=SeededBits(seed)) for seed in range(n)]
    told = []
    for period, name in (("spring", "a"), ("summer", "a"), ("autumn", "b")):
        collector = Collector(STRONG)
        for number, client in enumerate(people):
            smokes = number % 4 == 0 or (period != "spring" and number % 4 == 1)
            assert collector.add(client.report(STRONG, {"smoker": smokes}, permanent=name))
        told.append(float(collector.collected().mean))
    assert told[0] == told[1]  # the same reports: nothing new is told, nothing is averaged away
    assert abs(told[0] - 0.25) < 0.2
    assert told[2] - told[0] == pytest.approx(0.25, abs=0.2)
    assert all(client.left == pytest.approx(0) for client in people)


def test_a_charge_is_in_the_file_before_anything_is_computed(place, monkeypatch):
    client, seen = Client(1, account=place, create=True), []
    monkeypatch.setattr("dodona.local.client.holdings_of", lambda *_: seen.append(Client(account=place).left))
    with pytest.raises(AttributeError):  # nothing was computed
        client.report(TEXT, ME)
    assert seen == [pytest.approx(0.6)]


def test_opening_never_makes_an_account(place, tmp_path, monkeypatch):
    with pytest.raises(LedgerUnavailable, match="create=True"):
        Client(1, account=place)
    with pytest.raises(LedgerUnavailable, match="create=True"):
        Client.load(json.dumps({"account": str(place)}))
    assert list(tmp_path.iterdir()) == []
    Client(1, account=place, create=True).report(TEXT, ME)
    with pytest.raises(Refused, match="made once"):
        Client(1, account=place, create=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.raises(LedgerUnavailable):
        Client(account="me.account")
    place.unlink()
    with pytest.raises(LedgerCorrupt, match=r"older or other|none is made"):  # the record beside it remembers
        Client(1, account=place, create=True)
    place.symlink_to(tmp_path / "nothing")
    with pytest.raises(LedgerError):
        Client(account=place)


def test_a_copy_of_an_account_at_another_place_is_refused(place, tmp_path):
    Client(1, account=place, create=True).report(TEXT, ME)
    copied, linked = tmp_path / "copy.account", tmp_path / "hard.account"
    shutil.copy(place, copied)
    os.link(place, linked)
    for other in (copied, linked):
        with pytest.raises(Refused, match="made elsewhere"):
            Client(account=other)
    other = tmp_path / "soft.account"
    other.symlink_to(place)
    assert Client(account=other).left == pytest.approx(0.6)  # the same file, so the same sum


def test_a_ledger_of_a_table_is_no_account(place):
    SqliteLedger.open(place, Budget(epsilon=1), population="a table", create=True).close()
    with pytest.raises(Refused, match="another ledger"):
        Client(account=place)


def test_an_account_put_back_to_an_older_copy_is_refused(place, tmp_path):
    client = Client(1, account=place, create=True)
    shutil.copy(place, tmp_path / "old")
    client.report(TEXT, ME)
    shutil.copy(tmp_path / "old", place)
    with pytest.raises(LedgerCorrupt):
        Client(account=place)


def test_a_total_is_for_ever(place):
    Client(1, account=place, create=True)
    assert Client(1, account=place).left == 1
    with pytest.raises(BadEffort, match="for ever"):
        Client(2, account=place)
    with pytest.raises(BadEffort, match="total"):
        Client()
    with pytest.raises(BadEffort, match="place"):
        Client(1, create=True)


def test_a_sum_saved_by_an_earlier_version_needs_a_place_and_keeps_what_was_spent(place):
    old = json.dumps({"total": "1", "spent": 6 * UNITS // 10})
    with pytest.raises(BadEffort, match="then delete the text"):
        Client.load(old)
    client = Client.load(old, account=place)
    assert client.left == pytest.approx(0.4)
    with pytest.raises(Refused, match="made once"):  # loaded again, it would be spent again
        Client.load(old, account=place)
    assert reports(client) + reports(Client.load(client.save())) == 1
    with pytest.raises(BadEffort, match="nothing is left"):
        Client.load(json.dumps({"total": "1", "spent": UNITS}), account=place.with_name("new"))
    for wrong in ("", "{}", "[]", '{"total": "1", "spent": -4}', '{"total": "1", "spent": 1e3}', '{"total": "1"}'):
        with pytest.raises(BadEffort):
            Client.load(wrong, account=place.with_name("new"))
    assert not place.with_name("new").exists()


def _open_again(clients, place):
    clients.append(Client(account=place))


def _save_and_load(clients, place):
    clients.append(Client.load(clients[-1].save()))


def _pickle(clients, place):
    clients.append(pickle.loads(pickle.dumps(clients[0])))


def _restart(clients, place):
    clients[:] = [Client(account=place)]


HISTORY = {"open": _open_again, "save": _save_and_load, "pickle": _pickle, "restart": _restart}


@pytest.mark.parametrize("length", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_every_short_history_of_handles_forks_and_restarts_keeps_the_total(tmp_path, length):
    """All histories of so many steps over one account; reports are counted where they leave, in forks as well."""
    for number, history in enumerate(product([*HISTORY, "report", "fork"], repeat=length)):
        place = tmp_path / f"{number}.account"
        clients = [Client("0.9", account=place, create=True)]
        left = 0
        for step in history:
            if step == "report":
                left += sum(reports(client, 1) for client in clients)
            elif step == "fork":
                left += in_a_fork(lambda c=clients: reports(c[-1], 1))
            else:
                HISTORY[step](clients, place)
        left += sum(reports(client) for client in clients)
        assert left == 2, history
        assert FileAccount.open(place).left() == UNITS // 10, history
