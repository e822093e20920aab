"""The report, looked at in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from holdfast.engines.sqlite import engine as sqlite
from holdfast.verify import report
from holdfast.verify.history import Fault, History, Run
from holdfast.verify.verdict import judge
from tests.verify.told import call, healed, held, history, pause, wrote

NASTY = "</pre><script>document.title='taken'</script><img src=http://127.0.0.1:9/x>"
Scheme = Literal["light", "dark"]
SIZE: ViewportSize = {"width": 1200, "height": 900}


def story() -> History:
    """Two holders at once, a wait, a pause, a server's fault, a loss and a refused write."""
    run = Run("sqlite", "mutex", 7, f"holdfast verify sqlite --seed 7 # {NASTY}", 2.0, (), sqlite.GUARANTEES.as_dict())
    return history(
        held("c1", 1, 3, 1),
        held("c2", 2, 4, 2, asked=0.5, queued=0.6),
        pause("c3", 4, 6),
        held("c3", 4.2, 4.4, 3, name=NASTY),
        call("lost", "c3", 6.2, 6.2, claim="z", deadline=5.0),
        wrote("c3", 6.5, 6.6, "late", "failed", token=1),
        wrote("c2", 6.0, 6.1, "good", token=2),
        Fault("kill", "redis-1", 4.5, 5.0),
        healed(7, 1),
        held("c1", 7.5, 8, 9),
        run=run,
    )


BROWSERS = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")


def runs(browser: str) -> bool:
    """Whether it is there, and more than the advice to install a snap."""
    command = [browser, "--no-sandbox", "--version"]
    return shutil.which(browser) is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # None: the one that Playwright has fetched itself. See scripts/install-browser.
    path = next((name for name in BROWSERS if runs(name)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path and shutil.which(path), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=["light", "dark"])
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Page]:
    """One for all tests, which only look at it: a browser draws a page for longer than they look."""
    scheme: Scheme = request.param
    tmp_path = tmp_path_factory.mktemp("report")
    page = browser.new_page(viewport=SIZE, color_scheme=scheme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    runs = [story()]
    report.write(judge(runs, {"partition": NASTY}), runs, tmp_path / "report.html")
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    assert asked == [(tmp_path / "report.html").as_uri()], "the page asked for something else, or a script failed"
    page.close()


def boxes(page: Page, selector: str) -> list[dict[str, float]]:
    """Where the browser put each of them: only what can be seen has a size."""
    found: list[dict[str, float]] = page.locator(selector).evaluate_all(
        "all => all.map(each => { const {x, y, width, height} = each.getBoundingClientRect();"
        " return {x, y, width, height} })"
    )
    return [box for box in found if box["width"] > 0 and box["height"] > 0]


def test_the_timeline_shows_holders_waiters_faults_refused_writes_and_losses(page: Page) -> None:
    for selector in ("rect.held", "rect.waits", "rect.fault", "path.refused", "circle.lost", "line.moment"):
        assert page.locator(f"svg.timeline {selector}").count(), selector
    assert boxes(page, "svg.timeline rect.held")
    assert boxes(page, "svg.timeline path.refused")
    assert page.locator("svg.timeline text.who").all_text_contents().count("redis-1") == 1


def test_two_that_held_together_are_seen_above_each_other(page: Page) -> None:
    whole = page.locator("svg.timeline").last
    bars = whole.locator("rect.held.c0").evaluate_all(
        "all => all.map(each => { const {left, right, top} = each.getBoundingClientRect(); return [left, right, top] })"
    )
    first, second = sorted(bars, key=lambda bar: float(bar[0]))[:2]

    assert first[1] > second[0]
    assert first[2] != second[2]


def test_the_verdict_the_story_and_the_command_can_be_read(page: Page) -> None:
    text = page.inner_text("body")

    assert page.inner_text("h1").split() == ["sqlite", "broken"]
    assert "=> c2 (token 2) and c1 (token 1) both held 'k' for 1.0000 s" in text
    assert "holdfast verify sqlite --seed 7" in page.inner_text("pre >> nth=0")
    assert page.title() == "sqlite: broken"


def test_names_are_shown_as_text_whatever_is_in_them(page: Page) -> None:
    assert page.locator("script, img").count() == 0
    assert NASTY in page.inner_text("body")


def test_nothing_is_wider_than_the_page(page: Page) -> None:
    for width in (SIZE["width"], 420):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size(SIZE)


def test_all_text_stands_out_from_what_is_behind_it(page: Page) -> None:
    for selector in ("p.rely", "p.soft", "td", "th", ".badge", "pre", "pre .conclusion", ".legend li", "h2"):
        for style in page.locator(selector).evaluate_all(COLOURS):
            assert contrast(style["ink"], style["paper"]) >= 4.5, (selector, style)


COLOURS = """all => all.map(each => {
  let behind = each, paper = getComputedStyle(each).backgroundColor;
  while (/, 0\\)$/.test(paper) && behind.parentElement) {
    behind = behind.parentElement; paper = getComputedStyle(behind).backgroundColor;
  }
  return {ink: getComputedStyle(each).color, paper};
})"""


def contrast(one: str, other: str) -> float:
    """How far two colours are apart, as the accessibility guidelines count it."""
    lights = sorted((_luminance(one), _luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    parts: list[Any] = re.findall(r"[\d.]+", colour)[:3]
    linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in _scaled(parts)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _scaled(parts: list[str]) -> list[float]:
    return [float(part) / 255 for part in parts]
