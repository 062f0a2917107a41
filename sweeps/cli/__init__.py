"""`edp-sweep`: a file a family of commands. Reads what was typed, prints what came out, and decides nothing.
Nothing imports it."""
