"""Prefect flows: when, where and again. Nothing is learned here and nothing is cached: DVC and the stages do that."""

import os

# Read by Prefect when it is imported, and by the stages. Nothing is reported to anybody.
for _variable, _value in {
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}.items():
    os.environ.setdefault(_variable, _value)
