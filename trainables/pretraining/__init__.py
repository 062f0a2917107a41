"""Train an encoder on public corpora, without privacy, as the start of private trainings.

`spec` is the recipe, `data` pools its corpora, `objectives` holds the losses, `run` trains and writes the encoder's
folder, and `overlap` refuses a private corpus that an encoder has seen. Must not import training.
"""
