"""Utterances as tensors: encoded corpora, word vectors, batches, pretrained encoders and the states of frozen ones.

Must not import models.
"""
