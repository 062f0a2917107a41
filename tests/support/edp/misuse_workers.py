"""Training loops that get it wrong, each in one way, on one of several workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

from edp import mixing
from edp.hook import EDPHook, one_bucket_ddp
from edp.ledger import Ledger
from edp.per_example import record_per_example
from edp.sampling import Epoch, Step, poisson_epoch, poisson_examples, shuffled_epoch
from edp.spec import EDPSpec
from edp.steps import HookUsageError
from tests.support.edp.literal import INPUTS, optimizer_of, small_model
from tests.support.edp.misuse_models import ActNorm, Codebook, Gate, Loss, Normalised

EXAMPLES, BATCH = 16, 4


class Loop:
    """A right training loop of one example a micro-batch, whose parts the wrong ones replace."""

    def __init__(self, rank: int, world: int, ledger: Ledger | None = None, **settings: object) -> None:
        self.rank, self.world, self.settings = rank, world, settings
        self.spec = EDPSpec(C=0.1, **settings)
        self.model = small_model()
        self.ddp = one_bucket_ddp(self.model)
        self.optimizer = optimizer_of(self.ddp)
        self.hook = EDPHook(
            self.ddp, self.spec, micro_batches=BATCH, single_example=True, rate=BATCH / EXAMPLES, ledger=ledger
        )

    def epoch(self, number: int = 0, **other: object) -> Epoch:
        sizes = {"batch_size": BATCH, "workers": self.world, "epoch": number}
        if self.spec.sampling == "poisson":
            return poisson_examples(EXAMPLES, key=bytes([number] * 32), **sizes)
        return shuffled_epoch(EXAMPLES, **({"micro_batches": BATCH, "seed": 0} | sizes | other))

    def loss(self, examples: np.ndarray) -> torch.Tensor:
        x = torch.linspace(-1, 1, EXAMPLES * INPUTS).view(EXAMPLES, INPUTS)[examples]
        return self.ddp(x).square().sum()

    def backward(self, step: Step, accumulate: bool = True) -> None:
        mine = step[self.rank]
        for i, examples in enumerate(mine or [np.zeros(0, np.int64)]):
            last = i >= len(mine) - 1
            with nullcontext() if last else self.ddp.no_sync():
                (self.loss(examples) if mine else 0.0 * self.loss(np.zeros(1, np.int64))).backward()
            if not last and accumulate:
                self.hook.accumulate()

    def step(self, step: Step) -> None:
        self.optimizer.zero_grad()
        self.backward(step)
        self.optimizer.step()


def nobody_says_which_epoch(loop: Loop) -> None:
    for _ in range(30):
        for step in loop.epoch():
            loop.step(step)


def the_same_epoch_again(loop: Loop) -> None:
    for _ in range(30):
        for step in loop.hook.steps(loop.epoch(0)):
            loop.step(step)


def an_epoch_that_never_ends(loop: Loop) -> None:
    endless = itertools.chain.from_iterable(loop.epoch(number) for number in range(30))
    for step in loop.hook.steps(Epoch(0, "shuffle", EXAMPLES, BATCH, endless)):
        loop.step(step)


def empty_steps_without_end(loop: Loop) -> None:
    nothing: Step = [[np.zeros(0, np.int64)] * loop.hook.per_worker] * loop.world
    for step in loop.hook.steps(Epoch(0, "shuffle", EXAMPLES, BATCH, itertools.repeat(nothing))):
        loop.step(step)


def _drawn_with_replacement(loop: Loop) -> Iterator[Step]:
    rng = np.random.default_rng(0)
    for _ in range(EXAMPLES // BATCH):
        drawn = rng.integers(EXAMPLES, size=(loop.world, loop.hook.per_worker, 1))
        yield [list(share) for share in drawn]


def a_sampler_that_draws_with_replacement(loop: Loop) -> None:
    for step in loop.hook.steps(Epoch(0, "shuffle", EXAMPLES, BATCH, _drawn_with_replacement(loop))):
        loop.step(step)


def a_sampler_of_another_kind(loop: Loop) -> None:
    sizes = {"batch_size": BATCH, "micro_batches": BATCH, "workers": loop.world, "epoch": 0}
    for step in loop.hook.steps(poisson_epoch(EXAMPLES, key=bytes(32), **sizes)):
        loop.step(step)


def a_sampler_of_another_rate(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch(batch_size=2 * BATCH)):
        loop.step(step)


def micro_batches_of_several_examples(loop: Loop) -> None:
    two = ([[np.arange(2)] * loop.hook.per_worker] * loop.world for _ in range(1))
    for step in loop.hook.steps(Epoch(0, "poisson", EXAMPLES, BATCH, two)):
        loop.step(step)


def dealt_to_other_workers(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch(workers=loop.world + 2)):
        loop.step(step)


def another_order_under_correlated_noise(loop: Loop) -> None:
    for number in range(2):
        for step in loop.hook.steps(loop.epoch(number)):
            loop.step(step)


def a_parameter_added_after_the_hook(loop: Loop) -> None:
    loop.model.append(nn.Linear(4, 4))
    for step in loop.hook.steps(loop.epoch()):
        loop.step(step)


def a_parameter_added_between_steps(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch()):
        loop.step(step)
        loop.model.append(nn.Linear(4, 4))


def a_parameter_replaced(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch()):
        loop.model[0].weight = nn.Parameter(torch.zeros_like(loop.model[0].weight))
        loop.step(step)


def a_step_left_out(loop: Loop) -> None:
    for i, step in enumerate(loop.hook.steps(loop.epoch())):
        if i != 1:
            loop.step(step)


def the_last_step_left_out(loop: Loop) -> None:
    for i, step in enumerate(loop.hook.steps(loop.epoch())):
        if i < EXAMPLES // BATCH - 1:
            loop.step(step)


def the_model_without_ddp(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch()):
        loop.optimizer.zero_grad()
        loop.ddp.module(torch.zeros(len(step[loop.rank]), INPUTS)).sum().backward()
        loop.optimizer.step()


def accumulate_left_out(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch()):
        loop.backward(step, accumulate=False)
        loop.optimizer.step()


def two_backward_passes_in_a_step(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch()):
        loop.backward(step)
        loop.backward(step)
        loop.optimizer.step()


def gradients_of_two_steps_in_one(loop: Loop) -> None:
    for i, step in enumerate(loop.hook.steps(loop.epoch())):
        with loop.ddp.no_sync() if i % 2 == 0 else nullcontext():
            loop.loss(np.concatenate(step[loop.rank])).backward()
        if i % 2:
            loop.optimizer.step()


def two_epochs_at_once(loop: Loop) -> None:
    for first, second in zip(loop.hook.steps(loop.epoch(0)), loop.hook.steps(loop.epoch(1)), strict=True):
        loop.step(first)
        loop.step(second)


class RecordedLoop(Loop):
    """A right training loop of one example a micro-batch, in one pass of a recorder."""

    def __init__(self, rank: int, world: int, model: nn.Module, **settings: object) -> None:
        self.rank, self.world, self.model = rank, world, model
        self.spec = EDPSpec(C=0.1, **settings)
        self.recorder = record_per_example(model)
        self.ddp = one_bucket_ddp(model)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.1)
        self.hook = EDPHook(
            self.ddp, self.spec, micro_batches=BATCH, single_example=True, rate=BATCH / EXAMPLES, recorder=self.recorder
        )

    def run(self, mine: list[np.ndarray], micro_batch_b: torch.Tensor | None = None) -> None:
        """One step, of these micro-batches."""
        x = torch.linspace(-1, 1, EXAMPLES * INPUTS).view(EXAMPLES, INPUTS)
        examples = np.concatenate(mine or [np.zeros(1, np.int64)])
        numbers = torch.arange(len(examples)) if micro_batch_b is None else micro_batch_b
        with self.recorder.examples(numbers, max(1, len(mine))):
            loss = self.ddp(x[examples])
        (loss.sum() * (1 if mine else 0)).backward()
        self.optimizer.step()

    def train(self, epochs: int = 1) -> None:
        for number in range(epochs):
            for step in self.hook.steps(self.epoch(number)):
                self.run(step[self.rank])


def recorded(loop: Loop, model: nn.Module | None = None) -> RecordedLoop:
    """The same loop with a recorder, whose hook is the one that is looked at."""
    other = RecordedLoop(loop.rank, loop.world, small_model() if model is None else model, **loop.settings)
    loop.hook = other.hook
    return other


def _drawn(loop: Loop, seed: int) -> Epoch:
    """A Poisson epoch of one example a micro-batch."""
    rng = np.random.default_rng(seed)

    def step() -> Step:
        drawn, places = np.flatnonzero(rng.random(EXAMPLES) < BATCH / EXAMPLES), rng.integers(loop.world, size=EXAMPLES)
        return [list(drawn[places[drawn] == rank].reshape(-1, 1)) for rank in range(loop.world)]

    return Epoch(0, "poisson", EXAMPLES, BATCH, [step() for _ in range(EXAMPLES // BATCH)])


def another_draw_on_each_worker(loop: Loop) -> None:
    for step in loop.hook.steps(_drawn(loop, loop.rank)):
        loop.step(step)


def another_order_on_each_worker(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch(seed=loop.rank)):
        loop.step(step)


def the_share_of_another_worker(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch()):
        loop.step([step[1 - loop.rank]] * loop.world)


def the_share_of_another_worker_by_iteration(loop: Loop) -> None:
    """It holds as many examples as the right one."""
    for step in loop.hook.steps(loop.epoch()):
        loop.step([list(step)[1 - loop.rank]] * loop.world)


def all_examples_in_micro_batch_0(loop: Loop) -> None:
    other = recorded(loop)
    for step in other.hook.steps(other.epoch()):
        mine = step[other.rank]
        other.run(mine, torch.zeros(len(mine), dtype=torch.long))


def no_zero_grad(loop: Loop) -> None:
    for step in loop.hook.steps(loop.epoch()):
        loop.backward(step)
        loop.optimizer.step()


def no_zero_grad_in_a_recorded_loop(loop: Loop) -> None:
    """No mistake: a recorder overwrites the gradients."""
    recorded(loop).train()


def a_poisson_epoch_of_the_same_steps(loop: Loop) -> None:
    first = next(iter(_drawn(loop, 0)))
    for number in range(30):
        for step in loop.hook.steps(Epoch(number, "poisson", EXAMPLES, BATCH, [first] * 4)):
            loop.step(step)


def a_poisson_epoch_of_shuffled_batches(loop: Loop) -> None:
    for number in range(30):
        order = shuffled_epoch(
            EXAMPLES, batch_size=BATCH, micro_batches=BATCH, workers=loop.world, seed=0, epoch=number
        )
        for step in loop.hook.steps(Epoch(number, "poisson", EXAMPLES, BATCH, order)):
            loop.step(step)


def a_mean_over_the_batchs_tokens(loop: Loop) -> None:
    recorded(loop, Loss(nn.Identity(), "mean over tokens")).train()


def a_mean_over_the_batchs_tokens_with_dropout(loop: Loop) -> None:
    recorded(loop, Loss(nn.Dropout(), "mean over tokens")).train()


def a_sum_with_dropout(loop: Loop) -> None:
    """No mistake."""
    recorded(loop, Loss(nn.Dropout(), "sum")).train()


def a_division_by_len_with_dropout(loop: Loop) -> None:
    recorded(loop, Loss(nn.Dropout(), "divided by len")).train()


def dropout_by_a_public_seed(loop: Loop) -> None:
    other = recorded(loop, Loss(nn.Dropout()))
    for number, step in enumerate(other.hook.steps(_drawn(other, 0))):
        torch.manual_seed(number)
        other.run(step[other.rank])


def dropout_by_a_secret_seed(loop: Loop) -> None:
    """No mistake."""
    other = recorded(loop, Loss(nn.Dropout()))
    torch.seed()
    for step in other.hook.steps(_drawn(other, 0)):
        other.run(step[other.rank])


def a_gate_that_opens_later(loop: Loop) -> None:
    mixing._RANDOM_STEPS = 8  # it is not found in 400 steps with a probability of 1e-23
    recorded(loop, Loss(Gate(20))).train(100)


def a_gate_that_an_update_opens(loop: Loop) -> None:
    """The learning rate is 0 in the first two steps."""
    mixing._RANDOM_STEPS = 1 << 60

    class Opened(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1e3 * (other.model.last.bias - start).detach() * x.mean(0)

    other = recorded(loop, Loss(Opened()))
    start = other.model.last.bias.detach().clone()
    for number, step in enumerate(other.hook.steps(other.epoch())):
        other.optimizer.param_groups[0]["lr"] = 0.0 if number < 2 else 1.0
        other.run(step[other.rank])


def a_frozen_parameter_that_follows_the_data(loop: Loop) -> None:
    mixing._RANDOM_STEPS = 1 << 60
    recorded(loop, Loss(Codebook(buffer=False))).train()


def a_buffer_that_follows_the_data_later(loop: Loop) -> None:
    mixing._RANDOM_STEPS = 1 << 60
    recorded(loop, Loss(Codebook(buffer=True))).train()


def a_trained_parameter_that_is_set_from_the_data(loop: Loop) -> None:
    recorded(loop, Loss(ActNorm())).train()


def a_parameter_of_the_loss_in_the_optimizer(loop: Loop) -> None:
    temperature = nn.Parameter(torch.ones(()))
    loop.optimizer.add_param_group({"params": [temperature]})
    for step in loop.hook.steps(loop.epoch()):
        loop.optimizer.zero_grad()
        for i, examples in enumerate(step[loop.rank]):
            last = i == len(step[loop.rank]) - 1
            with nullcontext() if last else loop.ddp.no_sync():
                (loop.loss(examples) * temperature).backward()
            if not last:
                loop.hook.accumulate()
        loop.optimizer.step()


def a_parameter_of_the_loss_in_its_own_optimizer(loop: Loop) -> None:
    temperature = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([temperature], lr=0.1)
    loss = loop.loss
    loop.loss = lambda examples: loss(examples) * temperature
    for step in loop.hook.steps(loop.epoch()):
        loop.step(step)
        optimizer.step()


def an_optimizer_step_inside_backward(loop: Loop) -> None:
    for parameter in loop.model.parameters():
        own = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
    for step in loop.hook.steps(loop.epoch()):
        loop.optimizer.zero_grad()
        loop.backward(step)


def a_backward_pass_that_normalises_by_the_batch(loop: Loop) -> None:
    recorded(loop, Loss(Normalised())).train()


def misused(rank: int, world: int, name: str, settings: dict) -> tuple[str, int]:
    """What the hook said, and how many steps the ledger holds by then."""
    loop = Loop(rank, world, **settings)
    try:
        globals()[name](loop)
    except HookUsageError as error:
        return str(error), loop.hook.ledger.steps
    return "went on", loop.hook.ledger.steps


def went_well(rank: int, world: int, epochs: int, settings: dict) -> Ledger:
    loop = Loop(rank, world, **settings)
    for number in range(epochs):
        for step in loop.hook.steps(loop.epoch(number)):
            loop.step(step)
    return loop.hook.ledger


def resumed_in_mid_epoch(rank: int, world: int) -> str:
    """A run that died after two steps of epoch 1, and takes that epoch from its beginning."""
    ledger = went_well(rank, world, 1, {})
    entry = ledger.entries[-1].model_copy(update={"epoch": 1, "steps": 2})
    loop = Loop(rank, world, ledger.model_copy(update={"entries": (*ledger.entries, entry)}))
    try:
        next(loop.hook.steps(loop.epoch(1)))
    except HookUsageError as error:
        return str(error)
    return "went on"


def with_a_scaler(rank: int, world: int, scale: float) -> tuple[float, float, int]:
    """Noise over clip of the unscaled aggregate of one step; as stated; and the ledger's steps after two."""
    found = []
    for z in (1.3, 1e-9):
        loop = Loop(rank, world, z0=z, reproducible_noise=3)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1)
        for step in itertools.islice(loop.hook.steps(loop.epoch()), 2):
            loop.optimizer.zero_grad()
            mine = step[rank]
            for i, examples in enumerate(mine):
                last = i == len(mine) - 1
                with nullcontext() if last else loop.ddp.no_sync():
                    scaler.scale(loop.loss(examples)).backward()
                if not last:
                    loop.hook.accumulate()
            if not found or (len(found) == 1 and z < 1):
                first = torch.cat([p.grad.flatten() for p in loop.model.parameters()])
                found.append(first / scaler.get_scale())
            scaler.step(loop.optimizer)
            scaler.update()
    noise = found[0] - found[1]
    moved = loop.hook.mechanism.C / loop.hook.micro_batches / scale
    return float(noise.std()) / moved, 1.3, loop.hook.ledger.steps
