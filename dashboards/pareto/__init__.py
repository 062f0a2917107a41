"""The Pareto page of one sweep: layout, charts and callbacks. Must not import the report."""
