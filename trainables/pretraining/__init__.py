"""Train an encoder on public corpora, without privacy, for private trainings to start from.

`spec` is the recipe, `data` pools its corpora, `objectives` are the losses, `run` trains and writes the encoder's
folder, and `overlap` refuses a private corpus that an encoder has seen. Must not import training.
"""
