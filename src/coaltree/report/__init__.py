"""Self-contained HTML reports: one file, no network, readable on screen, on paper and with a screen reader."""
