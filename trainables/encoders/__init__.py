"""Pretrained encoders as they are found: folders, hubs, vocabularies, architectures. Must not import models or data."""
