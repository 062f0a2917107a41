"""The input and output of a trial: jobs, results, epochs, ledgers, and files that are whole or absent.

Must not import PyTorch models or Ray.
"""
