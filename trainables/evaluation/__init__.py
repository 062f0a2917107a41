"""How good a model is and what it gives away: predictions, SER, the figures of an epoch. Must not import training or
Ray."""
