"""The report: score card, curves and data of one run, as Markdown, one HTML page and a terminal table."""
