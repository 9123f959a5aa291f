"""The survey page in a real browser: what will be sent is shown before it is sent, one report, caps, estimates."""

import json
import math
import os
import re

import pytest

from dodona.local.client import Client
from dodona.server.surveys.store import SurveyStore
from dodona.server.surveys.survey import Survey
from tests.support.pages import QUESTIONS

AXE = "serious", "critical"


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


def answered(page):
    """All three questions, as a person would."""
    page.get_by_role("radio", name="Yes").check()
    page.get_by_role("radio", name="Bicycle").check()
    page.get_by_role("spinbutton").fill("44")


ACCOUNT = """text => new Promise((resolve, reject) => {
  const asked = indexedDB.open("dodona.reports", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("account");
  asked.onerror = () => reject(asked.error);
  asked.onsuccess = () => {
    const shelf = asked.result.transaction("account", "readwrite").objectStore("account");
    const done = text === null ? shelf.get("dodona.reports") : shelf.put(text, "dodona.reports");
    done.transaction.oncomplete = () => { asked.result.close(); resolve(done.result ?? null); };
  };
})"""
"""What the browser keeps of its reports, or, with a text, that instead."""


def counted(folder, survey):
    store = SurveyStore(folder / "dodona.surveys")
    try:
        return {id: collector.reports for id, collector in store.collectors(survey).items()}
    finally:
        store.close()


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
    review.get_by_text("at most 2.72 times likelier").wait_for()
    review.get_by_text("nobody, not even those who run this survey, can tell").wait_for()
    assert one.sent("/reports") == []
    assert "review" in one.page.evaluate("document.activeElement.closest('section').className")
    shown = json.loads(review.locator("pre").text_content())
    assert one.page.evaluate(ACCOUNT, None) is None
    review.get_by_role("button", name="Send this report").click()
    one.page.get_by_text("Your report was counted once").wait_for()
    (sent,) = one.sent("/reports")
    assert json.loads(sent.post_data) == shown
    assert sum(counted(folder, survey).values()) == 1
    kept = one.page.evaluate(ACCOUNT, None)
    assert one.page.evaluate("localStorage.length") == 0
    ((about, entry),) = json.loads(kept).items()
    # Which survey, that it was sent and what it cost, which every report to this survey costs: nothing that was said.
    assert (about, entry.pop("body"), entry.pop("sent")) == (survey.id, None, True)
    assert [*entry] == ["odds"]
    assert 2.71 < int(entry["odds"][0]) / int(entry["odds"][1]) <= math.e
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
    one.page.get_by_text("at most 54.59 times (epsilon 4)").wait_for()
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


@pytest.mark.parametrize("kept", ["{", "[]", "null", "7", '{"x": {}}', '{"x": {"odds": ["0", "0"]}}', '{"x": 1}'])
def test_an_account_that_cannot_be_read_is_no_empty_one(tab, url, define, kept):
    survey = define(questions=[QUESTIONS[0]])
    one = tab()
    one.page.goto(url)
    one.page.evaluate(ACCOUNT, kept)
    one.page.goto(f"{url}/survey/{survey.id}")
    one.page.get_by_text("can't be read, so it can't tell what is left").wait_for()
    assert one.page.locator("form, input").count() == 0
    assert one.page.evaluate(ACCOUNT, None) == kept
    assert one.sent("/reports") == []


@pytest.mark.parametrize(("odds", "taken"), [(["3", "1"], True), (["50", "1"], False)])
def test_what_an_older_page_kept_stays_spent(tab, url, define, odds, taken):
    one = tab()
    one.page.goto(url)
    before = json.dumps({"earlier": {"body": None, "odds": odds, "sent": True}})
    one.page.evaluate("text => localStorage.setItem('dodona.reports', text)", before)
    one.page.goto(f"{url}/survey/{define(questions=[QUESTIONS[0]]).id}")
    role, name = ("button", "Prepare my report") if taken else ("heading", "Your browser refuses this survey")
    one.page.get_by_role(role, name=name).wait_for()


def test_a_browser_that_keeps_nothing_sends_nothing(tab, url, define):
    survey = define(questions=[QUESTIONS[0]])
    one = tab()
    one.page.add_init_script("Object.defineProperty(window, 'indexedDB', { value: undefined })")
    one.page.goto(f"{url}/survey/{survey.id}")
    one.page.get_by_text("can't be read, so it can't tell what is left").wait_for()
    assert one.page.locator("form, input").count() == 0


@pytest.mark.parametrize(
    "change", [{"labels": ["Bus", "Car"]}, {"labels": ["Bus", "Car", "Bicycle", "On foot", "Ferry"]}]
)
def test_a_form_whose_answers_and_symbols_differ_in_number_is_refused(tab, url, define, change):
    survey = define(questions=[QUESTIONS[1]])
    one = tab()

    def lie(route):
        form = route.fetch().json()
        route.fulfill(json={**form, "questions": [{**form["questions"][0], **change}]})

    one.page.route(f"**/v1/surveys/{survey.id}", lie)
    one.page.goto(f"{url}/survey/{survey.id}")
    one.page.get_by_role("heading", name="Your browser refuses this survey").wait_for()
    assert one.page.locator("form, input").count() == 0
    assert one.sent("/reports") == []


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
    assert "Errors are proven, whatever the answers are" in one.page.locator(".estimates").text_content()
    # A margin of 95 % is at least 1.95 deviations, and three of them are missed once in 200 million runs.
    assert abs(share - 50) <= 3 * margin
    assert margin < 30


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


def test_a_text_is_asked_for_and_its_report_counts(tab, url, folder, define):
    word = {"text": "Which word?", "kind": "text", "alphabet": " abcdefghijklmnopqrstuvwxyz", "length": 6}
    survey = define(epsilon="2", questions=[word])
    one = tab()
    one.page.goto(f"{url}/survey/{survey.id}")
    one.page.get_by_role("button", name="Prepare my report").click()
    one.page.get_by_text("Please choose an answer.").wait_for()
    one.page.get_by_role("textbox").fill("  Banana split")
    one.page.get_by_text("Counts as: \u201cbanana\u201d.").wait_for()
    one.page.get_by_role("button", name="Prepare my report").click()
    told = one.page.locator(".review").inner_text()
    assert "of a text. It fits about one of every 8 texts" in told
    assert "banana" not in told.lower()
    one.page.get_by_role("button", name="Send this report").click()
    one.page.get_by_text("Your report was counted once").wait_for()
    (sent,) = one.sent("/reports")
    assert "banana" not in sent.post_data
    assert counted(folder, survey) == {"q1": 1}
    one.page.get_by_text("No text stands out of the noise yet.").wait_for()
    assert one.faults == []
