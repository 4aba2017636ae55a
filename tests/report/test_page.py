"""The report page, in Chromium: what it says, how its parts are linked, and who can use it."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest
from browser import chromium, opened
from page_cases import GROUPS, IDS, TEXTS, K, N, document, picture, pool

import fairnepv
from fairnepv.report.page.run import Made, how_sure

pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def selection():
    return fairnepv.select(pool(), K, ids=IDS, effort="fast")


@pytest.fixture(scope="module")
def path(selection, tmp_path_factory):
    pictures = [
        None if i % 4 == 0 else b"no picture" if i % 4 == 1 else picture(i) for i in range(N)
    ]
    material = {"images": pictures, "texts": TEXTS, "groups": GROUPS}
    return selection.report(
        tmp_path_factory.mktemp("page") / "report.html", title="A pool", **material
    )


@pytest.fixture
def seen(browser, path):
    with opened(browser, path) as watched:
        yield watched
        assert watched.quiet(), watched


def texts(seen, selector):
    return seen.page.locator(selector).all_text_contents()


# --- what it says ---------------------------------------------------------------------------------


def test_the_picks_in_order_with_what_is_known_of_them(seen, selection):
    page = seen.page
    assert page.title().startswith("A pool")
    assert texts(seen, "h1") == ["A pool"]
    assert texts(seen, ".card .name") == selection.ids.tolist()
    assert texts(seen, ".card .group") == [GROUPS[i] for i in selection.indices]
    for card, row in zip(page.locator(".card").all(), selection.indices, strict=True):
        said = card.text_content()
        assert (TEXTS[row] or "no text").strip() in said
        assert ("no picture" in said) == (row % 4 == 0)
        assert ("unreadable" in said) == (row % 4 == 1)
        assert card.locator("img").count() == (row % 4 > 1)


def test_sections_answer_in_their_order(seen):
    assert texts(seen, "main h2") == [
        "What was chosen?",
        "Is every view served?",
        "Where do the picks lie?",
        "Which items does a pick stand for?",
        "What would others have missed?",
        "How sure are we?",
        "How did it run?",
    ]


def test_bars_have_every_selector_and_the_view_that_it_leaves_behind(seen, selection, path):
    rows = document(path)["selectors"]
    assert [row["method"] for row in rows] == ["auto", "text-only", "vision-only", "random"]
    lines = seen.page.locator("#bars tbody tr").all()
    for line, row in zip(lines, rows, strict=True):
        said = line.text_content()
        assert all(value in said for value in (row["method"], row["fair"], *row["said"]))
    assert lines[1].locator(".left").text_content() == "vision"
    assert lines[2].locator(".left").text_content() == "text"
    ours = [np.exp(d) for d in selection.scores.values()]
    assert rows[0]["lengths"] == pytest.approx(ours)
    assert rows[0]["said"] == [f"{length:.3f}" for length in ours]
    bars = [fill.bounding_box()["width"] for fill in lines[0].locator(".fill").all()]
    tracks = [track.bounding_box()["width"] for track in lines[0].locator(".track").all()]
    bounds = [np.exp(selection.certificate.by_view[name]) for name in selection.scores]
    for bar, track, q in zip(bars, tracks, range(2), strict=True):
        end = 1.03 * max(bounds[q], *(row["lengths"][q] for row in rows))
        assert bar == pytest.approx(track * ours[q] / end, abs=1.5)
    assert seen.page.locator("#bars .bound").count() == 2 * len(rows)
    assert all("leaves" in line for line in texts(seen, "#behind li"))


def test_an_efficiency_that_holds_is_not_rounded_up(selection):
    proven = selection.fair_score - np.log(0.977666)
    found = replace(selection, certificate=None, proven=proven)
    facts = dict(how_sure(found, Made.in_python())["facts"])
    assert facts["efficiency"].startswith("97.76% of")


def test_certainty_and_run_in_words(seen, selection):
    words, facts = " ".join(texts(seen, "#sure-words p")), " ".join(texts(seen, "#sure-facts dd"))
    assert f"at least {np.floor(1000 * selection.efficiency) / 10:.1f}%" in words
    assert selection.status.value in words
    assert selection.status.name in facts
    assert "verify_bound" in texts(seen, "#verify code")[0]
    ran = " ".join(texts(seen, "#ran-facts dd"))
    assert fairnepv.__version__ in ran
    assert "rivals" in ran
    assert "objective" in " ".join(texts(seen, "#settings dt"))


def test_shares_are_said_as_shares(browser, tmp_path):
    found = fairnepv.select(pool(), K, objective="representative", effort="fast")
    page = found.report(tmp_path / "r.html")
    rows = document(page)["selectors"]
    assert rows[0]["said"] == [f"{100 * d:.1f}%" for d in found.scores.values()]
    with opened(browser, page) as seen:
        assert "representative" in seen.page.locator("#purpose").text_content()
        assert texts(seen, ".card .name") == [f"row {i}" for i in found.indices]
        assert seen.page.locator(".card .text").count() == 0
        assert seen.quiet()


def test_a_comparison_shows_its_rows(browser, tmp_path):
    methods = ["greedy", "averaged", "auto", "random"]
    found = fairnepv.compare(pool(), K, methods=methods, effort="fast")
    rows = document(found.report(tmp_path / "r.html"))["selectors"]
    assert [row["method"] for row in rows] == ["auto", "greedy", "averaged", "random"]
    for row in rows:
        assert row["fair"] == found[row["method"]].units.shown(found[row["method"]].fair_score)


def test_one_view_has_no_rival_view(tmp_path):
    found = fairnepv.select({"text": pool()["text"]}, K, effort="fast", certify=False)
    shown = document(found.report(tmp_path / "r.html"))
    assert [row["method"] for row in shown["selectors"]] == ["auto", "random"]
    assert shown["views"][0]["bound"] is None
    assert shown["sure"]["verify"] is None


# --- search, order, groups ------------------------------------------------------------------------


def test_search_and_groups_narrow_the_gallery(seen, selection):
    page = seen.page
    page.fill("#search", "WORDS green")
    wanted = [i for i in selection.indices if TEXTS[i] and GROUPS[i] == "green"]
    assert texts(seen, ".card .name") == [IDS[i] for i in wanted]
    assert page.locator("#count").text_content() == f"{len(wanted)} of {K} picks"
    page.fill("#search", "")
    page.select_option("#group", label=next(o for o in texts(seen, "#group option") if "red" in o))
    assert texts(seen, ".card .name") == [IDS[i] for i in selection.indices if GROUPS[i] == "red"]
    page.fill("#search", "nothing like it")
    assert page.locator(".card").count() == 0
    assert "No pick matches" in page.locator("#gallery").text_content()


def test_picks_are_sorted(seen, selection):
    page = seen.page
    page.select_option("#sort", "name")
    assert texts(seen, ".card .name") == sorted(selection.ids)
    page.select_option("#sort", "gain vision")
    order = np.argsort(-selection.gains["vision"], kind="stable")
    assert texts(seen, ".card .name") == selection.ids[order].tolist()
    page.select_option("#sort", "stands")
    counts = fairnepv.assign(selection).counts
    order = np.lexsort((np.arange(K), -counts))
    assert texts(seen, ".card .name") == selection.ids[order].tolist()


# --- linking --------------------------------------------------------------------------------------


def place(path, which, item, canvas):
    """Where an item is on a map, in pixels of the window."""
    xy = np.frombuffer(base64.b64decode(document(path)["points"]["maps"][which]["xy"]), "<u2")
    x, y = xy.reshape(-1, 2)[item] / 65535
    box = canvas.bounding_box()
    room = box["width"] - 2 - 20
    return box["x"] + 1 + 10 + room * x, box["y"] + 1 + 10 + room * (1 - y)


def test_a_card_is_linked_to_panel_and_maps(seen, selection):
    page, canvas = seen.page, seen.page.locator("canvas").nth(1)
    canvas.scroll_into_view_if_needed()
    before = canvas.screenshot()
    page.locator(".card").nth(3).click()
    assert page.locator(".card").nth(3).get_attribute("aria-pressed") == "true"
    assert selection.ids[3] in page.locator("#panel").text_content()
    assert f"pick 4 of {K}" in page.locator("#live").text_content()
    page.evaluate("document.getElementById('panel').style.visibility = 'hidden'")
    canvas.scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    assert canvas.screenshot() != before
    page.evaluate("document.getElementById('panel').style.visibility = ''")
    page.get_by_label("Next pick").click()
    assert selection.ids[4] in page.locator("#panel").text_content()
    page.get_by_label("Close").click()
    assert page.locator("#panel").is_hidden()


@pytest.mark.parametrize("which", [0, 1])
def test_a_map_is_linked_to_the_gallery(seen, selection, path, which):
    page, canvas = seen.page, seen.page.locator("canvas").nth(which)
    canvas.scroll_into_view_if_needed()
    for item in (0, 7):
        page.mouse.move(*place(path, which, item, canvas))
        assert selection.ids[item] in page.locator("#tip").text_content()
        assert "over" in page.locator(".card").nth(item).get_attribute("class")
        page.mouse.click(*place(path, which, item, canvas))
        assert page.locator(".card").nth(item).get_attribute("aria-pressed") == "true"
        page.keyboard.press("Escape")
        canvas.scroll_into_view_if_needed()
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden()


def test_other_items_say_which_pick_stands_for_them(seen, selection):
    nearest = fairnepv.assign(selection)
    strip = seen.page.locator("#strips li").first
    largest = int(nearest.counts.argmax())
    assert f"stands for {nearest.counts[largest]} items" in strip.text_content()
    like = strip.locator(".like .tile")
    rows = np.setdiff1d(np.flatnonzero(nearest.pick == largest), selection.indices)
    wanted = rows[np.argsort(-nearest.similarity[rows], kind="stable")][:6]
    assert [t.get_attribute("aria-label").split(",")[0] for t in like.all()] == [
        IDS[i] for i in wanted
    ]
    like.first.click()
    panel = seen.page.locator("#panel").text_content()
    assert f"{selection.ids[largest]} stands for it" in panel


def test_what_others_missed_is_side_by_side(seen, selection, path):
    page = seen.page
    for row in document(path)["selectors"][1:]:
        page.get_by_label(row["method"], exact=True).check()
        assert row["sentence"] in page.locator("#missed-lead").text_content()
        ours, theirs = (
            [tile.get_attribute("aria-label").split(",")[0] for tile in side.locator(".tile").all()]
            for side in page.locator("#sides .side").all()
        )
        picks = {IDS[i] for i in selection.indices}
        assert row["shared"] + len(ours) == K
        assert set(ours) <= picks
        assert not set(theirs) & picks
        assert len(theirs) == len(ours)


# --- keyboard, screen readers, looks --------------------------------------------------------------


def test_the_keyboard_reaches_everything(seen, selection):
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#group").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.item") == "0"
    for key, item in (("ArrowRight", "1"), ("ArrowLeft", "0"), ("End", str(K - 1)), ("Home", "0")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.item") == item
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert selection.ids[0] in page.locator("#panel").text_content()
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    page.locator("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert f"pick 2 of {K}" in page.locator("#live").text_content()


NAMELESS = """() => {
  const kinds = "button, input, select, canvas, img, [role=img], section, nav, aside";
  const named = (e) => ["aria-label", "aria-labelledby", "alt"].some((name) => e.hasAttribute(name))
    || e.textContent.trim() || e.labels?.length;
  const all = [...document.querySelectorAll(kinds)];
  return all.filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 120));
}"""


def test_everything_has_a_name_and_a_landmark(seen, selection):
    nameless = seen.page.evaluate(NAMELESS)
    assert nameless == []
    for landmark in ("main", "nav", "header", "aside", "[role=search]"):
        assert seen.page.locator(landmark).count() == 1
    for map_ in seen.page.locator(".plane").all():
        map_.locator("summary").click()
        map_.locator("tbody tr").nth(K - 1).wait_for()
        assert map_.locator("tbody tr").count() == K
        assert selection.ids[5] in map_.locator("tbody").text_content()


def test_dark_and_light_follow_the_system_and_the_button(browser, path):
    def ground(page):
        colours = re.findall(
            r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor")
        )
        return sum(map(int, colours[:3]))

    for scheme in ("light", "dark"):
        with opened(browser, path, scheme=scheme) as seen:
            assert (ground(seen.page) < 150) == (scheme == "dark")
            seen.page.click("#theme")
            assert (ground(seen.page) < 150) == (scheme == "light")
            assert seen.quiet()


@pytest.mark.parametrize("width", [360, 800, 1500])
def test_nothing_is_wider_than_the_window(browser, path, width):
    with opened(browser, path, width=width) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.quiet()


# --- what is handed in ----------------------------------------------------------------------------


def test_no_secret_of_an_address_is_on_the_page(selection, tmp_path):
    command = "fairnepv select --view a=s3://key:s3cret@bucket/a.npy -k 12"
    made = Made(command, command.replace("select", "verify-bound"))
    path = selection.report(tmp_path / "r.html", made=made)
    assert "s3://bucket/a.npy" in document(path)["ran"]["command"]
    assert "s3cret" not in path.read_text()


def test_what_is_handed_in_wrongly_is_refused(selection, tmp_path):
    for wrong, said in (
        ({"texts": TEXTS[1:]}, "texts must have one value for every row of the pool, 90 in all"),
        ({"images": 3}, "images must have one value for every row"),
        ({"groups": ["a"]}, "groups must have one value"),
        ({"time_limit": -1}, "time_limit must be"),
        ({"picture": TEXTS}, "report does not know"),
        ({"atlas": tmp_path / "a.csv"}, "give one of .parquet"),
    ):
        with pytest.raises(fairnepv.InputError, match=re.escape(said)):
            selection.report(tmp_path / "r.html", **wrong)
    with pytest.raises(fairnepv.InputError, match=r"give one of \.html"):
        selection.report(tmp_path / "r.pdf")
    assert not list(tmp_path.iterdir())


def test_texts_may_be_a_mapping_from_ids_and_ids_may_come_late(tmp_path):
    found = fairnepv.select(pool(), K, effort="fast", certify=False)
    last = IDS[found.indices[-1]]
    shown = document(found.report(tmp_path / "r.html", ids=IDS, texts={last: "the last"}))
    assert shown["names"][:K] == [IDS[i] for i in found.indices]
    assert shown["texts"][:K] == [None] * (K - 1) + ["the last"]
    assert shown["named_by"] == "id"


def test_groups_of_quotas_are_groups_of_the_page(tmp_path):
    found = fairnepv.select(pool(), K, groups=GROUPS, effort="fast", certify=False)
    shown = document(found.report(tmp_path / "r.html"))
    assert [shown["groups"][g] for g in shown["group"][:K]] == [GROUPS[i] for i in found.indices]


# --- sizes and limits -----------------------------------------------------------------------------


def test_fifty_thousand_points_are_below_five_megabytes(browser, tmp_path):
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal((50_000, 4), dtype=np.float32) for name in ("a", "b")}
    ids = [f"a-name-{i:06}" for i in range(50_000)]
    found = fairnepv.compare(data, 100, ids=ids, methods=["random"], effort="fast", gap=1.0)
    path = found.report(tmp_path / "r.html", images=[picture(0)] * 50_000)
    assert path.stat().st_size < 5_000_000
    assert document(path)["points"]["count"] == 50_000
    with opened(browser, path) as seen:
        assert seen.page.evaluate("document.documentElement.dataset.ready") == "true"
        assert seen.quiet()
