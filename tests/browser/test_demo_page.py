"""`torchgate demo` in a real browser: one draws, the right bar rises, the latency shows."""

import os
import shutil

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.pen import DIGITS, draw, open_browser
from tests.service import Service

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        shutil.which("chromedriver") is None and "CI" not in os.environ,
        reason="needs Debian's chromium and chromium-driver; CI has them",
    ),
]
WAIT_S = 10


@pytest.fixture(scope="module")
def demo():
    with Service(command="demo") as service:
        yield service


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = open_browser(str(tmp_path_factory.mktemp("chromium")))
    yield driver
    driver.quit()


@pytest.fixture
def page(demo, browser):
    browser.get(demo.url + "/")
    return browser


def _probabilities(page) -> list[float]:
    meters = page.find_elements(By.CSS_SELECTOR, "#bars [role=meter]")
    return [float(meter.get_attribute("aria-valuenow")) for meter in meters]


def _wait(page, condition):
    return WebDriverWait(page, WAIT_S, poll_frequency=0.05).until(lambda _: condition())


def _text(page, name: str) -> str:
    return page.find_element(By.ID, name).text


@pytest.mark.pain("N09")
@pytest.mark.parametrize("digit", sorted(DIGITS))
def test_a_drawn_digit_raises_its_bar(page, digit):
    draw(page, digit)
    _wait(page, lambda: _probabilities(page)[digit] > 50)
    assert page.find_element(By.CSS_SELECTOR, "#bars .best").get_attribute("data-digit") == str(
        digit
    )
    assert sum(_probabilities(page)) == pytest.approx(100, abs=1)
    assert _text(page, "status") == ""


def test_bars_move_while_one_draws(page):
    """Requests go out during the stroke, not only at its end."""
    draw(page, 3)
    _wait(page, lambda: "request" in _text(page, "summary"))
    assert int(_text(page, "summary").split()[0]) > 3


def test_the_latency_of_each_request_shows(page):
    assert _text(page, "ms").startswith("–")
    draw(page, 7)
    _wait(page, lambda: not _text(page, "ms").startswith("–"))
    assert 0 < float(_text(page, "ms").split()[0]) < 1000
    points = page.find_element(By.CSS_SELECTOR, "#spark polyline").get_attribute("points")
    assert len(points.split()) > 3


@pytest.mark.parametrize("width", [320, 360])
def test_on_a_narrow_window_texts_break_where_they_may(page, width):
    """No sideways scrolling, and no figure is torn from its unit."""
    size = {"width": width, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        draw(page, 3)
        _wait(page, lambda: "slowest" in _text(page, "summary"))
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        lines = page.execute_script(
            "return [...document.querySelectorAll('#summary span')].map((e) => e.getClientRects()[0].height"
            " / parseFloat(getComputedStyle(e).lineHeight));"
        )
        assert lines == pytest.approx([1, 1], abs=0.2)
        assert _text(page, "summary").endswith(" ms")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_clear_and_escape_empty_the_page(page):
    for clear in (
        lambda: page.find_element(By.ID, "clear").click(),
        lambda: page.find_element(By.TAG_NAME, "body").send_keys("\ue00c"),
    ):
        draw(page, 1)
        _wait(page, lambda: max(_probabilities(page)) > 50)
        clear()
        _wait(page, lambda: max(_probabilities(page)) == 0)


def test_an_error_of_the_service_is_shown_and_drawing_on_tries_again(page):
    """The page says what went wrong instead of standing still."""
    page.execute_script(
        "window.realFetch = fetch; window.fetch = () => Promise.reject(new Error('gone'));"
    )
    draw(page, 1)
    _wait(page, lambda: "gone" in _text(page, "status"))
    page.execute_script("window.fetch = window.realFetch;")
    draw(page, 1)
    _wait(page, lambda: max(_probabilities(page)) > 50 and _text(page, "status") == "")


def test_the_page_asks_nobody_else_and_logs_no_error(page):
    draw(page, 5)
    _wait(page, lambda: max(_probabilities(page)) > 50)
    names = page.execute_script(
        "return performance.getEntriesByType('resource').map((e) => e.name);"
    )
    assert names
    assert not [name for name in names if not name.startswith(page.current_url)]
    assert page.get_log("browser") == []
