"""The viewer's page in a browser: from a file and live, by pointer and by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.view.lab import big_view, keep, search, until
from ttc.testing import FakeEngine
from ttc.view import RunView, view, written
from ttc.view.page import written_page

pytestmark = pytest.mark.browser

Open = Callable[..., Any]
HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script></script></div></style>"
    "{{SCRIPT}} \u202egnp.exe\u202c \u0000\u001b[31m &lt; <!-- 'x\" javascript:alert(3)"
)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A beam search, kept."""
    path = tmp_path_factory.mktemp("runs") / "search.journal"
    keep(path)
    return path


@pytest.fixture(scope="module")
def file(journal: Path) -> Path:
    """Its page."""
    path = journal.with_suffix(".html")
    path.write_text(written(journal), encoding="utf-8")
    return path


def chosen_of(journal: Path) -> str:
    """The call that was chosen."""
    return str(view(journal).votes.chosen)


def click(page: Any, call: str) -> None:
    """Clicks at a call where it is drawn."""
    page.click("#fit")
    page.wait_for_timeout(50)
    x, y = page.evaluate("(id) => ttcView.place(id)", call)
    page.click("#canvas", position={"x": x, "y": y})


def selected(page: Any) -> Any:
    return page.evaluate("ttcView.selected()")


def test_the_page_tells_what_the_run_came_to(open_page: Open, file: Path) -> None:
    page = open_page(file)

    assert page.inner_text("#state") == "finished"
    assert page.inner_text(".figures .answer dd").startswith("205")
    assert page.locator("#graph .node").count() == 3
    assert page.locator("#vote button.chosen").inner_text().startswith("✓ 205")
    assert page.locator("#budget svg path").count() >= 2
    assert "policy" in page.inner_text("#roles")
    assert page.evaluate("ttcView.shown()") == 81


def test_a_click_shows_the_text_of_a_call_with_its_tokens(
    open_page: Open, file: Path, journal: Path
) -> None:
    page = open_page(file)
    call = "0.beam_search#1"

    click(page, call)

    told = view(journal).text(call)
    assert told is not None
    page.wait_for_selector("#details .text span")
    assert selected(page) == call
    assert page.locator("#details .text span").count() == len(told["pieces"])
    assert page.inner_text("#details .id") == call
    shades = page.eval_on_selector_all(
        "#details .text span", "(all) => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert all(shade.startswith("rgba(217, 102, 10") for shade in shades)


def test_what_was_chosen_is_shown_first(open_page: Open, file: Path, journal: Path) -> None:
    page = open_page(file)

    assert selected(page) == chosen_of(journal)
    assert page.locator("#details .chip.chosen").count() == 1
    page.wait_for_selector("#details .way button")
    assert page.locator("#details .way button").count() >= 3


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("borrow an hour", lambda row, text: "borrow an hour" in text),
        ("score>0.8", lambda row, text: row.get("score", 0) > 0.8),
        ("status:pruned score<0.3", lambda r, _: r["status"] == "pruned" and r["score"] < 0.3),
        ("0.beam_search#80", lambda row, text: row["id"] == "0.beam_search#80"),
        ("no such words", lambda row, text: False),
    ],
)
def test_the_filter_finds_what_holds_its_words(
    open_page: Open, file: Path, journal: Path, text: str, matches: Callable[..., bool]
) -> None:
    page, seen = open_page(file), view(journal)
    rows = seen.document()["rows"]
    expected = [r["id"] for r in rows if matches(r, str((seen.text(r["id"]) or {}).get("text")))]

    page.fill("#filter", text)

    until(page, "document.getElementById('matches').textContent !== ''")
    assert sorted(page.evaluate("ttcView.matching()")) == sorted(expected)
    assert page.inner_text("#matches") == f"{len(expected)} of 81"
    if expected:
        page.press("#filter", "Enter")
        assert selected(page) in expected


def test_a_vote_shows_its_candidates(open_page: Open, file: Path, journal: Path) -> None:
    page = open_page(file)
    (vote,) = view(journal).document()["votes"]

    page.click("#vote button >> nth=2")

    until(page, "ttcView.matching() !== null")
    assert sorted(page.evaluate("ttcView.matching()")) == sorted(vote["groups"][2]["calls"])
    assert page.get_attribute("#vote button >> nth=2", "aria-pressed") == "true"
    page.click("#vote button >> nth=2")
    until(page, "ttcView.matching() === null")


def test_a_status_can_be_hidden(open_page: Open, file: Path) -> None:
    page = open_page(file)
    pruned = int(page.inner_text("[data-status=pruned] b"))

    page.click("[data-status=pruned]")

    until(page, "ttcView.matching() !== null")
    assert len(page.evaluate("ttcView.matching()")) == 81 - pruned
    assert page.get_attribute("[data-status=pruned]", "aria-pressed") == "false"


def test_the_tree_is_walked_by_keyboard(open_page: Open, file: Path) -> None:
    """As a tree is by the authoring practices of ARIA; a reader of screens is told where it is."""
    page = open_page(file)
    page.focus("#tree")
    page.keyboard.press("Home")
    assert selected(page).startswith("prompt#")
    item = page.locator("#current")
    assert (item.get_attribute("role"), item.get_attribute("aria-level")) == ("treeitem", "1")

    page.keyboard.press("ArrowRight")
    first = selected(page)
    assert item.get_attribute("aria-level") == "2"
    assert (item.get_attribute("aria-posinset"), item.get_attribute("aria-setsize")) == ("1", "16")
    page.keyboard.press("ArrowDown")
    assert selected(page) != first
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert (selected(page), item.get_attribute("aria-expanded")) == (first, "false")
    page.keyboard.press("ArrowLeft")
    assert selected(page).startswith("prompt#")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "details"


def test_a_node_is_collapsed_and_expanded(open_page: Open, file: Path) -> None:
    page = open_page(file)
    page.focus("#tree")
    page.keyboard.press("Home")

    page.keyboard.press(" ")
    assert page.evaluate("ttcView.shown()") == 1
    assert page.get_attribute("#current", "aria-expanded") == "false"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("ttcView.shown()") == 81
    page.click("#fold")
    assert page.evaluate("ttcView.shown()") == 17
    page.click("#unfold")
    assert page.evaluate("ttcView.shown()") == 81


def test_the_tree_is_zoomed_and_dragged(open_page: Open, file: Path) -> None:
    page = open_page(file)
    place = "ttcView.place('0.beam_search#1')"
    before = page.evaluate(place)
    box = page.locator("#canvas").bounding_box()

    page.mouse.move(box["x"] + 400, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] + 450, box["y"] + 260, steps=3)
    page.mouse.up()
    after = page.evaluate(place)
    assert [round(after[0] - before[0]), round(after[1] - before[1])] == [50, -40]

    page.click("#zoom-in")
    assert page.evaluate("ttcView.zoom()") > 0
    page.focus("#tree")
    page.keyboard.press("0")
    assert page.evaluate("ttcView.zoom()") == 0


def test_everything_is_reached_by_tab_and_has_a_name(open_page: Open, file: Path) -> None:
    page = open_page(file)
    names: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        told = page.evaluate(
            "(() => { const at = document.activeElement; if (at === document.body) return null;"
            " const name = ['aria-label', 'aria-labelledby'].map((n) => at.getAttribute(n));"
            " return [at.id || at.className.baseVal || at.className || at.tagName,"
            " name[0] || name[1] || at.textContent.trim(),"
            " getComputedStyle(at).outlineStyle !== 'none' || at.matches('.node')]; })()"
        )
        if told is None:
            break
        assert told[1], f"{told[0]} has no name"
        assert told[2], f"{told[0]} does not show that it has the focus"
        names.append(told[0])

    assert names[0] == "skip"
    for wanted in ("theme", "node", "filter", "tree", "details", "fit"):
        assert wanted in names


def test_hostile_text_stays_text(open_page: Open, tmp_path: Path) -> None:
    """In the tree, the details, the vote, the question, the title and the name of the file."""
    path = tmp_path / "<b>run.journal"
    reply = HOSTILE + " The answer is 5." + "\u202e"
    keep(path, search(2, 2), engine=FakeEngine(reply), question=HOSTILE)
    file = tmp_path / "run.html"
    file.write_text(written(path), encoding="utf-8")
    page = open_page(file)
    click(page, "0.beam_search#1")
    page.wait_for_selector("#details .text span")

    text = page.inner_text("#details .text")
    assert "<img src=x onerror=alert(1)>" in text
    assert "U+202E\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}gnp.exe" in text
    assert "\u202e" not in page.inner_text("body")
    assert page.locator("img, iframe, object, #details script").count() == 0
    assert page.inner_text("#question").startswith("<img src=x")
    assert page.inner_text("#name") == "<b>run"


def test_a_huge_text_is_shown_in_part_and_says_so(open_page: Open, tmp_path: Path) -> None:
    run = RunView("huge")
    run.begin({"problem": {"prompt": "q " * 200_000}}, {"nodes": {}, "edges": []})
    run.prompt("prompt#policy:0", "policy", "word " * 400_000)
    run.asked("0.sample#0", parent="prompt#policy:0", given="", role="policy", at=0.0)
    run.texts.learn("e", {"7": " word"})
    run.texts.put("0.sample#0", engine="e")
    segment = {"text": " word" * 9_000, "token_ids": [7] * 9_000, "logprobs": [-1.0] * 9_000}
    run.answered("0.sample#0", segment, 1.0)
    file = tmp_path / "huge.html"
    file.write_text(written_page(run.document(), run.texts.all()), encoding="utf-8")
    page = open_page(file)

    page.focus("#tree")
    page.keyboard.press("Home")
    page.wait_for_selector("#details .text")
    assert page.inner_text("#details .text").endswith("… (1,940,000 more letters)")
    page.keyboard.press("End")
    page.wait_for_selector("#details .text span")
    assert page.locator("#details .text span").count() == 3_000
    assert page.inner_text("#details .text").endswith("… (6,000 more tokens)")


def test_a_run_is_followed_while_it_grows(
    open_page: Open, serve: Callable[[Path], str], journal: Path, tmp_path: Path
) -> None:
    """Nothing is asked any more once it has ended."""
    lines = journal.read_bytes().splitlines(keepends=True)
    path = tmp_path / "live.journal"
    path.write_bytes(b"".join(lines[:40]))
    page = open_page(serve(path))
    before = page.evaluate("ttcView.shown()")
    assert page.inner_text("#state") == "unfinished"
    assert 1 < before < 81

    with path.open("ab") as growing:
        growing.write(b"".join(lines[40:]))
    page.reload()
    until(page, "window.ttcView && ttcView.shown() === 81")

    assert page.inner_text("#state") == "finished"
    assert page.inner_text(".figures .answer dd").startswith("205")
    page.wait_for_selector("#details .text span")
    page.fill("#filter", "borrow an hour")
    until(page, "(ttcView.matching() ?? []).length > 0")


def test_new_calls_appear_by_themselves(
    open_page: Open, serve: Callable[[Path], str], journal: Path, tmp_path: Path
) -> None:
    """While a process has the journal open, as a run has."""
    from ttc.lines import Lines

    lines = journal.read_bytes().splitlines()
    path = tmp_path / "live.journal"
    with Lines(path, is_whole=lambda line: False) as growing:
        for line in lines[:40]:
            growing.append(line)
        page = open_page(serve(path))
        page.focus("#tree")
        page.keyboard.press("Home")
        assert page.inner_text("#state") == "running"
        for line in lines[40:]:
            growing.append(line)
        until(page, "ttcView.shown() === 81")

    assert page.inner_text("#state") == "finished"
    assert selected(page).startswith("prompt#"), "what was selected stays so"
    assert page.evaluate("document.activeElement.id") == "tree"


def test_ten_thousand_nodes_are_drawn_only_where_they_can_be_seen(
    open_page: Open, tmp_path: Path
) -> None:
    """However far one zooms; `benchmarks/perf/viewer.py` measures how long a frame takes."""
    run = big_view(10_000)
    file = tmp_path / "big.html"
    file.write_text(written_page(run.document(), run.texts.all()), encoding="utf-8")
    page = open_page(file)
    assert page.evaluate("ttcView.shown()") == 10_001
    high = page.locator("#canvas").bounding_box()["height"]

    for _ in range(6):
        assert page.evaluate("ttcView.drawn()") <= 1.5 * (high + 80) * 8
        page.click("#zoom-in")
    assert page.evaluate("ttcView.drawn()") < 300
    page.fill("#filter", "(9999)")
    until(page, "(ttcView.matching() ?? []).length === 1")
    page.press("#filter", "Enter")
    assert selected(page) == "0.beam_search#9999"
    assert 0 < page.evaluate("ttcView.place('0.beam_search#9999')")[1] < high


def test_the_page_is_dark_where_that_is_asked_for(open_page: Open, file: Path) -> None:
    """By the system, or by its own switch."""
    page = open_page(file)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)

    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    page.click("#theme")
    assert page.get_attribute("#theme", "aria-label") == "Colours: light"
    assert page.evaluate(ground) == light != dark
    page.click("#theme")
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == dark


def test_a_narrow_page_has_no_sideways_scroll(open_page: Open, file: Path) -> None:
    page = open_page(file)
    for width in (1400, 1000, 700, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_run_without_calls_says_so(open_page: Open, browser: Any, tmp_path: Path) -> None:
    run = RunView("empty")
    file = tmp_path / "empty.html"
    file.write_text(written_page(run.document(), {}), encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(file.as_uri())

    assert page.inner_text("#nothing") == "No call has begun yet."
    assert page.inner_text("#vote") == "No candidate has reached a selector yet."
    assert page.inner_text("#budget") == "Nothing has been spent yet."
    context.close()
