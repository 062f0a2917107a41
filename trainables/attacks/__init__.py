"""Who was trained on: attacks that know a model's losses and scores, the canaries of an audit, and how well they tell
members apart. Must not import evaluation, training or Ray."""
