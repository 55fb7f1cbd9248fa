"""A study as one self-contained HTML file: it loads nothing from elsewhere."""
