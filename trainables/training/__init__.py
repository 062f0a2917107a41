"""The loop of one worker: batches, optimisers, layer scales, checkpoints, and the reference models of attacks.

Must not import Ray.
"""
