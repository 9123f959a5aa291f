"""V48: a process killed with SIGKILL anywhere between question and answer: no answer without its durable charge."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost

CHILD = """
import json, os, signal, sys
import numpy as np
import dodona as dd
from dodona.privacy.ledger.sqlite import SqliteLedger

path, point = sys.argv[1:]
table = dd.Table({"x": np.arange(100.0)}, dd.Schema({"x": dd.Real(0, 100)}), name="t")

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    setattr(owner, name, die)

def after(owner, name):
    real = getattr(owner, name)
    def wrapped(*args, **kwargs):
        real(*args, **kwargs)
        die()
    setattr(owner, name, wrapped)

curator = dd.Curator(table, dd.Budget(epsilon=1), ledger=path, create=True)
points = {
    "before the charge": lambda: before(SqliteLedger, "charge"),
    "after the charge": lambda: after(SqliteLedger, "charge"),
    "before the rows": lambda: before(table.engine, "totals"),
    "after the rows": lambda: after(table.engine, "totals"),
    "before the answer is stored": lambda: before(SqliteLedger, "store_answer"),
    "after the answer is stored": lambda: after(SqliteLedger, "store_answer"),
    "nowhere": lambda: None,
}
points[point]()
answer = curator.ask("x", epsilon="1/4", request_id="r")
print(json.dumps(answer.total), flush=True)
"""
CHARGED = {
    "before the charge": 0,
    "after the charge": 1,
    "before the rows": 1,
    "after the rows": 1,
    "before the answer is stored": 1,
    "after the answer is stored": 1,
    "nowhere": 1,
}


@pytest.mark.parametrize("point", CHARGED)
def test_v48_killed_between_question_and_answer(tmp_path, point):
    path = tmp_path / "t.ledger"
    done = subprocess.run([sys.executable, "-c", CHILD, str(path), point], capture_output=True, timeout=60, check=False)
    answered = bool(done.stdout)
    assert answered == (point == "nowhere"), done.stderr.decode()
    assert done.returncode == (0 if answered else -signal.SIGKILL)
    table = dd.Table({"x": np.arange(100.0)}, dd.Schema({"x": dd.Real(0, 100)}), name="t")
    curator = dd.Curator(table, dd.Budget(epsilon=1), ledger=path)
    curator.ledger.verify()
    assert curator.left == 1 - CHARGED[point] / 4
    if point in ("nowhere", "after the answer is stored"):
        again = curator.ask("x", epsilon="1/4", request_id="r")
        assert not answered or again.total == json.loads(done.stdout)
        assert curator.left == 0.75, "a retry finds the stored answer and costs nothing"
    elif CHARGED[point]:
        with pytest.raises(AnswerLost):
            curator.ask("x", epsilon="1/4", request_id="r")
        assert curator.left == 0.75, "an unknown outcome counts as spent, once"
    else:
        curator.ask("x", epsilon="1/4", request_id="r")
        assert curator.left == 0.75
