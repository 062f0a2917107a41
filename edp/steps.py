"""Checks, while a hook takes its steps, of what the accounting assumes of them.

| assumption | broken by |
|---|---|
| a shuffled epoch holds every example once at most | a sampler that draws again, an epoch that never ends |
| examples are in a Poisson step with the ledger's `rate` | another sampler, or another batch size |
| Poisson steps are drawn anew | the same step again, or steps of one size (`_Evidence`) |
| random numbers of a Poisson step are secret | `torch.manual_seed(0)`, and then dropout |
| all workers share one step, each takes its own part | a draw or an order for each worker, `step[0]` on all |
| with `unit = user` a micro-batch is one user's, and a step has at most one of each user | a sampler of examples |
| a step is one Gaussian mechanism of N micro-batches | a step left out, two in one, micro-batches run together |
| a micro-batch holds the examples that were drawn for it | other examples, or `micro_batch_b` of zeros |
| a gradient is of this step's examples alone | no `zero_grad` |
| weights change by noisy aggregates alone | an optimizer's step within a backward pass, or of others' parameters |
| with correlated noise an example is in the same step of every epoch | another order |

A training loop that breaks one gets a `HookUsageError` instead of an ε that is too small.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from edp.ledger import Ledger
from edp.mechanism import Mechanism
from edp.sampling import Epoch, Step, steps_at_rate


class HookUsageError(RuntimeError):
    """The training loop does something that the ledger cannot record: its ε would be too small."""


_PUBLIC_SEED = 1 << 28
"""A seed below it is taken for one that a person chose. A secret seed of 53 bits is so small once in 3e7."""


class OwnShare(list[Any]):
    """A step, of which a worker may take its own share alone. The others' can be iterated over, to count them."""

    def __init__(self, step: Step, rank: int) -> None:
        super().__init__(step)
        self._rank = rank

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice) and range(len(self))[index] != self._rank:
            raise HookUsageError(f"step[{index}] on worker {self._rank}; allowed: step[rank], its own share")
        return super().__getitem__(index)


class StepGuard:
    """The epoch and the step that are open, on one worker of `group`.

    Args:
        model: the hook clips and noises all its trainable parameters.
        per_worker: micro-batches of this worker in a step; None: any number, but at least one backward pass.
    """

    def __init__(
        self, mechanism: Mechanism, model: nn.Module, group: dist.ProcessGroup, per_worker: int | None
    ) -> None:
        self._mechanism, self._group, self._per_worker = mechanism, group, per_worker
        self._rank, self._workers = dist.get_rank(group), dist.get_world_size(group)
        self._model, self._parameters = model, self._trainable(model)
        self._device = next(iter(self._parameters.values())).device
        self._ids = {id(p) for p in self._parameters.values()}
        for parameter in self._parameters.values():
            parameter.register_hook(self._before_accumulation)
        _watch_optimizers(self)
        self._evidence = _Evidence()
        self._generators = [torch.default_generator]
        if self._device.type == "cuda":
            self._generators.append(torch.cuda.default_generators[self._device.index])
        self._epoch: Epoch | None = None
        self._step = 0
        self._open = False
        # The step of each example (or user) in this epoch, -1 for none yet; and in the first epoch.
        self._step_of: np.ndarray | None = None
        self._first_order: np.ndarray | None = None
        self._users: np.ndarray | None = None
        self._drawn_from = 0
        self.micro_batches = 0
        """Micro-batches that this worker has to take in the open step."""
        self.nothing_drawn = False
        """True if this worker's share of the open step has no examples: what it backpropagates is multiplied by 0."""
        self._sizes = np.zeros(0, np.int64)
        self._taken = 0
        self._taken_sizes: list[np.ndarray] = []
        self._unknown = 0
        self._first_gradient = False
        self._versions: list[int] = []
        self._random_states: list[torch.Tensor] = []
        self._others: tuple[dist.Work, list[torch.Tensor]] | None = None
        self._differ = torch.zeros((), dtype=torch.bool, device=self._device)

    def begin(self, epoch: Epoch, ledger: Ledger) -> None:
        """Open an epoch; `ledger` holds the steps taken so far."""
        self.end_step()
        m = self._mechanism
        if epoch.sampling != m.sampling:
            raise HookUsageError(
                f"the sampler's sampling is {epoch.sampling}; allowed here: {m.sampling}, as of the spec"
            )
        if abs(epoch.rate - m.rate) > 1e-9 * m.rate:
            raise HookUsageError(
                f"the sampler's rate is {epoch.batch_size}/{epoch.examples}; allowed here: {m.rate:g}, as of the hook"
            )
        # The ledger charges a shuffled epoch once: thirty epochs under one number would be charged as one.
        if ledger.entries and ledger.entries[-1].epoch == epoch.number:
            raise HookUsageError(
                f"epoch {epoch.number} was begun before: its examples would take part twice and be counted once; "
                "allowed: another number for every epoch"
            )
        if (epoch.users is not None) != (m.unit == "user"):
            raise HookUsageError(
                "unit = user, and the sampler does not say whose examples they are; allowed: an epoch of group_by_user"
                if m.unit == "user"
                else f"the sampler draws users; allowed with unit = {m.unit}: examples"
            )
        self._users = epoch.users
        self._drawn_from = epoch.examples if epoch.users is None else len(np.unique(epoch.users))
        if m.fixed_order and self._first_order is None:
            self._first_order = self._step_of
        self._epoch, self._step, self._step_of = epoch, -1, np.full(epoch.examples, -1, np.int32)

    def open_step(self, epoch: Epoch, step: Step) -> None:
        """Open the next step of the open epoch."""
        if epoch is not self._epoch:
            raise HookUsageError(f"epoch {epoch.number} goes on after another one was begun; allowed: one at a time")
        self.end_step()
        self._step += 1
        mine = step[self._rank] if len(step) == self._workers else []
        if len(step) != self._workers or (self._per_worker is not None and len(mine) != self._per_worker):
            raise HookUsageError(
                f"the sampler gave {len(mine)} micro-batches to this one of {len(step)} workers; allowed: "
                f"{self._per_worker} to each of {self._workers}"
            )
        held = [examples for share in step for examples in share if len(examples)]
        longest = max(map(len, held), default=0)
        if self._mechanism.single_example and longest > 1:
            raise HookUsageError(f"a micro-batch of {longest} examples; allowed with single_example: one at most")
        self._take(self._units_of(held))
        self.micro_batches = max(1, len(mine))
        self._sizes = np.array([len(examples) for examples in mine], np.int64)
        self.nothing_drawn = not self._sizes.any()
        self._ask_others(epoch, step, held)
        self._first_gradient = self._open = True
        self._versions = [p._version for p in self._parameters.values()]
        if self._mechanism.sampling == "poisson":
            self._random_states = [generator.get_state() for generator in self._generators]

    def _ask_others(self, epoch: Epoch, step: Step, held: list[np.ndarray]) -> None:
        """Begin to compare the whole step with the other workers', while the loop runs its share."""
        if self._workers == 1:
            return
        sizes = [[len(examples) for examples in share] for share in step]
        digest = hashlib.blake2b(repr((epoch.number, self._step, sizes)).encode(), digest_size=8)
        digest.update(np.concatenate(held or [np.zeros(0, np.int64)]).astype(np.int64).tobytes())
        mine = torch.tensor([int.from_bytes(digest.digest(), "little", signed=True)]).to(self._device)
        found = [torch.empty_like(mine) for _ in range(self._workers)]
        work = dist.all_gather(found, mine, group=self._group, async_op=True)
        assert work is not None
        self._others = work, found

    def _compare_with_others(self) -> None:
        """Raise if the workers' steps differ: on a CPU in the same step, on a GPU when the host waits for it anyway."""
        if self._others is None:
            return
        work, found = self._others
        self._others = None
        work.wait()
        self._differ |= torch.cat(found).ne(found[0]).any()
        if self._device.type == "cpu" or self._step == 0:
            self.check_others()

    def check_others(self) -> None:
        """Raise if the workers' steps differed in a step so far. Waits for a GPU."""
        if self._workers > 1 and bool(self._differ):
            raise HookUsageError(
                "the workers' steps differ, so an example's draws or places are not what the ledger counts; allowed: "
                "one order or one secret draw, shared by all workers"
            )

    def _units_of(self, micro_batches: list[np.ndarray]) -> np.ndarray:
        """Return the examples of a step; or its users, one for each micro-batch."""
        examples = np.concatenate(micro_batches or [np.zeros(0, np.int64)])
        if self._users is None:
            return examples
        sizes = np.array([len(indices) for indices in micro_batches], np.int64)
        users = self._users[examples]
        user_m = users[sizes.cumsum() - sizes]
        if (users != np.repeat(user_m, sizes)).any():
            raise HookUsageError("a micro-batch of several users; allowed with unit = user: one user's examples")
        return user_m

    def _take(self, units: np.ndarray) -> None:
        m, step_of = self._mechanism, self._step_of
        unit = "an example" if self._users is None else "a user"
        assert step_of is not None
        if len(np.unique(units)) < len(units):
            raise HookUsageError(f"a step holds {unit} twice; allowed: each once at most")
        if m.sampling != "shuffle":
            self._evidence.add(units, self._drawn_from, min(1.0, m.rate))
            return
        if self._step >= steps_at_rate(m.rate):
            raise HookUsageError(f"a shuffled epoch of more than {steps_at_rate(m.rate)} steps at rate = {m.rate:g}")
        if (step_of[units] >= 0).any():
            raise HookUsageError(f"a shuffled epoch holds {unit} twice; allowed: each once at most")
        step_of[units] = self._step
        first = self._first_order
        if first is not None and (len(first) != len(step_of) or (first[units] != self._step).any()):
            raise HookUsageError(
                f"correlated noise: {unit} is in another step than in the first epoch; allowed: one order "
                "for all epochs"
            )

    def execute(self) -> None:
        """Mark the open step as taken. Called once, before anything of it is released."""
        self.check_open()
        self._open = False
        if self._versions != [p._version for p in self._parameters.values()]:
            raise HookUsageError(
                "a weight changed within a step, before its gradient was clipped and noised; allowed: weights that "
                "only the optimizer changes, after the backward pass"
            )
        for generator, before in zip(self._generators, self._random_states, strict=False):
            if generator.initial_seed() < _PUBLIC_SEED and not torch.equal(before, generator.get_state()):
                raise HookUsageError(
                    f"a Poisson step drew random numbers from the seed {generator.initial_seed()}: which of them an "
                    "example meets tells of the others; allowed: a secret seed, such as torch.seed()'s"
                )
        self._compare_with_others()

    def _before_accumulation(self, _gradient: torch.Tensor | None) -> None:
        """Raise if `.grad` is not empty when the first gradient of a step is added to it."""
        if not self._first_gradient or _gradient is None:  # a recorder overwrites what is there
            return
        self._first_gradient = False
        if any(p.grad is not None and bool(p.grad.any()) for p in self._parameters.values()):
            raise HookUsageError(
                "a step began with the gradient of the last one: it would be clipped together with an example's; "
                "allowed: optimizer.zero_grad() before each step's backward pass"
            )

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Raise if an optimizer of the model's parameters is about to change another one."""
        held = [p for group in optimizer.param_groups for p in group["params"]]
        if any(id(p) in self._ids for p in held):
            for p in held:
                if p.grad is not None and id(p) not in self._ids:
                    raise HookUsageError(
                        f"the optimizer has a parameter of shape {tuple(p.shape)} that is none of the model's: its "
                        "gradient is neither clipped nor noised; allowed: the trainable parameters of the DDP model"
                    )

    @staticmethod
    def _trainable(model: nn.Module) -> dict[str, nn.Parameter]:
        return {name: p for name, p in model.named_parameters() if p.requires_grad}

    def _same_parameters(self) -> None:
        now = self._trainable(self._model)
        if now.keys() == self._parameters.keys() and all(p is self._parameters[name] for name, p in now.items()):
            return
        new = [name for name, p in now.items() if p is not self._parameters.get(name)]
        raise HookUsageError(
            "the trainable parameters changed after the hook was made"
            + (f": {new[0]} would be neither clipped nor noised" if new else "")
            + "; allowed: a DDP model and a hook that are made after all of them"
        )

    def check_open(self) -> None:
        """Raise unless a step is open and the model's trainable parameters are those that the hook knows."""
        self._same_parameters()
        if not self._open:
            raise HookUsageError(
                "a gradient without a step: take one backward pass to the end in each step of "
                "`for step in hook.steps(epoch)`, all others under `ddp.no_sync()`"
            )

    def count(self, micro_batches: int, sizes: np.ndarray | None = None, *, more: bool) -> None:
        """Count micro-batches of the open step that were clipped; with `more`, others follow.

        Args:
            sizes: their numbers of examples, (M,); None: unknown.
        """
        self._taken += micro_batches
        expected = self.micro_batches
        if self._taken > expected - more:
            raise HookUsageError(f"more than {expected} micro-batches in a step of this worker")
        if not more and self._taken < expected:
            raise HookUsageError(
                f"{self._taken} micro-batches in a step instead of {expected}: call EDPHook.accumulate after each but "
                "the last, or they would be clipped as one"
            )
        # A pass over empty micro-batches alone needs an example too, whose loss is multiplied by 0.
        if sizes is None or sizes.sum() == 1:
            self._unknown += 1
        else:
            self._taken_sizes.append(sizes)
        if not more:
            self._same_sizes()

    def _same_sizes(self) -> None:
        """Raise unless the micro-batches taken have the sizes of this worker's share, in any order."""
        taken = np.concatenate([np.zeros(0, np.int64), *self._taken_sizes])
        longest = max(taken.max(initial=0), self._sizes.max(initial=0)) + 1
        missing = np.bincount(self._sizes, minlength=longest) - np.bincount(taken, minlength=longest)
        if (missing[1:] < 0).any() or missing[1:].sum() > self._unknown:
            raise HookUsageError(
                f"the micro-batches of a step hold {_largest(taken)} examples instead of {_largest(self._sizes)}; "
                "allowed: those of step[rank], each example with the number of its own micro-batch"
            )

    def recorded(self) -> None:
        """Start the count anew, after the step was recorded in the ledger."""
        self._taken, self._taken_sizes, self._unknown = 0, [], 0

    def end_step(self) -> None:
        """Raise if the open step was not taken."""
        if self._open:
            raise HookUsageError(
                "a step was left out: every worker has to backpropagate something in each, if only a loss times 0"
            )


def _largest(sizes: np.ndarray) -> str:
    ordered = sorted(map(int, sizes), reverse=True)
    return ", ".join(map(str, ordered[:8])) + (", …" if len(ordered) > 8 else "")


def _watch_optimizers(guard: StepGuard) -> None:
    """Call `guard.check_optimizer` before each optimizer's step in this process, as long as the guard lives."""
    alive = weakref.ref(guard)

    def before_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        found = alive()
        if found is not None:
            found.check_optimizer(optimizer)

    weakref.finalize(guard, register_optimizer_step_pre_hook(before_step).remove)


class _Evidence:
    """A sequential test of the claim that steps are Poisson drawn, which a true claim fails with probability 1e-9.

    A bet against the claim wins 1 on average if it is true: half is kept, a quarter is on the last step again, a
    quarter on the last step's size again. By Ville's inequality the wealth of bets that begin at all steps, with
    weights that sum to 1, then ever reaches 1e9 with probability 1e-9 at most, however long the run is.
    """

    def __init__(self) -> None:
        self._wealth, self._steps, self._last = 0.0, 0, np.zeros(0, np.int64)

    def add(self, drawn: Sequence[int] | np.ndarray, units: int, rate: float) -> None:
        """Bet on a step that drew these of `units`, each with probability `rate`; raise if the wealth is 1e9."""
        last, self._last = self._last, np.sort(drawn)
        size, self._steps = len(self._last), self._steps + 1
        if self._steps == 1 or rate == 1 or size != len(last):
            odds = 1.0 if self._steps == 1 or rate == 1 else 0.5
        else:
            ways = math.lgamma(units + 1) - math.lgamma(size + 1) - math.lgamma(units - size + 1)
            log_of_set = size * math.log(rate) + (units - size) * math.log1p(-rate)
            same = np.array_equal(last, self._last)
            odds = 0.5 + 0.25 * math.exp(-log_of_set - ways) + (0.25 * math.exp(min(700, -log_of_set)) if same else 0)
        self._wealth = (self._wealth + 1 / (self._steps * (self._steps + 1))) * odds
        if self._wealth >= 1e9:
            raise HookUsageError(
                "the steps are not Poisson drawn: they are the same, or of the same size, too often (a Poisson "
                "sampler is refused once in 1e9 runs); allowed: a new secret draw for each step"
            )
