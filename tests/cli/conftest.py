"""The browser's fixtures, for every test of this folder."""

from tests.browser import browser, open_page

__all__ = ["browser", "open_page"]
