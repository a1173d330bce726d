"""Documents from one or more sources: read, cleaned, de-duplicated, mixed, split and written as parquet."""
