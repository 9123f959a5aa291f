"""The page's files: served with the right types, kept but checked, and free of whatever a strict policy must forbid."""

import re
from fractions import Fraction

import pytest

from dodona.mechanisms.fixed import exp_bracket
from dodona.server.routes import assets

FILES = assets()
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


@pytest.mark.parametrize("name", sorted(name for name in FILES if not name.endswith(".html")))
def test_a_file_has_its_type_and_may_be_kept_but_is_checked(house, name):
    path = f"/assets/{name}"
    found = house.send("GET", path, None)
    assert found.status_code == 200
    assert found.headers["content-type"] == TYPES[name.rsplit(".", 1)[1]]
    assert found.headers["cache-control"] == "no-cache"
    assert "default-src 'none'" in found.headers["content-security-policy"]
    again = house.send("GET", path, None, headers={"If-None-Match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/", "/survey/anything"])
def test_documents_are_html_and_the_same_for_everyone(house, path):
    found = house.send("GET", path, None)
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.content == house.send("GET", path, "a").content


@pytest.mark.parametrize(
    "path", ["/assets/none.js", "/assets/index.html", "/assets/..%2fapp.py", "/assets/", "/static/app.js"]
)
def test_nothing_else_is_served(house, path):
    assert house.send("GET", path, None).status_code == 404


def test_files_come_compressed_to_who_asks(house):
    plain = house.send("GET", "/assets/app.css", None, headers={"Accept-Encoding": "identity"})
    small = house.send("GET", "/assets/app.css", None, headers={"Accept-Encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) < len(plain.content) / 2
    assert small.content == plain.content


FORBIDDEN = {
    r"https?://(?!www\.w3\.org/2000/svg)": "nothing is loaded or linked from elsewhere",
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment": "no markup from data",
    r"\beval\(|new Function|setTimeout\(['\"`]": "no code from text",
    r"Math\.random\(": "chance comes from crypto",
    r"@import|url\(": "styles load nothing",
    r"\bon[a-z]+=\"|javascript:|<style|\sstyle=": "no inline code or style",
    r"localStorage.{0,40}key|document\.cookie": "a key is never kept beyond the tab",
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_file_does_what_the_policy_forbids(pattern):
    # Comments may name what is forbidden; code may not do it.
    code = {name: re.sub(r"^\s*//.*$", "", file.body.decode(), flags=re.MULTILINE) for name, file in FILES.items()}
    assert [name for name, text in code.items() if re.search(pattern, text)] == [], FORBIDDEN[pattern]


def test_every_module_that_is_imported_is_there_and_every_one_is_used():
    found = {
        name: set(re.findall(r'(?:from |import\()"\./([a-z_]+\.js)"', file.body.decode()))
        for name, file in FILES.items()
    }
    documents = "".join(FILES[name].body.decode() for name in ("index.html", "survey.html"))
    used = set().union(*found.values()) | set(re.findall(r"/assets/([a-z_]+\.\w+)", documents))
    assert used == {name for name in FILES if not name.endswith(".html")}


def test_files_stay_small_enough_to_read():
    assert max(file.body.count(b"\n") for file in FILES.values()) <= 400
    assert sum(len(file.body) for file in FILES.values()) < 150_000


def test_the_cap_of_the_page_is_e_to_the_four_rounded_down():
    text = FILES["account.js"].body.decode()
    top, shift = map(int, re.search(r"top: (\d+)n, bottom: 1n << (\d+)n", text).groups())
    low, high = exp_bracket(Fraction(4), 300)  # of e^-4, in units of 2^-300
    assert Fraction(top, 2**shift) <= Fraction(2**300, high)
    assert Fraction(top + 1, 2**shift) > Fraction(2**300, low)
