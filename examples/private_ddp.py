"""A DDP training loop made private by `edp`, and the ε of the steps that ran.

    torchrun --nproc-per-node 4 examples/private_ddp.py

Each example's gradient is clipped to C, noise is added, and all-reduce averages: DP-SGD, in one backward pass. The
number of workers must divide the batch. The lines that make the loop private are marked.
"""

import math

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from edp import EDPHook, EDPSpec, epsilon, epsilon_paper, one_bucket_ddp, record_per_example, shuffled_epoch

EXAMPLES, BATCH, EPOCHS, DELTA = 4096, 256, 5, 1e-5


def main() -> None:
    """Train a small classifier on made-up data, and print its ledger and its ε."""
    dist.init_process_group("gloo")  # nccl on GPUs
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(EXAMPLES, 20)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 2))
    recorder = record_per_example(model)  # private: layers record what each example's norm follows from
    ddp = one_bucket_ddp(model)  # private: instead of DistributedDataParallel
    spec = EDPSpec(C=1.0, z0=4.0, decay="linear", tau=0.1)
    hook = EDPHook(  # private
        ddp, spec, micro_batches=BATCH, single_example=True, rate=BATCH / EXAMPLES, recorder=recorder
    )
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)
    for number in range(EPOCHS):
        epoch = shuffled_epoch(
            EXAMPLES, batch_size=BATCH, micro_batches=BATCH, workers=workers, seed=0, epoch=number
        )  # private: each example is a micro-batch; the workers share them
        for step in hook.steps(epoch):  # private: noise and ledger follow the sampler
            mine = torch.from_numpy(np.concatenate(step[rank]))
            with recorder.examples(torch.arange(len(mine)), len(mine)):  # private: each example is clipped by itself
                loss_b = nn.functional.cross_entropy(ddp(x[mine]), y[mine], reduction="none")
            optimizer.zero_grad()
            loss_b.sum().backward()  # the hook clips, adds noise and averages
            hook.check()  # private: no NaN may reach the weights
            optimizer.step()
    if rank == 0:
        for entry in hook.ledger.entries:
            print(f"epoch {entry.epoch}: {entry.steps} steps, noise of std {entry.noise_std:.4f} on the mean gradient")
        print(f"loss {loss_b.mean():.2f}")
        honest, paper = epsilon(hook.ledger, DELTA), epsilon_paper(hook.ledger, DELTA)
        honest, paper = math.ceil(honest * 100) / 100, math.ceil(paper * 100) / 100  # never print less than the bound
        print(f"epsilon = {honest:.2f} for one example at delta = {DELTA}; by the paper's formula {paper:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
