"""Judging data: Great Expectations suites over small tables that are computed by streaming through the artefacts."""

import os

os.environ["GX_ANALYTICS_ENABLED"] = "False"  # read once, when great_expectations is imported
