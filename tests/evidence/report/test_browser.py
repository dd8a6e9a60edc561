"""The page in Chromium, without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Page as Tab

from assay.evidence.report.page import Stored, render

STUDIES = 5
ROWS = (STUDIES + 1) * 9  # one has two checks besides its placebo
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip


@pytest.fixture(scope="module")
def page(making: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(render(making.stored(STUDIES), {}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def small(making: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "small.html"
    check, records = making.check(making.study(), failing="random")
    path.write_text(render(Stored({check.study: [(check, records)]}, {}, 0), {}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(making: SimpleNamespace) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=making.chromium, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser, page: Path, small: Path) -> Iterator[Any]:
    """Open the page in a tab of its own; in the end nothing was asked of a network and nothing complained."""
    trouble: list[str] = []
    contexts = []
    allowed = {page.as_uri(), small.as_uri()}

    def open_it(path: Path = page, **options: Any) -> Tab:
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(10_000)
        tab.on("console", lambda message: trouble.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        tab.on("request", lambda r: trouble.append(f"asked for {r.url}") if r.url not in allowed else None)
        tab.goto(path.as_uri())
        return tab

    yield open_it
    for context in contexts:
        context.close()
    assert trouble == []


def shown(tab: Tab) -> int:
    return tab.locator("#claims tbody tr:visible").count()


def test_filters_leave_what_fits(open_page: Any) -> None:
    tab = open_page()
    total = tab.locator("#claims tbody tr").count()
    assert total == shown(tab) == ROWS
    supported = tab.get_by_role("button", name=re.compile("^✓? ?supported"))
    supported.click()
    assert supported.get_attribute("aria-pressed") == "true"
    some = shown(tab)
    assert 0 < some < total
    assert tab.locator("#count").inner_text() == f"{some} of {total} claims"
    tab.get_by_role("combobox", name="Method").select_option("hostile & co")
    assert 0 < shown(tab) < 18
    tab.get_by_role("combobox", name="Budget").select_option("smoke")
    tab.get_by_role("searchbox", name="Words").fill("HOLDS ours")
    assert shown(tab) == 1
    tab.get_by_role("searchbox", name="Words").fill("no such words")
    assert tab.get_by_text("No claim fits these filters.").is_visible()
    tab.get_by_role("button", name="Clear").click()
    assert shown(tab) == total


def test_sorting_by_a_column(open_page: Any) -> None:
    tab = open_page()
    for kind, head in (("verdict", "Verdict"), ("cost", "CPU a cell"), ("method", "Method")):
        button = tab.locator("#claims thead").get_by_role("button", name=head)
        for direction in ("ascending", "descending"):
            button.click()
            assert tab.locator("th[aria-sort]").count() == 1
            assert tab.locator(f"th[aria-sort={direction}]").inner_text().strip() == head
            keys = tab.eval_on_selector_all("#claims tbody tr", f"rows => rows.map(row => row.dataset.{kind})")
            found = [k for k in keys if k != ""]
            key = str if kind == "method" else float
            assert found == sorted(found, key=key, reverse=direction == "descending")
            assert keys[: len(found)] == found  # what has no number is last


def test_the_theme_follows_the_system_and_the_button(open_page: Any) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    mark = "getComputedStyle(document.querySelector('.plot text')).fill"
    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    seen = light.evaluate(colour), light.evaluate(mark)
    assert (dark.evaluate(colour), dark.evaluate(mark)) != seen
    button = dark.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert (dark.evaluate(colour), dark.evaluate(mark)) == seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(open_page: Any, scheme: Any) -> None:
    """WCAG AA: 4.5 to 1 for all tokens that are text."""
    tab = open_page(color_scheme=scheme)
    ratios = tab.evaluate("""() => {
      const probe = document.body.appendChild(document.createElement("i"));
      const light = (token) => {
        probe.style.color = `var(--${token})`;
        const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255);
        const [r, g, b] = parts.map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const tokens = ["ink", "muted", "link", "method", "supported", "not-supported", "inconclusive"];
      return tokens.map((token) => {
        const [a, b] = [light(token), light("paper")].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
      });
    }""")
    assert min(ratios) >= 4.5


@pytest.mark.parametrize("width", [320, 375, 768, 1100])
def test_the_body_never_scrolls_sideways(open_page: Any, width: int) -> None:
    tab = open_page(viewport={"width": width, "height": 800})
    tab.add_style_tag(content=".study { content-visibility: visible !important }")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("#claims tbody tr").first.is_visible()


def test_everything_can_be_done_by_keyboard(open_page: Any) -> None:
    tab = open_page()
    focus = "document.activeElement.textContent.trim() || document.activeElement.id"
    tab.keyboard.press("Tab")
    assert tab.evaluate(focus) == "Skip to the claims"
    assert tab.locator(".skip").bounding_box()["x"] >= 0
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "claims"
    tab.keyboard.press("Tab")
    assert tab.evaluate(focus) == "Method"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("Enter")
    assert tab.locator("th[aria-sort=ascending]").count() == 1
    tab.locator("[data-verdict=inconclusive]").focus()
    tab.keyboard.press("Space")
    assert 0 < shown(tab) < ROWS
    scrolled = tab.locator(".scroll").first
    assert scrolled.get_attribute("tabindex") == "0"
    assert scrolled.get_attribute("aria-label")


def test_a_claim_leads_to_its_intervals_and_the_command_is_copied(open_page: Any) -> None:
    tab = open_page(permissions=["clipboard-read", "clipboard-write"])
    tab.locator("#claims tbody tr").nth(30).locator(".says a").click()
    target = tab.locator(":target")
    assert target.locator(".strip").count() > 0
    tab.wait_for_function("document.querySelector(':target').getBoundingClientRect().top < innerHeight")
    button = tab.locator("article").filter(has=target).get_by_role("button", name="Copy the command")
    button.click()
    tab.wait_for_function("element => element.textContent === 'Copied'", arg=button.element_handle())
    assert tab.evaluate("navigator.clipboard.readText()").startswith("assay check ")


def test_names_with_markup_stay_text(open_page: Any, making: SimpleNamespace) -> None:
    tab = open_page()
    assert tab.locator("img").count() == 0
    assert tab.get_by_text(making.hostile).count() > 3


def test_without_scripts_everything_is_there(open_page: Any) -> None:
    tab = open_page(java_script_enabled=False)
    assert tab.get_by_role("heading", name="Which claims hold here?").is_visible()
    assert tab.locator("#claims tbody tr").count() == ROWS
    assert not tab.locator("#filters").is_visible()
    assert tab.get_by_role("columnheader", name="Verdict").first.is_visible()


def test_print_is_light_complete_and_without_controls(open_page: Any, small: Path) -> None:
    tab = open_page(small, color_scheme="dark")
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.locator("#filters").is_visible()
    assert not tab.locator("#theme").is_visible()
    assert tab.locator(".plot").last.is_visible()
    pdf = tab.pdf(format="A4")
    assert 2 <= pdf.count(b"/Type /Page") <= 8
