"""The loop of one worker: batches, optimisers, layer scales, checkpoints, reference models of attacks. Must not import
Ray."""
