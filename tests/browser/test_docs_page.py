"""`/docs` in a real browser: it shows the models, sends the example, and runs nothing it did not bring."""

import os
import shutil
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.pen import open_browser
from tests.service import Service

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        shutil.which("chromedriver") is None and "CI" not in os.environ,
        reason="needs Debian's chromium and chromium-driver; CI has them",
    ),
]
MODEL = Path(__file__).parents[1] / "models" / "mlp.py"
WAIT_S = 10


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with Service(f"net={MODEL}:net") as service:
        driver = open_browser(str(tmp_path_factory.mktemp("chromium")))
        try:
            driver.get(service.url + "/docs")
            WebDriverWait(driver, WAIT_S).until(
                lambda d: d.find_elements(By.CSS_SELECTOR, "#model-net textarea")
            )
            yield driver
        finally:
            driver.quit()


def find(page, selector: str):
    return page.find_element(By.CSS_SELECTOR, selector)


def test_it_shows_the_signature(page):
    text = find(page, "#model-net").text
    assert "FP32 [batch, 64]" in text
    assert "1 of 1 replica" in text
    assert "replicas" not in text
    assert "/models/net" in find(page, "#model-net pre[aria-label='curl command']").text


def test_the_example_can_be_sent_in_both_protocols(page):
    options = page.find_elements(By.CSS_SELECTOR, "#model-net select option")
    assert len(options) == 2
    for option in options:
        option.click()
        find(page, "#model-net button.send").click()
        WebDriverWait(page, WAIT_S).until(lambda d: find(d, "#model-net .status").text)
        assert find(page, "#model-net .status").text.startswith("200")
        assert "output0" in find(page, "#model-net pre[aria-label='Answer']").text
        assert " ms, request id " in find(page, "#model-net .bar .soft").text


def test_an_error_is_shown_with_its_cause(page):
    page.find_elements(By.CSS_SELECTOR, "#model-net select option")[0].click()
    area = find(page, "#model-net textarea")
    area.clear()
    area.send_keys('{"x": "<img src=x onerror=alert(1)>"}')
    find(page, "#model-net button.send").click()
    WebDriverWait(page, WAIT_S).until(lambda d: find(d, "#model-net .status").text[:1] == "4")
    assert "bad-tensor" in find(page, "#model-net pre[aria-label='Answer']").text
    assert not page.find_elements(By.CSS_SELECTOR, "#model-net img")


def test_nothing_was_blocked_and_nothing_else_loaded(page):
    loaded = page.execute_script(
        "return performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)"
    )
    assert set(loaded) <= {
        "/openapi.json",
        "/models",
        "/models/net",
        "/v2/models/net/infer",
    }
    severe = [line for line in page.get_log("browser") if "Content Security" in line["message"]]
    assert severe == []
