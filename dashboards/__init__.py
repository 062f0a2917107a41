"""What a browser shows: the Pareto page, the report of a choice, and who may read them. Reads sweeps; the page writes
picks and notes alone. Nothing imports it."""
