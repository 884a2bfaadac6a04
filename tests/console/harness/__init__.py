"""A browser for tests: `browser.py` speaks to `driver.mjs`, which drives Chromium; `world.py` is a server in use."""
