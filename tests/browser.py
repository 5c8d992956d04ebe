"""A headless Chromium for the pages; tests that need it are skipped, with the reason, where there is none."""

import shutil

import pytest

PACKAGES = "apt-get install -y chromium chromium-driver"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1400,1000",
    "--force-device-scale-factor=1",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    selenium = pytest.importorskip("selenium", reason="browser tests need selenium: pip install '.[test]'")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    assert selenium
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip(f"browser tests need Chromium and its driver: {PACKAGES}")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))
    yield window
    window.quit()


@pytest.fixture
def open_page(browser):
    """Open a file and return the browser; the test fails if the page wrote anything to the console."""
    seen = []

    def open_file(path):
        browser.get_log("browser")
        browser.get(path.as_uri())
        seen.append(path)
        return browser

    yield open_file
    if seen:
        assert [entry["message"] for entry in browser.get_log("browser")] == []
