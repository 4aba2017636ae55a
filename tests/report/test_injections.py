"""Nothing in the data of a page runs, or asks a network."""

import pytest
from browser import chromium, opened
from page_cases import ISLAND, N, document, pool
from payloads import PAYLOADS, RUN

import fairnepv
from fairnepv.report import page as pages

pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


# What a text that was taken for markup would have left behind.
FOREIGN = r"""() => {
  const all = [...document.querySelectorAll("*")];
  const ours = /^(#|data:image\/(webp|png|jpeg);|data:,$)/;
  const links = all.map((e) => e.getAttribute("href") || e.getAttribute("src")).filter(Boolean);
  return {
    ran: window.payloadRan ?? null,
    scripts: document.scripts.length,
    foreign: document.querySelectorAll("iframe, object, embed, base, form, video, marquee").length,
    links: links.filter((address) => !ours.test(address)),
    handlers: all.flatMap((e) => e.getAttributeNames()).filter((name) => name.startsWith("on")),
    ready: document.documentElement.dataset.ready,
  };
}"""


# All that can be read on a page, or be heard.
TEXT = """() => {
  const all = [...document.querySelectorAll("*")];
  const attributes = all.flatMap((e) => e.getAttributeNames().map((name) => e.getAttribute(name)));
  return [document.title, document.body.textContent, ...attributes].join("\\n");
}"""


def stirred(browser, path):
    """The page after everything on it was opened, pointed at and clicked."""
    with opened(browser, path) as seen:
        page = seen.page
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        for choice in page.locator("#rivals label").all():
            choice.click()
        for card in page.locator(".card").all()[:4]:
            card.hover()
            card.click()
        for tile in page.locator("#strips .tile").all()[:6]:
            tile.click()
        page.keyboard.press("Escape")
        canvas = page.locator("canvas").first
        canvas.scroll_into_view_if_needed()
        canvas.hover()
        canvas.click()
        seen.text = page.evaluate(TEXT)
        page.fill("#search", "<img")
        page.wait_for_timeout(50)
        found = page.evaluate(FOREIGN)
        return found, seen


HARMLESS = {"ran": None, "scripts": 2, "foreign": 0, "links": [], "handlers": [], "ready": "true"}


def injected(tmp_path, views=("text", "vision"), title=None):
    """Every payload as an id, a text and a group; all of them are shown."""
    told = [*PAYLOADS, *(f"{i} {PAYLOADS[i % len(PAYLOADS)]}" for i in range(N - len(PAYLOADS)))]
    found = fairnepv.select(
        pool(views), len(PAYLOADS), ids=told, include=list(PAYLOADS), effort="fast", certify=False
    )
    images = {told[0]: f"<img src=x onerror={RUN}>.png"}
    given = {"texts": told, "groups": told, "images": images, "title": title or told[1]}
    return found.report(tmp_path / "r.html", **given)


def test_no_item_runs_a_script(browser, tmp_path):
    path = injected(tmp_path)
    shown = document(path)
    assert len(set(PAYLOADS)) == 50
    assert {fairnepv.display.visible(text) for text in PAYLOADS} <= set(shown["names"])
    found, seen = stirred(browser, path)
    assert found == HARMLESS
    assert seen.quiet(), seen


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", PAYLOADS)
def test_no_view_and_no_title_runs_a_script(browser, tmp_path, text):
    found, seen = stirred(browser, injected(tmp_path, (text, f"b{text}"), text))
    assert found == HARMLESS
    assert seen.quiet(), seen


def test_the_watch_sees_a_text_that_ends_the_island(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "_ESCAPES", {})
    with opened(browser, injected(tmp_path)) as seen:
        assert not seen.quiet()
        assert seen.page.evaluate("document.documentElement.dataset.ready") is None


def test_the_policy_forbids_what_the_island_lets_through(browser, tmp_path):
    """A script behind the escapes does not run either, since its hash is not ours."""
    open_page = (
        injected(tmp_path)
        .read_text()
        .replace(
            "</main>",
            f"<script>{RUN}</script><img src=https://example.org/x.png onerror={RUN}></main>",
        )
    )
    other = tmp_path / "open.html"
    other.write_text(open_page)
    with opened(browser, other) as seen:
        assert seen.page.evaluate("window.payloadRan ?? null") is None
        assert any("Content Security Policy" in line for line in seen.said)


def test_the_island_holds_no_letter_of_markup(tmp_path):
    island = ISLAND.search(injected(tmp_path).read_text())[1]
    assert not set("<>&\u2028\u2029") & set(island)
    assert island.isascii()
