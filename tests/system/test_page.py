"""The page in a real browser, on a real server: the first view, prices before spending, answers, charts, keyboard."""

import csv
import json
import re
import time

import pytest

from tests.support.pages import REGIONS, ask, spent

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


def test_a_select_is_priced_column_by_column_and_says_what_it_leaves_out(signed_in):
    """The price of an average per group read "± 141 to ± 28,200,000"."""
    one = signed_in("analyst")
    one.page.get_by_label("Your question").fill(
        "SELECT region, COUNT(*) AS n, AVG(income) AS m FROM people GROUP BY region"
    )
    one.page.locator(".figures").wait_for()
    told = one.page.locator(".price").inner_text()
    assert re.search(r"Error of n\s+± [\d.,]+\s+in every group", told, re.IGNORECASE)
    assert re.search(r"Error of m\s+± [\d.,]+\s+in a group of [\d,]+ rows", told, re.IGNORECASE)
    card = ask(one, "SELECT AVG(income) AS m FROM people WHERE age > 40", 60)
    assert "(proven)" in card.inner_text()
    card.locator("summary", has_text="The error is of noise only").click()
    assert "counts as" in card.locator(".left-out li").first.inner_text()


def test_what_is_left_out_is_counted_at_the_press_of_a_button(signed_in):
    one = signed_in("analyst")
    before = spent(one.page)
    one.page.locator("summary", has_text="What is left out?").click()
    assert "It spends" in one.page.locator(".losses").inner_text()
    one.page.get_by_role("button", name="Count what is left out").click()
    card = one.page.locator("article.answer").first
    card.locator("table").wait_for()
    assert "missing" in card.inner_text()
    assert one.sent("/losses") != []
    assert spent(one.page) != before


def test_groups_are_bars_with_error_bars_and_a_table_says_the_same(signed_in, world):
    one = signed_in("analyst")
    card = ask(one, "SELECT region, COUNT(*) AS n, AVG(income) AS mean FROM people GROUP BY region", 60)
    card.locator(".chart .bar").first.wait_for()
    assert card.locator(".chart .bar").count() == card.locator(".chart .whisker").count() == 5
    assert "n by region" in card.locator("svg").get_attribute("aria-label")
    rows = [row.locator("td").all_text_contents() for row in card.locator("tbody tr").all()]
    assert [row[0] for row in rows] == [*REGIONS, "(other)"]
    for region, count, _ in rows[:4]:
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
            assert found[0] == ["region", "n", "n_margin", "mean", "mean_margin", "notes"]
            assert found[1][-1].startswith("± at 95 %, proven; noise only: ")
            assert [row[0] for row in found[1:]] == [*REGIONS, "(other)"]
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
    assert card.locator(".chart .dot").count() + 1 == card.locator("tbody tr").count() >= 7  # (other) is in the table


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
