"""A frozen public encoder, run once a corpus: its states, their public moments, and the same for a server. Must not
import training."""
