"""The survey page in a real browser: exact randomisation before anything is sent, one report, caps, estimates."""

import base64
import json
import os
import re
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import chi2

import dodona as dd
from dodona.local.client import Client
from dodona.server.survey import Randomiser, Survey
from dodona.server.survey_store import SurveyStore
from dodona.testing.browsers import BrowserMissing, Tab, chromium
from dodona.testing.servers import in_thread, write_survey

SCHEMA = dd.Schema({"x": dd.Flag()})
QUESTIONS = [
    {"text": "Do you own a car?", "kind": "yes-no"},
    {"text": "How do you travel?", "kind": "choice", "values": ["Bus", "Car", "Bicycle", "On foot"]},
    {"text": "How old are you?", "kind": "number", "edges": [0, 18, 30, 45, 60, 120]},
]
AXE = "serious", "critical"


@pytest.fixture(scope="module")
def browser():
    try:
        with chromium() as found:
            yield found
    except BrowserMissing as missing:
        if "CI" in os.environ:
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("survey")


@pytest.fixture(scope="module")
def url(folder):
    path = write_survey(folder, {"x": np.array([True, False])}, SCHEMA, {"epsilon": 1})
    with in_thread(folder, [path], tick=0.001) as found:
        yield found


@pytest.fixture
def define(folder):
    """Makes a survey in the server's own file: what it says and whose tokens count."""
    made = iter(range(1000))

    def make(epsilon="1", questions=QUESTIONS, tokens=(), **more):
        name = os.urandom(6).hex()[:10] + str(next(made) % 10)
        survey = Survey.read(name, {"title": "Travel", "epsilon": epsilon, "questions": questions, **more})
        store = SurveyStore(folder / "dodona.surveys")
        store.add(survey, list(tokens))
        store.close()
        return survey

    return make


@pytest.fixture
def tab(browser):
    opened = []

    def make(**settings):
        opened.append(Tab(browser, **settings))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()
        assert one.faults == []


def answered(page):
    """All three questions, as a person would."""
    page.get_by_role("radio", name="Yes").check()
    page.get_by_role("radio", name="Bicycle").check()
    page.get_by_role("spinbutton").fill("44")


def counted(folder, survey):
    store = SurveyStore(folder / "dodona.surveys")
    try:
        return {id: collector.reports for id, collector in store.collectors(survey).items()}
    finally:
        store.close()


# -- the randomiser ----------------------------------------------------------------------------------------------------

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
    bit, window = told[0], told[1]
    bad = [
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
    for form in bad:
        assert run("try { m.randomiserOf(given); return 'taken'; } catch { return 'refused'; }", form) == "refused"


# -- the page ----------------------------------------------------------------------------------------------------------


def test_a_respondent_sees_what_will_be_sent_and_just_that_is_sent_once(tab, url, folder, define):
    survey = define()
    one = tab()
    # No other chance may decide, and nothing may be drawn before the respondent asks for it.
    one.page.add_init_script("Math.random = () => { throw new Error('Math.random was used'); };")
    one.page.goto(f"{url}/survey/{survey.id}")
    answered(one.page)
    assert [r.method for r in one.requests if "/v1/" in r.url] == ["GET"]
    one.page.get_by_role("button", name="Prepare my report").click()
    review = one.page.locator(".review")
    review.get_by_text("at most 2.7 times likelier").wait_for()
    review.get_by_text("nobody, not even those who run this survey, can tell").wait_for()
    assert one.sent("/reports") == []
    assert "review" in one.page.evaluate("document.activeElement.closest('section').className")
    shown = json.loads(review.locator("pre").text_content())
    assert one.page.evaluate("localStorage.length") == 0
    review.get_by_role("button", name="Send this report").click()
    one.page.get_by_text("Your report was counted once").wait_for()
    (sent,) = one.sent("/reports")
    assert json.loads(sent.post_data) == shown
    assert sum(counted(folder, survey).values()) == 1
    kept = one.page.evaluate("JSON.stringify(Object.values(localStorage))")
    assert "Bicycle" not in kept
    assert "44" not in re.sub(r"[0-9a-f]{12,}|\d{12,}", "", kept)
    one.page.reload()
    one.page.get_by_text("already sent your report").wait_for()
    assert len(one.sent("/reports")) == 1


def test_going_back_changes_the_answer_and_never_the_dice(tab, url, define):
    survey = define(questions=[QUESTIONS[0]])
    page = tab().page
    page.goto(f"{url}/survey/{survey.id}")

    def said(answer):
        page.get_by_role("radio", name=answer).check()
        page.get_by_role("button", name="Prepare my report").click()
        text = page.locator(".report").text_content()
        page.get_by_role("button", name="Go back").click()
        return text

    first, other = said("Yes"), said("No")
    assert first != other
    assert [said(answer) for answer in ("Yes", "No", "Yes")] == [first, other, first]


def test_nothing_is_prepared_while_an_answer_is_missing(tab, url, define):
    one = tab()
    one.page.goto(f"{url}/survey/{define().id}")
    one.page.get_by_role("radio", name="Yes").check()
    one.page.get_by_role("button", name="Prepare my report").click()
    one.page.locator("#wrong-1").wait_for()
    assert one.page.locator(".review").is_hidden()
    assert one.page.evaluate("document.activeElement.name") == "q1"


def test_a_number_counts_as_its_range(tab, url, define):
    page = tab().page
    page.goto(f"{url}/survey/{define(questions=[QUESTIONS[2]]).id}")
    box = page.get_by_role("spinbutton")
    for typed, label in (("0", "0 to below 18"), ("17.99", "0 to below 18"), ("18", "18 to below 30")):
        box.fill(typed)
        page.get_by_text(f"Counts as: {label}.").wait_for()
    for typed, label in (("120", "60 to 120"), ("1e9", "60 to 120"), ("-3", "0 to below 18")):
        box.fill(typed)
        page.get_by_text(f"Counts as: {label}.").wait_for()


def test_a_browser_refuses_an_epsilon_above_its_cap(tab, url, folder, define):
    """HOSTILE V62: before a question is shown, nothing drawn, nothing sent; 4 itself is still taken."""
    survey = define(epsilon="41/10")
    one = tab()
    one.page.goto(f"{url}/survey/{survey.id}")
    one.page.get_by_role("heading", name="Your browser refuses this survey").wait_for()
    one.page.get_by_text("at most 55 times (epsilon 4)").wait_for()
    assert one.page.locator("form, input").count() == 0
    assert one.sent("/reports") == []
    assert sum(counted(folder, survey).values()) == 0
    one.page.goto(f"{url}/survey/{define(epsilon='4').id}")
    one.page.get_by_role("button", name="Prepare my report").wait_for()


def test_the_cap_holds_for_all_reports_together(tab, url, define):
    page = tab().page
    for epsilon, taken in (("2", True), ("3/2", True), ("1", False), ("1/2", True), ("1/100", False)):
        page.goto(f"{url}/survey/{define(epsilon=epsilon, questions=[QUESTIONS[0]]).id}")
        if not taken:
            page.get_by_role("heading", name="Your browser refuses this survey").wait_for()
            continue
        page.get_by_role("radio", name="Yes").check()
        page.get_by_role("button", name="Prepare my report").click()
        page.get_by_role("button", name="Send this report").click()
        page.get_by_text("counted once").wait_for()


def test_a_server_that_understates_its_epsilon_is_found_out(tab, url, define):
    """The factor is read off the odds that would be used, not off what the form says."""
    survey = define(epsilon="5", questions=[QUESTIONS[0]])
    one = tab()

    def lie(route):
        form = route.fetch().json()
        route.fulfill(json={**form, "epsilon": "1"})

    one.page.route(f"**/v1/surveys/{survey.id}", lie)
    one.page.goto(f"{url}/survey/{survey.id}")
    one.page.get_by_role("heading", name="Your browser refuses this survey").wait_for()


def test_a_lost_reply_is_answered_by_the_same_report_and_counts_once(tab, url, folder, define):
    survey = define(questions=[QUESTIONS[0]])
    one = tab()
    one.page.goto(f"{url}/survey/{survey.id}")

    def lose(route):
        route.fetch()
        route.abort()

    one.page.route("**/reports", lose)
    one.page.get_by_role("radio", name="No", exact=True).check()
    one.page.get_by_role("button", name="Prepare my report").click()
    one.page.get_by_role("button", name="Send this report").click()
    one.page.get_by_text("sending again sends the very same one").wait_for()
    one.page.unroute("**/reports")
    one.page.reload()
    one.page.get_by_role("button", name="Send the same report again").click()
    one.page.get_by_text("counted once").wait_for()
    bodies = {r.post_data for r in one.sent("/reports")}
    assert (len(one.sent("/reports")), len(bodies)) == (2, 1)
    assert counted(folder, survey) == {"q1": 1}


def test_two_tabs_of_one_browser_send_one_report(tab, url, folder, define):
    """Both are ready, each with dice of its own, and both send at the same moment: one is refused, in words."""
    survey = define(questions=[QUESTIONS[0]])
    one = tab()
    pages = [one.page, one.context.new_page()]
    for page in pages:
        page.goto(f"{url}/survey/{survey.id}")
        page.get_by_role("radio", name="Yes").check()
        page.get_by_role("button", name="Prepare my report").click()
        page.get_by_role("button", name="Send this report").wait_for()
    when = pages[0].evaluate("Date.now()") + 1000
    for page in pages:
        click = "document.querySelector('.review .primary').click()"
        page.evaluate(f"t => {{ setTimeout(() => {click}, t - Date.now()); }}", when)
    ends = [page.get_by_text(re.compile("counted once|has sent another report since")).first for page in pages]
    words = sorted(end.text_content() for end in ends)
    assert words[0].startswith("Thank you. Your report was counted once"), words
    assert words[1].startswith("This browser has sent another report"), words
    assert counted(folder, survey) == {"q1": 1}
    pages[1].reload()
    pages[1].get_by_text("already sent your report").wait_for()


def test_one_time_links(tab, url, folder, define):
    token = "0123456789abcdef" * 2
    survey = define(questions=[QUESTIONS[0]], tokens=[token])
    for link, words in ((f"#token={token}", "counted once"), ("", "only from the links its curator gave out")):
        one = tab()
        one.page.goto(f"{url}/survey/{survey.id}{link}")
        one.page.get_by_role("radio", name="Yes").check()
        one.page.get_by_role("button", name="Prepare my report").click()
        one.page.get_by_role("button", name="Send this report").click()
        one.page.get_by_text(words).wait_for()
    assert counted(folder, survey) == {"q1": 1}
    assert not any(token in r.url for r in one.requests)


def test_estimates_come_with_error_bars(tab, url, folder, define):
    survey = define(epsilon="2", questions=[QUESTIONS[1]])
    store, client = SurveyStore(folder / "dodona.surveys"), Client(total=10_000)
    store._db.execute("PRAGMA synchronous=OFF")
    text = survey.invitations()["q1"]
    for i in range(400):
        store.count(
            survey.id, "q1", client.report(text, {"answer": ["Bus", "Bus", "Car", "On foot"][i % 4]}), f"{i:032x}"
        )
    store.close()
    one = tab()
    one.page.goto(f"{url}/survey/{survey.id}")
    one.page.get_by_role("radio", name="Bus").check()
    one.page.get_by_role("button", name="Prepare my report").click()
    one.page.get_by_role("button", name="Send this report").click()
    one.page.get_by_text("401 reports so far").wait_for()
    assert one.page.locator(".chart .bar").count() == one.page.locator(".chart .whisker").count() == 4
    one.page.get_by_text("As a table, from 401 reports").click()
    cells = one.page.locator("tbody tr").first.locator("td").all_text_contents()
    share, margin = (float(re.sub(r"[^\d.]", "", cell)) for cell in cells[1:])
    assert cells[0] == "Bus"
    assert abs(share - 50) <= 2 * margin < 60


EVIL = "<img src=x onerror=alert(1)>"


def test_words_of_a_survey_are_words(tab, url, define):
    """HOSTILE V58: title, text and labels that are markup are shown as they are, and run nowhere."""
    questions = [
        {"text": EVIL, "kind": "choice", "values": [EVIL, "</legend><script>alert(2)</script>"]},
        {"text": f"{EVIL}?", "kind": "yes-no"},
    ]
    one = tab()
    one.page.goto(f"{url}/survey/{define(title=EVIL, about=EVIL, questions=questions).id}")
    assert one.page.get_by_role("heading", level=1).text_content() == EVIL
    one.page.locator("input[name=q0]").first.check()
    one.page.locator("input[name=q1]").first.check()
    one.page.get_by_role("button", name="Prepare my report").click()
    one.page.get_by_role("button", name="Send this report").click()
    one.page.get_by_text("counted once").wait_for()
    one.page.locator(".estimates h3").first.wait_for()
    assert one.page.locator("img[src=x], main script").count() == 0
    assert one.page.title() == f"{EVIL} · Dodona"


def violations(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found if v["impact"] in AXE]


MOST = [pytest.param(360, "dark"), pytest.param(1280, "light")]
REST = [pytest.param(360, "light", marks=pytest.mark.slow), pytest.param(1280, "dark", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("width", "scheme"), MOST + REST)
def test_the_survey_is_accessible_and_fits(tab, url, define, scheme, width):
    one = tab(color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce")
    one.page.goto(f"{url}/survey/{define().id}")
    answered(one.page)
    assert (violations(one.page), one.overflow()) == ([], 0)
    one.page.get_by_role("button", name="Prepare my report").click()
    one.page.locator(".review details summary").click()
    assert (violations(one.page), one.overflow()) == ([], 0)
    one.page.get_by_role("button", name="Send this report").click()
    one.page.locator(".estimates h3").first.wait_for()
    assert (violations(one.page), one.overflow()) == ([], 0)


def test_the_keyboard_is_enough(tab, url, define):
    one = tab()
    one.page.goto(f"{url}/survey/{define(questions=[QUESTIONS[1]]).id}")
    one.page.get_by_role("radio", name="Bus").wait_for()
    press = one.page.keyboard.press
    focused = "document.activeElement.textContent || document.activeElement.type"
    for _ in range(6):
        press("Tab")
        if one.page.evaluate(focused) == "radio":
            break
    press("ArrowDown")
    press("ArrowDown")
    assert one.page.get_by_role("radio", name="Bicycle").is_checked()
    press("Tab")
    press("Enter")
    one.page.locator(".report").wait_for()
    for _ in range(4):
        press("Tab")
        if one.page.evaluate(focused) == "Send this report":
            break
    press("Enter")
    one.page.get_by_text("counted once").wait_for()
