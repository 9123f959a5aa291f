"""The survey page's randomiser in a real browser: exactly the probabilities, symbols and bytes of Python's."""

import base64
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import chi2

from dodona.local.client import Client
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.response import TwoLevel
from dodona.server.surveys.survey import Randomiser, Survey
from tests.support.browsers import Tab
from tests.support.pages import QUESTIONS

IN_PAGE = "async (given) => { const m = await import('/assets/randomiser.js'); %s }"


@pytest.fixture(scope="module")
def run(browser, url):
    """Runs a body in the page with the module as ``m`` and an argument as ``given``; BigInts travel as text."""
    tab = Tab(browser)
    tab.page.goto(url)
    yield lambda body, given=None: tab.page.evaluate(IN_PAGE % body, given)
    tab.context.close()


def forms(epsilon):
    survey = Survey.read("x" * 11, {"title": "t", "epsilon": epsilon, "questions": QUESTIONS})
    return survey, survey.form()["questions"]


@pytest.mark.parametrize("epsilon", ["1/10", "1/2", "1", "2", "4", "10"])
def test_positions_have_exactly_the_probabilities_of_the_python_draw(run, epsilon):
    """Both ends of each position's run of integers, by the real 60-bit odds: hence its exact probability."""
    survey, told = forms(epsilon)
    for question, form in zip(survey.questions, told, strict=True):
        draw = Randomiser.of(question.scheme(survey.epsilon)).draw
        edges = [0]
        for place in range(draw.size):
            edges.append(edges[-1] + draw.odds[0 if place < draw.favoured else 1])
        assert edges[-1] == draw.total
        ends = [str(x) for a, b in pairwise(edges) for x in (a, b - 1)]
        found = run(
            """const r = m.randomiserOf(given.form);
            return [r.total.toString(), given.ends.map((x) => Number(m.position(r, BigInt(x))))];""",
            {"form": form, "ends": ends},
        )
        # position() never decreases, so two ends that agree vouch for all between; their count is the weight.
        assert found == [str(draw.total), [place for place in range(draw.size) for _ in range(2)]]
        weights = [Fraction(edges[i + 1] - edges[i], draw.total) for i in range(draw.size)]
        assert weights == [draw.probability(place) for place in range(draw.size)]


def test_a_uniform_integer_is_its_bits_or_drawn_again(run):
    """Every string of bits, for every bound up to 40: each value comes from one string, the rest are rejected."""
    for bound in range(1, 41):
        width = (bound - 1).bit_length()
        found = run(
            """const out = [];
            for (let word = 0; word < 2 ** given.width; word += 1) {
              const asked = [];
              const queue = [BigInt(word), 0n];
              const value = m.below(BigInt(given.bound), (width) => { asked.push(width); return queue.shift(); });
              out.push([Number(value), asked]);
            }
            return out;""",
            {"bound": bound, "width": width},
        )
        if width == 0:
            assert found == [[0, []]]
            continue
        for word, (value, asked) in enumerate(found):
            again = word >= bound
            assert value == (0 if again else word)
            assert asked == [width] * (2 if again else 1)


def small(question, odds):
    """The same form with odds small enough to enumerate; everything else as the server tells it."""
    return {**question, "randomiser": {**question["randomiser"], "odds": [str(x) for x in odds]}}


@pytest.mark.parametrize("odds", [(3, 1), (5, 2)])
@pytest.mark.parametrize("which", [[0], [1], [2], [0, 1, 2]])
def test_every_path_of_chance_enumerated_gives_the_python_pmf(run, odds, which):
    """All choices of every uniform integer, as a tree: exact probabilities of whole reports, lot and multiplier too."""
    survey, told = forms("1")
    asked = [small(told[i], odds) for i in which]
    found = run(
        """const rs = given.map(m.randomiserOf);
        const out = [];
        class More extends Error {}
        const walk = (prefix) => {
          // Replays `prefix`; where draw() then wants another uniform integer, branches on each value it can have.
          let at = 0;
          const bounds = [];
          const uniform = (bound) => {
            bounds.push(bound);
            if (at < prefix.length) return prefix[at++];
            throw new More(String(bound));
          };
          try {
            const drawn = m.draw(given, uniform);
            const r = rs[drawn.lot];
            for (let symbol = 0; symbol < Number(r.symbols); symbol += 1)
              out.push([drawn.lot, symbol, m.fields(r, drawn, symbol).map(String), bounds.map(String)]);
          } catch (more) {
            if (!(more instanceof More)) throw more;
            for (let value = 0n; value < BigInt(more.message); value += 1n) walk([...prefix, value]);
          }
        };
        walk([]);
        return out;""",
        asked,
    )
    chances = {}
    for lot, symbol, fields, bounds in found:
        weight = Fraction(1)
        for bound in bounds:
            weight /= int(bound)
        place = lot, symbol, tuple(map(int, fields))
        chances[place] = chances.get(place, 0) + weight
    expected = {}
    for lot, index in enumerate(which):
        for (symbol, fields), chance in python_pmf(survey.questions[index], survey.epsilon, odds).items():
            expected[lot, symbol, fields] = chance / len(which)
    assert chances == expected


def python_pmf(question, epsilon, odds=None):
    """P(fields | symbol) as the Python mechanisms have it; ``odds`` in place of their own."""
    (group,) = question.scheme(epsilon).groups
    bit = not hasattr(group.response, "modulus")
    response = group.response.parts[0].response if bit else group.response
    draw = response.draw
    level = dict.fromkeys(draw.odds) and dict(zip(draw.odds, odds or draw.odds, strict=True))
    total = draw.favoured * level[draw.odds[0]] + (draw.size - draw.favoured) * level[draw.odds[1]]

    def again(chance):
        return Fraction(level[int(chance * draw.total)], total)

    if bit:
        pairs = product(range(2), range(2))
        return {(symbol, (0, 0, y)): again(response.probability(y, symbol)) for symbol, y in pairs}
    places = product(range(response.values), range(1, response.modulus), range(response.modulus))
    return {(v, (0, a, y)): again(response.probability(y, v, a)) / (response.modulus - 1) for v, a, y in places}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_symbol_is_reported_as_python_reports_the_same_answer(run, index):
    """Chance that favours the truth most: JavaScript's fields equal what Python's group reports for that answer."""
    survey, told = forms("2")
    question = survey.questions[index]
    for symbol in range(Randomiser.of(question.scheme(survey.epsilon)).symbols):
        fields = run(
            """const r = m.randomiserOf(given.form);
            const drawn = { multiplier: r.shape === "window" ? 1n : 0n, position: 0n };
            return m.fields(r, drawn, given.symbol).map(Number);""",
            {"form": told[index], "symbol": symbol},
        )
        truth = question.truth(symbol)
        client, text = Client(total=10_000), survey.invitations()[question.id]
        # Python's reports of this answer, of which those on multiplier 1 must favour the same field.
        seen = [np.frombuffer(client.report(text, {"answer": truth}), dtype="<i8", offset=12) for _ in range(300)]
        same = [int(y) for _, a, y in seen if a == fields[1]]
        pmf = python_pmf(question, survey.epsilon)
        favoured = [y for y in {f[2] for _, f in pmf} if pmf.get((symbol, (0, fields[1], y)), 0) == max(pmf.values())]
        assert fields[2] in favoured
        assert np.mean([y in favoured for y in same]) > len(favoured) / len({f[2] for _, f in pmf})


def test_packed_reports_are_python_bytes(run):
    survey, told = forms("1")
    for question, form in zip(survey.questions, told, strict=True):
        text = run(
            "return m.base64(m.packed(1, given.scheme, [0n, 3n, BigInt(given.y)]));", {"scheme": form["scheme"], "y": 2}
        )
        from dodona.local.client import packed

        assert base64.b64decode(text) == packed(question.scheme(survey.epsilon), 0, [0, 3, 2])


def p_value(counts, chances):
    n = sum(counts.values())
    expected = {place: n * float(chance) for place, chance in chances.items()}
    assert set(counts) <= set(expected)
    statistic = sum((counts.get(place, 0) - e) ** 2 / e for place, e in expected.items())
    return float(chi2.sf(statistic, len(expected) - 1))


def test_reports_drawn_by_the_browser_have_the_python_frequencies(run):
    """12,000 whole reports with the browser's own randomness: chi-square, and a wrong pmf must fail the same test."""
    survey, told = forms("1")
    found = run(
        """const rs = given.map(m.randomiserOf);
        return Array.from({ length: 12000 }, (_, i) => {
          const drawn = m.draw(given);
          const r = rs[drawn.lot];
          const symbol = i % Number(r.symbols);
          return [drawn.lot, symbol, ...m.fields(r, drawn, symbol).map(Number)];
        });""",
        told,
    )
    lots = np.bincount([lot for lot, *_ in found], minlength=3)
    assert p_value(dict(enumerate(lots)), dict.fromkeys(range(3), Fraction(1, 3))) > 1e-6
    for index, question in enumerate(survey.questions):
        right, wrong = python_pmf(question, survey.epsilon), python_pmf(question, survey.epsilon, odds=(2, 1))
        counts = {}
        for lot, held, *fields in found:
            if lot == index:
                counts[held, tuple(fields)] = counts.get((held, tuple(fields)), 0) + 1
        for symbol in {symbol for symbol, _ in right}:
            own = {place: count for place, count in counts.items() if place[0] == symbol}
            assert p_value(own, {place: c for place, c in right.items() if place[0] == symbol}) > 1e-6
        # Whether a report is a favoured one holds all that odds change, whatever the answer: one cell in place of
        # hundreds, so that 4,000 reports tell odds of 2 from odds of e (noncentrality at least 74 on one degree of
        # freedom: missed at 1e-3 about once in 10^7 runs).
        top = max(right.values())
        favoured = {True: 0, False: 0}
        for place, count in counts.items():
            favoured[right[place] == top] += count
        assert p_value(favoured, levels(right, right)) > 1e-6
        assert p_value(favoured, levels(right, wrong)) < 1e-3, "the test must be able to tell odds of 2 from odds of e"


def levels(right, pmf):
    """The probability under ``pmf`` of a report that ``right`` favours, and of another; alike for every answer."""
    top = max(right.values())
    kept = sum(pmf[place] for place, chance in right.items() if place[0] == 0 and chance == top)
    return {True: kept, False: 1 - kept}


def test_a_form_that_makes_no_sense_draws_nothing(run):
    _, told = forms("1")
    bit, window, number = told
    bad = [
        {**bit, "kind": "choice", "labels": []},
        {**bit, "kind": "choice", "labels": ["a", "b"]},
        {**window, "labels": window["labels"][:-1]},
        {**window, "labels": [*window["labels"], "more"]},
        {**window, "labels": None},
        {**number, "edges": number["edges"][:-1]},
        small(bit, (1, 1)),
        small(bit, (1, 2)),
        small(bit, (1, 0)),
        small(bit, (-5, -9)),
        {**bit, "randomiser": {**bit["randomiser"], "shape": "plain"}},
        {**bit, "randomiser": {**bit["randomiser"], "size": 3}},
        {**window, "randomiser": {**window["randomiser"], "size": 6}},
        {**window, "randomiser": {**window["randomiser"], "favoured": 5}},
        {**window, "randomiser": {**window["randomiser"], "symbols": 99}},
    ]
    for form in told:
        assert run("m.randomiserOf(given); return 'taken';", form) == "taken"
    for form in bad:
        assert run("try { m.randomiserOf(given); return 'taken'; } catch { return 'refused'; }", form) == "refused"


def test_the_cap_is_never_above_e_to_the_four_and_takes_every_sound_draw(run):
    """Exact: odds of any epsilon up to 4 pass, by whatever survey; odds a hair above e^4 do not."""
    low, high = exp_bracket(Fraction(4), 300)  # of e^-4, in units of 2^-300
    account = "const a = await import('/assets/account.js');"
    top, bottom = run(account + "return [String(a.CAP.top), String(a.CAP.bottom)];")
    cap = Fraction(int(top), int(bottom))
    assert cap <= Fraction(2**300, high)
    assert cap + Fraction(1, int(bottom)) > Fraction(2**300, low)
    draws = [
        TwoLevel(size, favoured, Fraction(k, 50)).odds
        for size, favoured in ((2, 1), (3, 1), (11, 4), (67, 2))
        for k in range(1, 201)
    ]
    above = [(a + 1, c) for a, c in draws[199::200]] + [TwoLevel(2, 1, 4 + Fraction(1, 10**k)).odds for k in (1, 6, 12)]
    found = run(
        account + "return given.map(([x, y]) => a.affordable({ a: BigInt(x), c: BigInt(y) }, {}));",
        [[str(a), str(c)] for a, c in draws + above],
    )
    assert found == [True] * len(draws) + [False] * len(above)


def test_what_is_shown_is_rounded_against_the_page(run):
    meaning = "const m2 = await import('/assets/meaning.js');"
    for factor in (1.0001, 1.05, 2.718281828459, 3.0, 9.991, 54.598150033144, 148.413159):
        up, down = run(meaning + "return [m2.times(given), m2.times(given, Math.floor)];", factor)
        assert float(down.removesuffix(" times")) <= factor <= float(up.removesuffix(" times"))


TEXT = {"text": "Which word?", "kind": "text", "alphabet": " abcdefghijklmnopqrstuvwxyz", "length": 9}
CAPITALS = {**TEXT, "alphabet": "_abAB", "length": 5}
WRITTEN = ["Apple", "  pear tree", "\u00c4PFEL!", "", "zzzzzzzzzzzzzz", "na\u00efve \U0001d4b3yz", "\u0130K", "abAB_"]


@pytest.mark.parametrize("stated", [TEXT, CAPITALS])
def test_texts_become_the_same_numbers_as_in_python(run, stated):
    question = Survey.read("x" * 11, {"title": "t", "epsilon": "1", "questions": [stated]}).questions[0]
    found = run(
        """const both = (n) => [n.toString(), m.countedOf(given.form, n)];
        return given.texts.map((text) => both(m.numberOf(given.form, text)));""",
        {"form": question.describe(), "texts": WRITTEN},
    )
    spelt = [question.spelt(text) for text in WRITTEN]
    assert found == [[str(number), question.code.decode(number)] for number in spelt]


@pytest.mark.parametrize("epsilon", ["1/10", "2", "10"])
def test_reports_on_prefixes_are_those_of_the_python_windows(run, epsilon):
    """Which length, by every lot there is; and reports by every kind of position on circles of up to 2^45 points."""
    survey = Survey.read("x" * 11, {"title": "t", "epsilon": epsilon, "questions": [TEXT]})
    form, scheme = survey.form()["questions"][0], survey.questions[0].scheme(survey.epsilon)
    lots = run(
        """const edges = [];
        const r = m.randomiserOf(given);
        let last = null;
        for (let lot = 0n; lot < 65536n; lot += 1n) {
          const asked = [];
          const queue = [0n, lot, 0n, 0n];
          const drawn = m.draw([given], (bound) => { asked.push(bound.toString()); return queue.shift(); });
          if (drawn.group !== last) edges.push([Number(lot), drawn.group, asked]);
          last = drawn.group;
        }
        return edges;""",
        form,
    )
    starts = np.cumsum([0, *scheme.odds]).tolist()
    assert starts[-1] == 65536
    windows = [group.response for group in scheme.groups]
    bounds = [["1", "65536", str(w.modulus - 1), str(w.draw.total)] for w in windows]
    assert lots == [[starts[i], i, bounds[i]] for i in range(len(windows))]
    rng, draws, wanted = np.random.default_rng(0), [], []
    for group, window in zip(scheme.groups, windows, strict=True):
        a, c = window.draw.odds
        edge = window.width * a
        for drawn in (0, a - 1, a, edge - 1, edge, edge + c - 1, edge + c, window.draw.total - 1):
            place = drawn // a if drawn < edge else window.width + (drawn - edge) // c
            number, multiplier = int(rng.integers(2**45)), int(rng.integers(1, window.modulus))
            draws.append([windows.index(window), str(multiplier), str(drawn), str(number)])
            report = (multiplier * (number >> (45 - group.length)) + place) % window.modulus
            assert window.probability(report, number >> (45 - group.length), multiplier) == window.draw.probability(
                place
            )
            wanted.append([str(multiplier), str(report)])
    found = run(
        """const r = m.randomiserOf(given.form);
        return given.draws.map(([group, multiplier, drawn, number]) => {
          const position = m.position(r.groups[group], BigInt(drawn));
          return m.fields(r, { group, multiplier: BigInt(multiplier), position }, BigInt(number)).map(String);
        });""",
        {"form": form, "draws": draws},
    )
    assert found == wanted


@pytest.mark.parametrize(
    "wrong",
    ["r.windows[4].size += 2", "r.windows[4].odds = ['1', '1']", "r.shares.pop()", "r.shares[0] = 0", "r.bits = 44",
     "r.windows[0].symbols *= 2", "r.windows[0].favoured = r.windows[0].size", "r.windows[0].shape = 'bit'",
     "given.alphabet = 'aa' + given.alphabet.slice(2)"],
)  # fmt: skip
def test_a_text_form_that_makes_no_sense_draws_nothing(run, wrong):
    form = Survey.read("x" * 11, {"title": "t", "epsilon": "1", "questions": [TEXT]}).form()["questions"][0]
    body = f"""const r = given.randomiser;
    m.randomiserOf(given);
    {wrong};
    try {{ m.randomiserOf(given); }} catch (e) {{ return e.message; }}"""
    assert run(body, form) == "This form's randomiser is not one this page can check."
