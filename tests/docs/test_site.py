"""The site: built without a warning, complete, and without a request to the network."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer

from assay import catalog, cli

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if importlib.util.find_spec("mkdocs") is None:
    pytest.skip("mkdocs is not installed (the extra docs)", allow_module_level=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def served(site):
    """The address of a server of the site on this machine, which the search needs."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


class Fetched(HTMLParser):
    """What a page makes a browser fetch, in difference to what it links to."""

    def __init__(self):
        super().__init__()
        self.urls = []

    def handle_starttag(self, tag, attributes):
        held = dict(attributes)
        self.urls += [held[name] for name in ("src", "srcset", "poster", "data") if held.get(name)]
        if tag == "link" and held.get("href"):
            self.urls.append(held["href"])


def test_no_page_fetches_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 12
    for page in pages:
        found = Fetched()
        found.feed(page.read_text(encoding="utf-8"))
        assert found.urls
        outside = [url for url in found.urls if re.match(r"(\w+:)?//", url)]
        assert not outside, f"{page.relative_to(site)} fetches {outside}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_every_method_has_its_page_with_source_install_line_and_card(site):
    index = (site / "methods" / "index.html").read_text(encoding="utf-8")
    for card in catalog.cards().values():
        if not card.module.startswith("assay."):
            continue
        page = (site / "methods" / f"{card.name}.html").read_text(encoding="utf-8")
        text = words(page)
        assert words(card.source) in text
        assert "pip install -e" in text
        for heading in re.findall(r"^## (.+)$", card.text, flags=re.MULTILINE):
            assert heading in text
        assert page.count("<table") == len(re.findall(r"^\|[-:|]+\|$", card.text, flags=re.MULTILINE))
        assert f'href="{card.name}.html"' in index
        reference = (site / "reference" / "methods" / f"{card.name}.html").read_text(encoding="utf-8")
        for name in __import__(card.module, fromlist=["__all__"]).__all__:
            assert f'id="{card.module}.{name}"' in reference, f"{name} of {card.name} is missing in the reference"


def words(html):
    import html as entities

    return " ".join(entities.unescape(re.sub(r"<[^>]+>", "", html)).replace("“", '"').replace("”", '"').split())


def test_every_command_and_option_is_on_the_page_of_commands(site):
    text = words((site / "commands.html").read_text(encoding="utf-8"))
    for name, command in typer.main.get_command(cli.app).commands.items():
        assert f"assay {name}" in text
        for parameter in command.params:
            if parameter.param_type_name == "option":
                for option in (*parameter.opts, *parameter.secondary_opts):
                    assert option in text, f"{option} of assay {name}"


def test_formulas_are_mathml_and_no_role_is_left_over(site):
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre>.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"\\\(|\\\[|class=\"arithmatex|:(?:class|func|mod|math):", text), page
    assert (site / "verdicts.html").read_text(encoding="utf-8").count("<math") > 20


@pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="no Chromium or no playwright here"
)
def test_in_a_browser_no_page_asks_the_network_or_is_wider_than_a_phone_and_search_works(site, served):
    from playwright.sync_api import sync_playwright

    asked, errors, wide = [], [], []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 360, "height": 780})
        page.on(
            "request",
            lambda r: asked.append(r.url) if not r.url.startswith(("file:", "data:", "blob:", served)) else None,
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        # 404.html is for a server, which has the site at its root.
        for path in sorted(path for path in site.rglob("*.html") if path.name != "404.html"):
            page.goto(served + path.relative_to(site).as_posix())
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append(path.name)
        page.set_viewport_size({"width": 1300, "height": 800})
        page.goto(served)
        results = page.locator(".md-search-result__item")
        for _ in range(60):  # what is typed before the search is ready is not searched for
            page.fill(".md-search__input", "")
            page.locator(".md-search__input").press_sequentially("knockoff")
            page.wait_for_timeout(1000)
            if results.count():
                break
        assert results.count() > 0
        browser.close()
    assert (asked, errors, wide) == ([], [], [])
