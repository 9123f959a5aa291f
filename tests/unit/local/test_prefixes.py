"""Reports on prefixes: exact on circles of 2^48 points, unbiased, within their margins, and frequent texts found."""

import json
from fractions import Fraction

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import BadQuery, Unsupported
from dodona.local import Collector, invitation
from dodona.local.client import Client
from dodona.local.holdings import Holdings
from dodona.local.prefixes import lengths_of
from dodona.mechanisms.fixed import exp_bracket, is_prime, times
from dodona.mechanisms.response import WindowResponse
from dodona.testing import SeededBits

CODE = release.TextCode(" abcdefghijklmnopqrstuvwxyz", 6)
SCHEMA = dd.Schema({"answer": dd.Integer(0, 2**30 - 1, missing=0)})
WORDS = ["apple", "pear", "cherry", "banana", "fig"]


def invited(epsilon=2, schema=SCHEMA):
    return invitation(dd.Value(dd.parse("answer")), schema, epsilon, randomiser="prefixes")


def collected(held, epsilon, seed):
    """All people's reports, as their devices make them."""
    collector = Collector(invited(epsilon))
    scheme = collector.scheme
    numbers = held.astype(float), np.zeros(len(held), dtype=bool)
    everyone = Holdings(scheme.program, dict.fromkeys(scheme.program.roots(), numbers), len(held))
    collector._tallies = scheme.tallies(scheme.respond(everyone, SeededBits(seed)))
    return dd.Collected(collector, SCHEMA)


def people(n, seed):
    rng = np.random.default_rng(seed)
    words = WORDS + ["".join(rng.choice(list("xyzuvw"), 6)) for _ in range(500)]
    weights = 1 / np.arange(1, len(words) + 1) ** 1.3
    return CODE.encode([words[i] for i in rng.choice(len(words), n, p=weights / weights.sum())])


@pytest.mark.parametrize("p", [2**31 - 1, 2**33 + 17, 2**48 + 21])
def test_products_beyond_64_bits_are_exact(p):
    assert is_prime(p)
    rng = np.random.default_rng(0)
    a, b = (np.concatenate([rng.integers(0, p, 20_000), [0, 1, p - 1, p - 2, p // 2]]) for _ in range(2))
    assert times(a, b, p).tolist() == [int(x) * int(y) % p for x, y in zip(a, b, strict=True)]


def test_primes_are_those_of_trial_division():
    slow = [n for n in range(2, 3000) if all(n % f for f in range(2, int(n**0.5) + 1))]
    assert [n for n in range(3000) if n > 1 and is_prime(n)] == slow
    # Composites that pass for some of the bases (Jaeschke 1993), and the square of a prime.
    assert not any(map(is_prime, (2047, 1373653, 25326001, 3215031751, 2152302898747, 3474749660383, 16777213**2)))


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4), Fraction(10)])
@pytest.mark.parametrize("bits", [10, 30, 48])
def test_a_report_is_at_most_e_to_the_epsilon_likelier(bits, epsilon):
    response = WindowResponse.best(1 << bits, epsilon)
    a, c = response.draw.odds
    assert Fraction(a, c) <= Fraction(1 << 128, exp_bracket(epsilon, 128)[0])
    assert response.width * a + (response.modulus - response.width) * c == response.draw.total < 2**62
    for value, multiplier, offset in ((0, 1, 0), (2**bits - 1, response.modulus - 1, response.width - 1), (7, 3, -1)):
        report = (multiplier * value + offset) % response.modulus
        inside = 0 <= offset < response.width
        assert response.probability(report, value, multiplier) == Fraction(a if inside else c, response.draw.total)


@pytest.mark.parametrize("bits", [20, 48])
def test_who_is_held_is_as_likely_as_stated(bits):
    """kept and stray, measured on a circle too large to count; looked up by definition."""
    response, n = WindowResponse.best(1 << bits, Fraction(1)), 60_000
    own, other = (1 << bits) - 5, 12345
    multipliers, reports = response.sample(np.full(n, own), SeededBits(bits))
    asked = np.array([own, other])
    held = response.holding(multipliers, reports, asked)
    p, pairs = response.modulus, [*zip(multipliers.tolist(), reports.tolist(), strict=True)]
    slow = [sum((y - a * v) % p < response.width for a, y in pairs) for v in asked.tolist()]
    assert held.tolist() == slow
    for found, chance in zip(held / n, (response.kept, response.stray), strict=True):
        assert abs(found - chance) < 5 * (float(chance) * (1 - float(chance)) / n) ** 0.5


@pytest.mark.parametrize(("bits", "lengths"), [(1, (1,)), (10, (10,)), (12, (10, 12)), (30, (10, 15, 20, 25, 30))])
def test_lengths_end_with_the_whole(bits, lengths):
    assert lengths_of(bits) == lengths


def test_frequent_texts_are_found_in_what_devices_sent():
    held = people(30_000, 1)
    found = release.heavy_hitters(collected(held, 4, 1), "answer", top=5).body
    texts = [CODE.decode(key) for key in found.listed]
    assert texts[:3] == WORDS[:3]
    counts, margins = found.counts(0.95)
    for key, count, margin in zip(found.listed, counts, margins, strict=True):
        assert abs(count - (held == key).sum()) <= margin


@pytest.mark.parametrize(("n", "epsilon"), [(300, 1), (3000, 1), (3000, 4), (30_000, 2)])
def test_every_share_is_within_its_margin_and_a_tenth_of_it_would_not_do(n, epsilon):
    """Cells together at 95 %, over fresh people and devices; narrower ones are found out."""
    missed, narrow, runs = 0, 0, 20
    for seed in range(runs):
        held = people(n, seed)
        oracle = collected(held, epsilon, seed)
        for length in oracle.prefix_lengths:
            asked = np.unique(np.concatenate([held[:20] >> (30 - length), np.arange(5)]))
            told = oracle.count_prefixes(asked.tolist(), length)
            truth = np.array([(held >> (30 - length) == prefix).sum() for prefix in asked])
            off = np.abs(told.counts - truth).max() / told.margin(1 - 0.05 / len(asked))
            missed, narrow = missed + (off > 1), narrow + (off > 0.1)
    assert missed <= 0.05 * runs * 5 + 3 * (0.05 * runs * 5) ** 0.5
    assert narrow > 0.5 * runs * 5


def test_reports_travel_merge_and_are_kept():
    text = invited()
    one, other = Collector(text), Collector(text)
    client = Client(total=100)
    for number in range(30):
        assert (one if number % 3 else other).add(client.report(text, {"answer": int(CODE.encode(["fig"])[0])}))
    both = one.merge(other)
    assert (one.reports, other.reports, both.reports) == (20, 10, 30)
    again = Collector.load(both.save())
    assert [tally.tolist() for tally in again.tallies] == [tally.tolist() for tally in both.tallies]
    damaged = json.loads(both.save())
    damaged["sizes"][0] += 1
    with pytest.raises(BadQuery, match="save"):
        Collector.load(json.dumps(damaged))


def test_a_report_out_of_range_is_refused():
    text = invited()
    collector = Collector(text)
    report = bytearray(Client(total=100).report(text, {"answer": 5}))
    assert collector.add(bytes(report))
    report[12:20] = bytes(8)  # a multiplier of 0 would map every prefix to one place
    assert not collector.add(bytes(report))
    report[12:20] = b"\x01" + bytes(7)
    report[20:28] = b"\xff" * 7 + b"\x7f"
    assert not collector.add(bytes(report))
    assert collector.refused == {"out of range": 2}


def test_what_such_reports_cannot_tell_is_refused():
    oracle = collected(people(300, 1), 2, 1)
    for ask in (lambda: oracle.ask("answer"), lambda: oracle.price("answer"), oracle.synopsis):
        with pytest.raises(Unsupported, match="heavy_hitters"):
            ask()
    with pytest.raises(Unsupported, match="whole-number column"):
        invitation(dd.Value(dd.parse("x")), dd.Schema({"x": dd.Real(0, 1)}), 1, randomiser="prefixes")
    with pytest.raises(BadQuery, match="48 bits"):
        invited(schema=dd.Schema({"answer": dd.Integer(0, 2**50)}))
    assert dd.Curator(dd.Table({"x": [1]}, dd.Schema({"x": dd.Flag()})), dd.Budget(epsilon=1)).prefix_lengths == ()
