"""What a stranger to the page expects of it: where one types, what survives a reload, tables, made-up rows, surveys."""

import csv
import json

import pytest

from tests.support.pages import QUESTIONS, ask

GROUPS = "SELECT region, COUNT(*) AS n FROM people GROUP BY region ORDER BY region"


def test_one_types_at_once_and_enter_completes(signed_in, tab, world):
    fresh = tab()
    fresh.page.goto(world.url)
    assert fresh.page.evaluate("document.activeElement.id") == "key"
    one = signed_in("analyst")
    assert one.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    box = one.page.get_by_label("Your question")
    box.press_sequentially("smo")
    one.page.locator(".suggestions li").first.wait_for()
    box.press("Enter")
    assert box.input_value() == "smoker"


def test_question_effort_and_answers_survive_a_reload_and_the_question_can_be_linked(signed_in, tab, world):
    one = signed_in("analyst")
    one.page.get_by_label("Cheap and rough").fill("30")
    ask(one, "age >= 40", 30)
    link = one.page.url
    assert world.keys["analyst"] not in link
    one.page.reload()
    one.page.locator("article.answer").wait_for()
    assert one.page.get_by_label("Your question").input_value() == "age >= 40"
    assert one.page.get_by_label("Cheap and rough").input_value() == "30"
    assert len(one.sent("/ask")) == 1, "what is shown again is not asked again"
    one.page.get_by_role("button", name="Sign out").click()
    one.page.get_by_label("Your key").wait_for()
    assert one.page.evaluate("sessionStorage.length") == 0
    other = tab()
    other.page.goto(link)
    other.page.get_by_label("Your key").fill(world.keys["second"])
    other.page.keyboard.press("Enter")
    other.page.locator(".figures").wait_for()
    assert other.page.get_by_label("Your question").input_value() == "age >= 40"
    assert other.sent("/ask") == []


def test_a_table_is_sorted_by_a_header_and_searched(signed_in):
    one = signed_in("second")
    card = ask(one, "SELECT BUCKET(age, 16, 25, 35, 45, 55, 65, 95) AS ages, COUNT(*) AS n FROM people GROUP BY 1", 70)
    card.get_by_role("button", name="n", exact=True).click()
    shown = [
        float(row.split(" ± ")[0].replace(",", "")) for row in card.locator("tbody tr td.number").all_inner_texts()
    ]
    assert shown == sorted(shown)
    card.get_by_role("button", name="n", exact=True).click()
    again = [
        float(row.split(" ± ")[0].replace(",", "")) for row in card.locator("tbody tr td.number").all_inner_texts()
    ]
    assert again == shown[::-1]
    card.get_by_label("Rows that hold").fill("25, 35")
    assert card.locator("tbody tr:visible").count() == 1


def test_the_promise_is_told_in_words(signed_in):
    one = signed_in("analyst")
    told = one.page.locator(".schema").inner_text()
    assert "nobody can tell what a row holds" in told
    assert "protects: replace" not in one.page.content()


def test_made_up_rows_are_seen_and_downloaded(signed_in):
    one = signed_in("curator")
    made = one.page.evaluate(
        """async () => {
          const headers = { Authorization: `Bearer ${sessionStorage.getItem("dodona.key")}`,
                            "Content-Type": "application/json" };
          const body = JSON.stringify({ kind: "conjunctions", settings: { columns: ["smoker", "region"], width: 2 },
                                        effort: { share: 0.1 } });
          return (await fetch("/v1/datasets/people/releases", { method: "POST", headers, body })).status;
        }"""
    )
    assert made == 202
    one.page.get_by_role("link", name="Releases").click()
    one.page.get_by_role("link", name="Explore it for free").first.click()
    card = one.page.locator("section.card", has_text="Made-up rows").last
    card.locator("summary", has_text="Made-up rows").click()
    card.get_by_role("button", name="Preview").click()
    card.get_by_role("table").wait_for()
    assert card.locator("tbody tr").count() == 10
    assert "knows nothing of age, income" in card.inner_text()
    card.get_by_label("Rows", exact=True).fill("250")
    with one.page.expect_download() as file:
        card.get_by_role("button", name="Download made-up rows").click()
    with open(file.value.path(), encoding="utf-8", newline="") as text:
        rows = list(csv.reader(text))
    assert len(rows) == 251
    assert set(rows[0]) == {"smoker", "region"}


@pytest.mark.parametrize("epsilon", ["2", "1"])
def test_a_survey_says_how_many_people_it_takes_before_it_is_made(signed_in, epsilon):
    one = signed_in("curator")
    one.page.get_by_role("link", name="Surveys").click()
    one.page.get_by_label("Title").fill("Cars")
    one.page.get_by_label("Question", exact=True).fill(QUESTIONS[0]["text"])
    with one.page.expect_response(lambda reply: reply.url.endswith("/surveys/plan")) as reply:
        one.page.get_by_label("Epsilon for each respondent").fill(epsilon)
    found = json.loads(reply.value.body())
    (question,) = found["questions"]
    told = one.page.get_by_text("For shares within ± 5 % it takes about")
    told.wait_for()
    # A report of Warner has variance e/(e - 1)^2, and 95 % of a normal lie within 1.96 deviations: at least that many.
    e = 2.718281828 ** float(epsilon)
    low, high = 1.96**2 * e / (e - 1) ** 2 / 0.05**2, 8 * e / (e - 1) ** 2 / 0.05**2 + 2000
    assert low < question["people"] < high
