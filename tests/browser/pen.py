"""Digits as pen strokes, and a hand that draws them on the demo page."""

import math

from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

Stroke = list[tuple[float, float]]


def arc(cx: float, cy: float, rx: float, ry: float, start: float, end: float) -> Stroke:
    """Return 13 points of an ellipse between two angles in degrees, y pointing down."""
    angles = [math.radians(start + (end - start) * step / 12) for step in range(13)]
    return [(cx + rx * math.cos(angle), cy + ry * math.sin(angle)) for angle in angles]


DIGITS: dict[int, list[Stroke]] = {
    0: [arc(0.5, 0.5, 0.32, 0.48, -90, 270)],
    1: [[(0.3, 0.25), (0.55, 0), (0.55, 1)]],
    2: [[*arc(0.5, 0.28, 0.32, 0.28, -170, 30), (0.15, 1), (0.9, 1)]],
    3: [arc(0.45, 0.26, 0.33, 0.26, -150, 90) + arc(0.45, 0.74, 0.38, 0.26, -90, 150)],
    4: [[(0.6, 0), (0.1, 0.65), (0.9, 0.65)], [(0.65, 0.3), (0.65, 1)]],
    5: [[(0.85, 0), (0.25, 0), (0.2, 0.42), *arc(0.45, 0.68, 0.36, 0.32, -110, 140)]],
    6: [[(0.7, 0), (0.35, 0.3), *arc(0.5, 0.7, 0.33, 0.3, -170, 190)]],
    7: [[(0.1, 0), (0.9, 0), (0.4, 1)], [(0.3, 0.5), (0.85, 0.5)]],
    8: [arc(0.5, 0.26, 0.28, 0.26, 90, 450) + arc(0.5, 0.75, 0.36, 0.25, -90, 270)],
    9: [[*arc(0.5, 0.3, 0.33, 0.3, 0, -360), (0.8, 0.35), (0.75, 1)]],
}


def open_browser(profile: str, size: tuple[int, int] = (1100, 820)) -> Chrome:
    """Start a headless Chromium with a fresh profile; the caller quits it."""
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        f"user-data-dir={profile}",
        f"window-size={size[0]},{size[1]}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def draw(browser: Chrome, digit: int, size: float = 0.6) -> None:
    """Draw the digit in the middle of the page's pad, with real pointer events."""
    pad = browser.find_element(By.ID, "pad")
    side = pad.size["width"]
    actions = ActionChains(browser, duration=8)
    for stroke in DIGITS[digit]:
        for step, (x, y) in enumerate(stroke):
            actions.move_to_element_with_offset(
                pad, round((x - 0.5) * size * side), round((y - 0.5) * size * side)
            )
            if step == 0:
                actions.click_and_hold()
        actions.release()
    actions.perform()
