"""What a person sees while something runs: a live table, metrics for Prometheus, and who waits for what. Must not
import the search or execution."""
