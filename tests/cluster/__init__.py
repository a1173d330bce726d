"""Long tests against a real Prefect server and worker on this host: ``make test-cluster``, not ``make test``."""
