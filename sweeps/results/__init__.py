"""What came out: the front and its picture, ties, costs, choices, tables in words. Reads a sweep; writes nothing of
it. Must not import tracking or what runs."""
