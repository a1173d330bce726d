"""Prefect flows, which decide when and where a stage runs and whether to retry it. Caching is left to DVC."""

import os

# Read by Prefect when it is imported, and by the stages: telemetry is off.
for _variable, _value in {
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}.items():
    os.environ.setdefault(_variable, _value)
