"""The measurements of a model: predictions, SER, the metrics of an epoch. Must not import training or Ray."""
