"""The page in a headless Chromium: no error, no request, and everything that can be clicked does what it says."""

import json
import os
import shutil

import pytest

from krylow_lab.report import write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install '.[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver is installed (Debian: chromium chromium-driver)"
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture
def browser(tmp_path):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def opened(browser, records, tmp_path, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(write_report([records], tmp_path / "report.html").as_uri())
    wait(browser, "return document.querySelectorAll('.plot .main-svg').length > 0")


def wait(browser, script, *arguments):
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 30).until(lambda b: b.execute_script(script, *arguments))


def quiet(browser):
    """Check that nothing was logged as wrong and nothing asked of a network."""
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file:") for url in asked)  # the log works
    assert [url for url in asked if url.startswith(("http", "ws", "ftp"))] == []


HIDDEN = "const g = document.querySelector('#chart-error-products .plot'); return g._fullData[arguments[0]].visible"


def test_charts_legends_and_choices(browser, records, tmp_path):
    opened(browser, records, tmp_path, 1300)
    drawn = "return [...document.querySelectorAll('.chart')].every(c => c.querySelector('.plot .main-svg'))"
    assert browser.execute_script(drawn)

    # A click on a legend's entry hides its curve, another shows it again.
    entry = browser.find_element("css selector", "#chart-error-products .legend .traces .legendtoggle")
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", entry)
    index = browser.execute_script("return arguments[0].__data__[0].trace.index", entry)
    assert browser.execute_script(HIDDEN, index) is True
    webdriver.ActionChains(browser).move_to_element(entry).click().perform()
    wait(browser, f"{HIDDEN} === 'legendonly'", index)

    # Another data set changes this chart and those that offer the same choice; what was hidden stays so.
    value = "return document.querySelector('#chart-error-products .plot').data.find(t => t.meta === 'root probe').x[0]"
    assert browser.execute_script(value) == 24
    choose(browser, "#chart-error-products", "K", "8")
    wait(browser, f"{value} === 32")
    assert browser.execute_script(HIDDEN, index) == "legendonly"
    assert selected(browser, "#chart-gammas", "K") == "8"
    layers = "return document.querySelector('#chart-gammas .plot').data[0].x.length"
    assert browser.execute_script(layers) == 16

    # A data set without this K falls back on one that it has.
    choose(browser, "#chart-curves", "data", "PROTEINS")
    wait(browser, f"{value} === 24")
    assert selected(browser, "#chart-error-products", "data") == "PROTEINS"
    choose(browser, "#chart-curves", "curve", "theory loss")
    title = "return document.querySelector('#chart-curves .plot').layout.yaxis.title.text"
    wait(browser, f"{title}.startsWith('theory loss')")
    quiet(browser)


def choose(browser, chart, name, option):
    from selenium.webdriver.support.select import Select

    Select(browser.find_element("css selector", f"{chart} select[data-choice='{name}']")).select_by_value(option)


def selected(browser, chart, name):
    return browser.find_element("css selector", f"{chart} select[data-choice='{name}']").get_property("value")


def test_a_narrow_screen_scrolls_in_one_direction_only(browser, records, tmp_path):
    opened(browser, records, tmp_path, 420)
    width = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    scroll, client = browser.execute_script(width)
    assert scroll <= client
    folder = os.environ.get("KRYLOW_SCREENSHOTS")
    if folder:
        browser.save_screenshot(os.path.join(folder, "report-420.png"))
    quiet(browser)
