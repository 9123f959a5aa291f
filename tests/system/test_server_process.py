"""Real server processes on loopback: start, stop, kill, share a ledger; the command line and the remote oracle."""

import datetime
import ipaddress
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import dodona as dd
from dodona.config import open_ledger
from dodona.errors import DodonaError, LedgerUnavailable, Refused
from tests.support.servers import Process, add_key, write_survey

SCHEMA = dd.Schema({"age": dd.Integer(0, 99), "smoker": dd.Flag()})
DODONA = Path(sys.executable).with_name("dodona")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    write_survey(tmp_path, {"age": rng.integers(0, 100, 300), "smoker": rng.random(300) < 0.3}, SCHEMA, {"epsilon": 10})
    return tmp_path


def dodona(*args, cwd, code=0, **env):
    whole = {**{k: v for k, v in os.environ.items() if k != "DODONA_KEY"}, "PYTHONWARNINGS": "error", **env}
    done = subprocess.run(
        [DODONA, *map(str, args)], cwd=cwd, env=whole, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, (args, done.stdout, done.stderr)
    return done


def test_a_curator_starts_it_and_an_analyst_asks(folder):
    survey = folder / "people.toml"
    server = Process(folder, [survey])
    try:
        assert f"serving people at {server.url}" in server.out
        (token,) = re.findall(r"ddn_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", server.out)
        assert dd.connect(server.url, key=token).left == 10

        made = dodona("key", "add", "analyst-1", "--share", "0.3", cwd=folder)
        key = made.stdout.strip()
        (folder / "my.key").write_text(key)
        listed = dodona("key", "list", cwd=folder).stdout
        assert "analyst-1" in listed
        assert key.split("_", 2)[2] not in listed

        at = ("--server", server.url)
        price = dodona("price", "people", "age >= 65", "--share", "0.01", *at, cwd=folder, DODONA_KEY=key).stdout
        assert "Affordable" in price
        asked = dodona(
            "ask", "people", "age >= 65", "--share", "0.01", *at, "--key-file", "my.key", "--json", cwd=folder
        )
        assert json.loads(asked.stdout)["cost"]["seq"] >= 1
        table = dodona(
            *("sql", "people", "SELECT smoker, COUNT(*) AS n FROM people GROUP BY smoker", "--share", "0.1"),
            *(*at, "--key-file", "my.key"),
            cwd=folder,
        )
        assert "n" in table.stdout
        spent = dodona("ask", "people", "age >= 65", "--share", "0.25", *at, cwd=folder, code=3, DODONA_KEY=key)
        assert "quota" in spent.stderr
        dodona("ask", "people", "age >= 65", "--share", "0.1", *at, cwd=folder, code=2)  # no key
        (id_,) = [line.split()[0] for line in listed.splitlines() if "analyst-1" in line]
        dodona("key", "revoke", id_, cwd=folder)
        refused = dodona("ask", "people", "age", "--share", "0.01", *at, cwd=folder, code=2, DODONA_KEY=key)
        assert key not in refused.stderr
    finally:
        assert server.stop() == 0
    again = Process(folder, [survey])
    assert "ddn_" not in again.out  # shown once
    assert again.stop() == 0
    log = (folder / "audit.log").read_text()
    assert key.split("_", 2)[2] not in log
    assert all(json.loads(line)["pid"] for line in log.splitlines())


def test_many_clients_of_two_processes_spend_exactly_the_budget(folder):
    """Five analysts with a fifth each, over two servers of two workers: 40 questions of 1/32 each, and 32 fit."""
    survey = folder / "people.toml"
    keys = [add_key(folder, f"analyst {i}", "1/5") for i in range(5)]
    first = Process(folder, [survey], "--workers", "2")
    second = Process(folder, [survey])
    got, refused = [], []

    def ask(number):
        oracles = [dd.connect(server.url, key=keys[number]) for server in (first, second)]
        for turn in range(8):
            try:
                name = f"{number}/{turn}"
                answer = oracles[turn % 2].ask("age >= 50", share="1/32", request_id=name)
                again = oracles[1 - turn % 2].ask("age >= 50", share="1/32", request_id=name)
                assert again.to_json() == answer.to_json()
                got.append(answer)
            except Refused as error:
                refused.append(error)

    try:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        codes = [first.stop(), second.stop()]
    assert codes == [0, 0]
    assert len(got) == 30  # six of 1/32 fit in each fifth
    assert len(refused) == 10
    assert len({answer.cost.hash for answer in got}) == 30
    with open_ledger(folder / "people.ledger") as ledger:
        (each,) = {entry.amount for entry in ledger.entries() if entry.kind == "charge"}
        assert 30 * each == ledger.verify().spent <= ledger.genesis.budget.capacity


def _wait_for_more(answers):
    before, deadline = len(answers), time.monotonic() + 120
    while len(answers) == before:
        assert time.monotonic() < deadline, "a server that is up does not answer"
        time.sleep(0.005)


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_killed_at_any_moment_nothing_is_overspent_and_no_answer_lacks_its_charge(folder, kills):
    """kill -9 while clients ask and retry by name; every answer that arrived is in the ledger, word for word."""
    survey = folder / "people.toml"
    keys = [add_key(folder, f"analyst {i}", "1/4") for i in range(4)]
    answers, stop, lost = {}, threading.Event(), []
    server = Process(folder, [survey])
    port = server.port

    def ask(number):
        turn = 0
        while not stop.is_set():
            name = f"{number}/{turn}"
            try:
                oracle = dd.connect(f"http://127.0.0.1:{port}", key=keys[number])
                answers[(number, turn)] = oracle.ask("smoker", epsilon="1/1000", request_id=name)
            except LedgerUnavailable:
                continue  # the server is away: the same request again
            except DodonaError:
                lost.append(name)  # charged, and killed before its answer was stored: the allowed direction
            turn += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(kills)
    for number in range(kills):
        if number % 2:  # every other server lives until it has answered, however busy the machine is
            _wait_for_more(answers)
        time.sleep(float(rng.uniform(0, 0.6)))
        server.kill()
        server = Process(folder, [survey], port=port)
    _wait_for_more(answers)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert server.stop() == 0
    with open_ledger(folder / "people.ledger") as ledger:
        verified = ledger.verify()
        assert verified.spent <= ledger.genesis.budget.capacity
        charges = {}
        for start in range(1, verified.entries + 1, 1000):
            charges |= {e.request_id: e for e in ledger.entries(start, 1000) if e.kind == "charge"}
        assert len(answers) > kills // 2
        for (number, turn), answer in answers.items():
            entry = charges[f"{number}/{turn}"]
            assert entry.analyst == f"analyst {number}"
            assert ledger.answer(entry.seq) == answer.to_json()
        assert set(charges) >= {f"{number}/{turn}" for number, turn in answers}
        assert len(lost) <= 4 * kills
    print(f"M8: {kills} kills of a server, {len(answers)} answers, {len(lost)} charged without one; 0 overspent")


def test_told_to_stop_it_finishes_what_is_at_work(folder):
    key = add_key(folder, "ann", "0.5")
    server = Process(folder, [folder / "people.toml"])
    oracle, got = dd.connect(server.url, key=key), []
    oracle.ask("age", share="0.01")
    asking = threading.Thread(target=lambda: got.append(oracle.ask("smoker", share="0.01")))
    asking.start()
    with open_ledger(folder / "people.ledger") as ledger:
        end = time.monotonic() + 60
        while sum(entry.kind == "charge" for entry in ledger.entries()) < 2 and time.monotonic() < end:
            time.sleep(0.005)  # answers leave after a tick of 0.1 s: once it is charged it is at work
    assert server.stop() == 0
    asking.join(60)
    assert len(got) == 1


def test_it_listens_beyond_loopback_only_with_tls_or_a_flag(folder):
    refused = dodona("serve", "people.toml", "--host", "0.0.0.0", cwd=folder, code=2)
    assert "--tls-cert" in refused.stderr
    refused = dodona("serve", "people.toml", "--tls-cert", "a.pem", cwd=folder, code=2)
    assert "both" in refused.stderr
    seeded = dodona("serve", "people.toml", cwd=folder, code=2, DODONA_SEED="1")
    assert "DODONA_SEED" in seeded.stderr
    dodona("serve", "absent.toml", cwd=folder, code=2)
    with pytest.raises(Refused, match="in the clear"):
        dd.connect("http://192.0.2.1:8400", key="ddn_x")
    for odd in ("ftp://127.0.0.1", "http://me:ddn_secret@127.0.0.1", "http://127.0.0.1/?key=1", "http://127.0.0.1/v1"):
        with pytest.raises(Refused):
            dd.connect(odd, key="ddn_x")
    with pytest.raises(LedgerUnavailable, match="cannot be reached"):
        dd.connect("http://127.0.0.1:9", key="ddn_x")


def certificate(folder):
    """A self-signed one for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    own = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(own, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)


def test_tls(folder):
    certificate(folder)
    key = add_key(folder, "ann", "0.5")
    tls = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    server = Process(folder, [folder / "people.toml"], *tls)
    try:
        url = server.url.replace("http://", "https://")
        oracle = dd.connect(url, key=key, certificates=str(folder / "cert.pem"))
        assert oracle.ask("age >= 0", share="0.4").total > 100
        with pytest.raises(Refused, match="certificate"):
            dd.connect(url, key=key)  # nobody we trust signed it
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"{server.url}/healthz", timeout=60)  # no plain HTTP beside it
        del oracle  # hangs up
    finally:
        assert server.stop() == 0


@pytest.fixture
def postgres():
    from tests.support.postgres import PostgresMissing, PostgresServer

    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


def test_two_processes_share_a_ledger_in_postgresql(folder, postgres):
    """One is killed in the middle of it; the other goes on, and the sums hold. Without the database, health is red."""
    survey, place = folder / "people.toml", postgres.url()
    keys = [add_key(folder, f"analyst {i}", "1/2") for i in range(2)]
    first, second = (Process(folder, [survey], ledger=place) for _ in range(2))
    got = []

    def ask(number):
        oracle = dd.connect((first if number == 0 else second).url, key=keys[number])
        for turn in range(8):
            try:
                got.append((number, turn, oracle.ask("age >= 50", share="1/20", request_id=f"{number}/{turn}")))
            except LedgerUnavailable:
                return

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    while not any(number == 0 for number, _, _ in got):
        time.sleep(0.01)
    first.kill()
    for thread in threads:
        thread.join()
    try:
        assert sum(number == 1 for number, _, _ in got) == 8
        late = dd.connect(second.url, key=keys[0])
        for number, turn, answer in got:
            if number == 0:  # what the killed one answered, the other one knows
                again = late.ask("age >= 50", share="1/20", request_id=f"0/{turn}")
                assert again.to_json() == answer.to_json()
        with open_ledger(f"{place}#people") as ledger:
            verified = ledger.verify()
            entries = [entry for entry in ledger.entries() if entry.kind == "charge"]
            assert sum(entry.amount for entry in entries) == verified.spent <= ledger.genesis.budget.capacity
            assert {entry.hash for entry in entries} >= {answer.cost.hash for _, _, answer in got}
        postgres.stop()
        with pytest.raises(urllib.error.HTTPError) as red:
            urllib.request.urlopen(f"{second.url}/healthz", timeout=30)
        assert red.value.code == 503
        red.value.close()
    finally:
        second.kill()
    assert postgres.password not in (folder / "audit.log").read_text()
