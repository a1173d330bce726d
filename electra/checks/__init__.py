"""The validate stages: data quality, judged by Great Expectations."""
