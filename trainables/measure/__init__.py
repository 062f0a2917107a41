"""The measurements of a trained model: predictions, SER, attacks and the metrics of an epoch.

Must not import training or Ray.
"""
