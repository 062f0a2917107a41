"""The loop of one worker: chunks, optimisers, layer scales, checkpoints, reference models of attacks. Must not import
Ray."""
