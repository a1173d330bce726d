"""The validate stages: data quality, checked by Great Expectations."""
