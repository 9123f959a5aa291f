"""The page in a real browser, on a real server: prices before spending, answers, charts, rooms, keyboard, phone."""

import csv
import json
import os
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest

import dodona as dd
from dodona.testing.browsers import BrowserMissing, Tab, chromium
from dodona.testing.servers import add_key, in_thread, write_survey

EVIL = "<img src=x onerror=alert(1)>"
REGIONS = ["North", "East", "South", "West"]
SCHEMA = dd.Schema(
    {
        "age": dd.Integer(16, 95),
        "region": dd.Category(*REGIONS),
        "smoker": dd.Flag(),
        "income": dd.Real(0, 1000),
    }
)
ODD = dd.Schema({EVIL: dd.Category(EVIL, "plain"), "select": dd.Flag()})
ROOMS = {
    "analyst": ["ask", "budget", "synopses"],
    "curator": ["ask", "budget", "synopses", "keys", "releases", "surveys"],
}


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
def world(tmp_path_factory):
    """One server for the file: two datasets, one with names that are markup; a curator and two analysts."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(3)
    rows = 4000
    columns = {
        "age": np.clip(rng.gamma(9, 5, rows), 16, 95).astype(int),
        "region": np.array(REGIONS)[rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])],
        "smoker": rng.random(rows) < 0.25,
        "income": rng.random(rows) * 1000,
    }
    people = write_survey(folder, columns, SCHEMA, {"epsilon": 8, "delta": 1e-6})
    odd = {EVIL: np.array([EVIL, "plain"] * 50), "select": np.array([True, False] * 50)}
    other = write_survey(folder, odd, ODD, {"epsilon": 4}, name=EVIL)
    keys = {
        "curator": add_key(folder, "ada"),
        "analyst": add_key(folder, "ben", "1/4"),
        "second": add_key(folder, "cleo", "1/4"),
    }
    with in_thread(folder, [people, other], tick=0.001) as url:
        yield SimpleNamespace(url=url, keys=keys, columns=columns, rows=rows)


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


@pytest.fixture
def signed_in(tab, world):
    def enter(who, **settings):
        one = tab(**settings)
        one.page.goto(world.url)
        one.page.get_by_label("Your key").fill(world.keys[who])
        one.page.get_by_role("button", name="Open").click()
        one.page.get_by_label("Dataset").select_option("people")
        one.page.get_by_role("heading", name="Ask people").wait_for()
        return one

    return enter


def spent(page):
    """What the page's own key sees as spent of ``people``."""
    read = """async () => {
      const headers = { Authorization: `Bearer ${sessionStorage.getItem("dodona.key")}` };
      return (await (await fetch("/v1/datasets/people", { headers })).json()).analyst.spent;
    }"""
    return page.evaluate(read)


def ask(one, text, place=None):
    page = one.page
    before = page.locator(".answer").count()
    page.get_by_label("Your question").fill(text)
    if place is not None:
        page.get_by_label("Cheap and rough").fill(str(place))
    page.get_by_role("button", name="Ask", exact=True).and_(page.locator(":enabled")).click()
    page.locator(".answer").nth(before).wait_for()
    return page.locator(".answer").first


# -- first view --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [None, "curator"])
def test_the_first_view_is_small_quick_and_all_our_own(tab, world, who, record_property):
    one = tab()
    if who:
        one.context.add_init_script(f"sessionStorage.setItem('dodona.key', '{world.keys[who]}')")
    sizes = {}
    one.page.on(
        "response", lambda response: sizes.__setitem__(response.url, response.headers.get("content-length", "0"))
    )
    start = time.perf_counter()
    one.page.goto(world.url)
    one.page.get_by_label("Your question" if who else "Your key").wait_for()
    seconds = time.perf_counter() - start
    painted = one.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
    plain = one.page.evaluate("performance.getEntriesByType('resource').reduce((sum, e) => sum + e.decodedBodySize, 0)")
    sent = sum(map(int, sizes.values()))
    record_property("first view", {"who": who, "bytes sent": sent, "seconds": seconds, "painted ms": painted})
    told = f"{sent:,} B sent ({plain:,} B plain), {seconds:.2f} s, painted at {painted} ms"
    print(f"\nfirst view of {who or 'nobody'}: {told}")
    assert all(url.startswith(world.url) for url in sizes)
    assert 1000 < sent < 300_000
    assert 1000 < plain < 300_000


def test_a_key_stays_in_its_tab_and_out_of_addresses(signed_in, world):
    one = signed_in("analyst")
    key = world.keys["analyst"]
    assert not any(key in request.url for request in one.requests)
    assert key not in one.page.url
    assert key not in one.page.evaluate("JSON.stringify(Object.entries(localStorage)) + document.cookie")
    one.page.reload()
    one.page.get_by_label("Your question").wait_for()
    one.page.get_by_role("button", name="Sign out").click()
    one.page.get_by_label("Your key").wait_for()
    assert one.page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize("key", ["nonsense", "ddn_0123456789abcdef_" + "A" * 43])
def test_a_wrong_key_is_refused_in_words(tab, world, key):
    one = tab()
    one.page.goto(world.url)
    one.page.get_by_label("Your key").fill(key)
    one.page.keyboard.press("Enter")
    one.page.get_by_text("This key doesn't open anything here").wait_for()
    assert one.page.evaluate("sessionStorage.length") == 0


# -- asking ------------------------------------------------------------------------------------------------------------


def test_the_price_is_shown_and_nothing_is_spent_until_ask(signed_in):
    one = signed_in("analyst")
    before = spent(one.page)
    one.page.get_by_label("Your question").fill("age >= 40 AND smoker")
    one.page.locator(".figures").wait_for()
    told = one.page.locator(".price").inner_text()
    assert re.search(r"Expected error\s+± [\d.]+", told)
    assert re.search(r"Cost\s+[\d.]+ %", told)
    assert re.search(r"Left for you after\s+[\d.]+ %", told)
    assert spent(one.page) == before
    assert one.sent("/ask", "/sql") == []
    one.page.get_by_role("button", name="Ask", exact=True).click()
    one.page.locator(".answer").wait_for()
    assert len(one.sent("/ask", "/sql")) == 1
    assert spent(one.page) > before


def test_the_slider_trades_cost_for_accuracy(signed_in):
    one = signed_in("analyst")
    with one.page.expect_response(lambda r: r.url.endswith("/price")):
        one.page.get_by_label("Your question").fill("smoker")
    slider = one.page.get_by_label("Cheap and rough")
    seen = []
    for place in (0, 30, 60, 100):
        with one.page.expect_response(lambda r: r.url.endswith("/price")) as reply:
            slider.fill(str(place))
        price = reply.value.json()
        asked = json.loads(reply.value.request.post_data)["effort"]["share"]
        assert isinstance(asked, str), "a privacy parameter must not travel as a float"
        assert slider.get_attribute("aria-valuetext").startswith("spends ")
        seen.append((price["cost"]["share"], -price["margin"], price["affordable"]))
    assert seen == sorted(seen)
    assert all(affordable for *_, affordable in seen)
    assert seen[-1][0] > 100 * seen[0][0]


def test_an_answer_holds_the_truth_within_its_error(signed_in, world):
    card = ask(signed_in("analyst"), "age >= 40 AND smoker", 60).inner_text()
    truth = int(((world.columns["age"] >= 40) & world.columns["smoker"]).sum())
    total, margin = (float(x.replace(",", "")) for x in re.search(r"([\d,.]+)\s*± ([\d,.]+)\s*in total", card).groups())
    assert abs(total - truth) <= 3 * margin
    assert margin < 500
    assert "of 4,000 rows" in card


def test_groups_are_bars_with_error_bars_and_a_table_says_the_same(signed_in, world):
    one = signed_in("analyst")
    card = ask(one, "SELECT region, COUNT(*) AS n, AVG(income) AS mean FROM people GROUP BY region", 60)
    card.locator(".chart .bar").first.wait_for()
    assert card.locator(".chart .bar").count() == card.locator(".chart .whisker").count() == 4
    assert "n by region" in card.locator("svg").get_attribute("aria-label")
    rows = [row.locator("td").all_text_contents() for row in card.locator("tbody tr").all()]
    assert [row[0] for row in rows] == REGIONS
    for region, count, _ in rows:
        value, margin = (float(x.replace(",", "")) for x in count.split(" ± "))
        assert abs(value - int((world.columns["region"] == region).sum())) <= 3 * margin
    card.get_by_role("button", name="mean").click()
    assert "mean by region" in card.locator("svg").get_attribute("aria-label")
    for kind, read in (("CSV", lambda text: list(csv.reader(text.splitlines()))), ("JSON", json.loads)):
        with one.page.expect_download() as file:
            card.get_by_role("button", name=f"Download {kind}").click()
        with open(file.value.path(), encoding="utf-8", newline="") as text:
            found = read(text.read())
        if kind == "CSV":
            assert found[0] == ["region", "n", "n ±", "mean", "mean ±"]
            assert [row[0] for row in found[1:]] == REGIONS
        else:
            assert found["columns"] == ["region", "n", "mean"]
            assert found["answer"]["cost"]["share"] > 0


def test_intervals_are_a_curve_with_its_band(signed_in):
    one = signed_in("analyst")
    one.page.get_by_role("button", name="A curve").click()
    text = one.page.get_by_label("Your question").input_value()
    assert "BUCKET(age, 16," in text
    card = ask(one, text)
    card.locator(".chart .band").wait_for()
    assert card.locator(".chart .dot").count() == card.locator("tbody tr").count() >= 6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("aeg > 3", "aeg"),
        ("COUNT(*)", ""),
        ("SELECT income, COUNT(*) FROM people GROUP BY income", ""),
        ("1 / (age - 20)", ""),
    ],
)
def test_a_refusal_teaches_and_charges_nothing(signed_in, text, words):
    one = signed_in("analyst")
    before = spent(one.page)
    with one.page.expect_response(lambda r: r.url.endswith("/price")) as reply:
        one.page.get_by_label("Your question").fill(text)
    assert reply.value.status == 422
    shown = one.page.locator(".price .teach")
    shown.wait_for()
    assert shown.text_content() == reply.value.json()["detail"]
    assert words in shown.text_content()
    assert one.page.get_by_role("button", name="Ask", exact=True).is_disabled()
    assert spent(one.page) == before


def test_a_lost_answer_asked_again_is_charged_once(signed_in):
    one = signed_in("second")
    one.page.get_by_label("Your question").fill("smoker OR age > 60")
    button = one.page.get_by_role("button", name="Ask", exact=True).and_(one.page.locator(":enabled"))
    button.wait_for()

    def lose(route):
        route.fetch()
        route.abort()

    one.page.route("**/ask", lose)
    button.click()
    one.page.get_by_text("The server can't be reached").wait_for()
    once = spent(one.page)
    assert once > 0
    one.page.unroute("**/ask")
    button.click()
    one.page.locator(".answer").wait_for()
    assert spent(one.page) == once
    first, again = (request.headers["idempotency-key"] for request in one.sent("/ask"))
    assert first == again


def test_completion_and_asking_by_keyboard_alone(signed_in):
    one = signed_in("analyst")
    page, press = one.page, one.page.keyboard.press
    for _ in range(30):
        press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TEXTAREA":
            break
    page.keyboard.type("smo")
    page.get_by_role("option", name="smoker").wait_for()
    assert page.get_by_label("Your question").get_attribute("aria-expanded") == "true"
    press("ArrowDown")
    assert page.get_by_role("option", name="smoker").get_attribute("aria-selected") == "true"
    press("Enter")
    assert page.get_by_label("Your question").input_value() == "smoker"
    assert page.locator(".suggestions").is_hidden()
    page.keyboard.type(" AND reg")
    press("ArrowDown")
    press("Tab")
    page.keyboard.type(" = 'So")
    press("ArrowDown")
    press("Enter")
    assert page.get_by_label("Your question").input_value() == "smoker AND region = 'South'"
    page.get_by_role("button", name="Ask", exact=True).and_(page.locator(":enabled")).wait_for()
    press("Control+Enter")
    page.locator(".answer").wait_for()
    assert page.locator(".answers").get_attribute("aria-live") == "polite"


def test_focus_is_visible_wherever_the_keyboard_goes(signed_in):
    page = signed_in("curator").page
    outline = "getComputedStyle(document.activeElement)"
    bare = f"{outline}.outlineStyle + {outline}.outlineWidth"
    seen = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        seen.add((page.evaluate("document.activeElement.tagName"), page.evaluate(bare)))
    assert {outline for tag, outline in seen if tag != "BODY"} == {"solid3px"}
    assert len({tag for tag, _ in seen}) >= 4


# -- rooms -------------------------------------------------------------------------------------------------------------


def test_an_analyst_sees_their_own_charges_and_no_one_elses(signed_in):
    one = signed_in("analyst")
    ask(one, "age > 77")
    other = signed_in("second")
    ask(other, "age > 33")
    other.page.goto(other.page.url.split("#")[0] + "#budget")
    other.page.locator("tbody tr").first.wait_for()
    text = other.page.locator("main").inner_text()
    assert "33" in text
    assert "77" not in text
    assert "ben" not in text
    assert other.page.locator(".chart .curve").count() == 1
    assert not other.page.get_by_role("link", name="Keys").count()
    boss = signed_in("curator")
    boss.page.get_by_role("link", name="Budget").click()
    boss.page.locator("tbody tr").first.wait_for()
    text = boss.page.locator("main").inner_text()
    assert all(words in text for words in ("ben", "cleo", "(age > 77)", "(age > 33)"))


def test_a_curator_makes_a_key_that_works_until_it_is_revoked(signed_in, tab, world):
    boss = signed_in("curator")
    boss.page.get_by_role("link", name="Keys").click()
    boss.page.get_by_label("Name").fill("dora")
    boss.page.get_by_label("Share of the budget").fill("2.5")
    boss.page.get_by_role("button", name="Make key").click()
    key = boss.page.locator(".secret").text_content()
    row = boss.page.get_by_role("row", name=re.compile("dora"))
    assert "2.5 %" in row.inner_text()
    world.keys["dora"] = key
    one = signed_in("dora")
    assert one.page.get_by_text("2.5 % left").count() == 1
    boss.page.get_by_role("button", name="Done, hide it").click()
    assert key not in boss.page.content()
    boss.page.get_by_role("button", name="Revoke the key of dora").click()
    boss.page.get_by_text("Really revoke").click()
    row.get_by_text("revoked").wait_for()
    one.page.reload()
    one.page.get_by_label("Your key").wait_for()


def test_a_share_that_is_not_there_is_refused_in_words(signed_in):
    page = signed_in("curator").page
    page.get_by_role("link", name="Keys").click()
    page.get_by_label("Name").fill("greedy")
    page.get_by_label("Share of the budget").fill("90")
    page.get_by_role("button", name="Make key").click()
    page.get_by_text("must sum to at most 1").wait_for()
    page.get_by_label("Share of the budget").fill("lots")
    page.get_by_role("button", name="Make key").click()
    page.get_by_text("must be a number of per cent").wait_for()


def test_a_release_is_followed_and_its_synopsis_is_free(signed_in):
    boss = signed_in("curator")
    boss.page.get_by_role("link", name="Releases").click()
    before = spent(boss.page)
    boss.page.get_by_label("Cost, % of the budget").fill("10")
    words = "Spends at most 10 % .* Expected error: about .* Nothing is spent yet"
    boss.page.get_by_text(re.compile(words)).wait_for()
    assert spent(boss.page) == before
    boss.page.get_by_role("button", name="Start the release").click()
    boss.page.get_by_role("link", name="Explore it for free").wait_for()
    one = signed_in("analyst")
    before = spent(one.page)
    one.page.get_by_role("link", name="Synopses").click()
    one.page.get_by_label("Ask it, for free").fill("smoker AND region = 'North'")
    one.page.get_by_role("button", name="Ask for free").click()
    one.page.locator(".answer").get_by_text("Free:").wait_for()
    assert spent(one.page) == before
    with one.page.expect_download() as file:
        one.page.get_by_role("button", name="Download the synopsis").click()
    assert dd.load(file.value.path()).ask("smoker AND region = 'North'").total > 0


def test_a_curator_defines_a_survey_and_finds_it_listed(signed_in, tab, world):
    boss = signed_in("curator")
    boss.page.get_by_role("link", name="Surveys").click()
    boss.page.get_by_label("Title").fill("Lunch")
    boss.page.get_by_label("Question", exact=True).fill("Where do you eat?")
    boss.page.get_by_label("Kind").select_option("choice")
    boss.page.get_by_label("Answers").fill("Canteen\nHome\n\nDesk")
    boss.page.get_by_role("button", name="Add a question").click()
    boss.page.get_by_label("Question", exact=True).nth(1).fill("For how many minutes?")
    boss.page.get_by_label("Kind").nth(1).select_option("number")
    boss.page.get_by_label("Ends of the ranges").fill("0, 10, 30, 90")
    boss.page.get_by_label("Epsilon").fill("1/2")
    boss.page.get_by_role("button", name="Make the survey").click()
    link = boss.page.locator(".notice.good a")
    link.wait_for()
    one = tab()
    one.page.goto(world.url + link.get_attribute("href"))
    one.page.get_by_role("radio", name="Canteen").wait_for()
    one.page.get_by_text("at most 1.6 times likelier").wait_for()
    assert "0" in boss.page.get_by_role("row", name=re.compile("Lunch")).inner_text()
    boss.page.get_by_role("button", name="Estimates of Lunch").click()
    boss.page.get_by_text("No reports yet.").wait_for()
    boss.page.get_by_role("button", name="Close Lunch").click()
    boss.page.get_by_role("row", name=re.compile("Lunch.*closed")).wait_for()


# -- hostile names, policy, people -------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["analyst", "curator"])
def test_names_that_are_markup_are_shown_and_run_nowhere(signed_in, who):
    """HOSTILE V58: a dataset, a column and a value of this name, through schema, answer, ledger and rooms."""
    one = signed_in(who)
    page = one.page
    page.get_by_label("Dataset").select_option(EVIL)
    page.get_by_role("heading", name=f"Ask {EVIL}").wait_for()
    assert page.locator(".columns code").first.text_content() == EVIL
    page.get_by_role("button", name="By group").click()
    text = page.get_by_label("Your question").input_value()
    assert f'"{EVIL}"' in text
    card = ask(one, text)
    card.locator(".chart .bar").first.wait_for()
    assert EVIL in card.inner_text()
    for room in ROOMS[who]:
        page.goto(page.url.split("#")[0] + f"#{room}")
        page.get_by_role("link", name=room.capitalize()).wait_for()
        page.wait_for_timeout(150)
        assert page.locator("img[src=x], main script").count() == 0
    assert one.faults == []


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.slow)])
@pytest.mark.parametrize("who", [pytest.param("analyst", marks=pytest.mark.slow), "curator"])
def test_every_room_fits_a_phone_and_a_desk(signed_in, who, width):
    one = signed_in(who, viewport={"width": width, "height": 740})
    ask(one, "SELECT region, COUNT(*) AS n FROM people GROUP BY region")
    assert one.overflow() <= 0
    for room in ROOMS[who]:
        one.page.goto(one.page.url.split("#")[0] + f"#{room}")
        one.page.locator("main h2").first.wait_for()
        one.page.wait_for_timeout(200)
        assert one.overflow() <= 0, room


def violations(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:160]}" for v in found if v["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_signed_out_there_is_no_serious_fault_of_accessibility(tab, world, scheme):
    one = tab(color_scheme=scheme)
    one.page.goto(world.url)
    assert violations(one.page) == []


FAST = [("analyst", "dark"), ("curator", "light")]
SLOW = [
    pytest.param(who, scheme, marks=pytest.mark.slow) for who, scheme in (("analyst", "light"), ("curator", "dark"))
]


@pytest.mark.parametrize(("who", "scheme"), FAST + SLOW)
def test_in_no_room_there_is_a_serious_fault_of_accessibility(signed_in, who, scheme):
    one = signed_in(who, color_scheme=scheme, reduced_motion="reduce")
    ask(one, "SELECT region, COUNT(*) AS n, AVG(income) AS m FROM people GROUP BY region")
    one.page.get_by_label("Your question").fill("sm")
    one.page.locator(".suggestions li").first.wait_for()
    assert violations(one.page) == []
    for room in ROOMS[who][1:]:
        one.page.goto(one.page.url.split("#")[0] + f"#{room}")
        one.page.locator("main h2").first.wait_for()
        one.page.wait_for_timeout(200)
        assert violations(one.page) == [], room
