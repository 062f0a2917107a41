"""Checks, while a hook takes its steps, of what the accounting assumes of them.

| assumption | broken by |
|---|---|
| a shuffled epoch holds every example once at most | a sampler that draws again, an epoch that never ends |
| examples are in a Poisson step with the ledger's `rate` | another sampler, or another batch size |
| with `unit = user` a micro-batch is one user's, and a step has at most one of each user | a sampler of examples |
| a step is one Gaussian mechanism of N micro-batches | a step left out, two in one, micro-batches run together |
| with correlated noise an example is in the same step of every epoch | another order |

A training loop that breaks one gets a `HookUsageError` instead of an ε that is too small.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from edp.ledger import Ledger
from edp.mechanism import Mechanism
from edp.sampling import Epoch, Step, steps_at_rate


class HookUsageError(RuntimeError):
    """The training loop does something that the ledger cannot record: its ε would be too small."""


class StepGuard:
    """The epoch and the step that are open, on worker `rank` of `workers`.

    Args:
        model: the hook clips and noises all its trainable parameters.
        per_worker: micro-batches of this worker in a step; None: any number, but at least one backward pass.
    """

    def __init__(self, mechanism: Mechanism, model: nn.Module, rank: int, workers: int, per_worker: int | None) -> None:
        self._mechanism, self._rank, self._workers, self._per_worker = mechanism, rank, workers, per_worker
        self._model, self._parameters = model, self._trainable(model)
        self._epoch: Epoch | None = None
        self._step = 0
        self._open = False
        # The step of each example (or user) in this epoch, -1 for none yet; and in the first epoch.
        self._step_of: np.ndarray | None = None
        self._first_order: np.ndarray | None = None
        self._users: np.ndarray | None = None
        self.micro_batches = 0
        """Micro-batches that this worker has to take in the open step."""
        self._taken = 0

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
        self._open = True

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

    def count(self, micro_batches: int, *, more: bool) -> None:
        """Count micro-batches of the open step that were clipped; with `more`, others follow."""
        self._taken += micro_batches
        expected = self.micro_batches
        if self._taken > expected - more:
            raise HookUsageError(f"more than {expected} micro-batches in a step of this worker")
        if not more and self._taken < expected:
            raise HookUsageError(
                f"{self._taken} micro-batches in a step instead of {expected}: call EDPHook.accumulate after each but "
                "the last, or they would be clipped as one"
            )

    def recorded(self) -> None:
        """Start the count anew, after the step was recorded in the ledger."""
        self._taken = 0

    def end_step(self) -> None:
        """Raise if the open step was not taken."""
        if self._open:
            raise HookUsageError(
                "a step was left out: every worker has to backpropagate something in each, if only a loss times 0"
            )
