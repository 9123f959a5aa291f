"""The page's rooms in a real browser: budget, keys, releases, surveys; hostile names, phones, accessibility."""

import re

import pytest

import dodona as dd
from tests.support.pages import EVIL, ask, spent

ROOMS = {
    "analyst": ["ask", "budget", "synopses"],
    "curator": ["ask", "budget", "synopses", "keys", "releases", "surveys"],
}


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
    one.page.get_by_text("at most 1.65 times likelier").wait_for()
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
