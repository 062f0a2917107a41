"""The report of a sweep: one file for a privacy review."""
