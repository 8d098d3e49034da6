"""The one-page report in a real browser: it asks nobody for anything and fits a phone, in the dark, too."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from graphmill.reports.report_html import write_report
from tests.reports.test_card import trained

pytestmark = pytest.mark.ui


def test_the_report_fits_every_screen_and_needs_no_host(browser: Browser, tmp_path: Path) -> None:
    page_file = write_report(trained(tmp_path / "data" / "06_models"), tmp_path / "report.html")
    for width, scheme in ((390, "light"), (1200, "dark")):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
        requests: list[str] = []
        page.on("request", lambda request, requests=requests: requests.append(request.url))
        page.goto(page_file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h2").count() == 9
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        assert {url.partition(":")[0] for url in requests} <= {"file", "data"}
        page.close()
