"""Utterances as arrays: encoded corpora, word features, batches, kept states of a frozen encoder. Must not import
models."""
