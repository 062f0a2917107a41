"""Training an encoder on public corpora, without privacy: private trainings start from what it gives.

`spec` says what a pretraining is, `data` pools its corpora, `objectives` are what it learns, `run` trains, `folder`
keeps the result, and `overlap` refuses a private corpus that an encoder has seen. Must not import training.
"""
