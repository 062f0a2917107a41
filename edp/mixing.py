"""Check that no example changes what the model computes for another one, as the clip assumes.

Several micro-batches share a forward pass. The clip bounds the effect of an example only if the gradients of the other
micro-batches do not depend on it. A layer that mixes examples breaks that: one example then changes every gradient of
its batch, each by up to twice the clip, and the ledger counts one.

| mixing | found by |
|---|---|
| batch norms, running statistics of PyTorch's layers | `edp.per_example.refuse_mixing_layers`, before the first step |
| a buffer or frozen parameter that follows the data | their bits in an epoch's first step, random steps, and its end |
| any other, such as `x - x.mean(0)`, or a mean loss | outputs, for the first two weights of a run and in random steps |

The comparison takes an example of the batch together with another one, and without it. The model's output for it, the
loss or scores, has to be the same. An output that is one number has to be the sum of one term for each example. Both
runs have the same dropout: where the model draws random numbers, the other example is replaced instead of left out, so
that the same numbers are drawn for it, and it is left out in evaluation mode. The second weights are compared too,
because layers that are zero at first hide what is before them; a step that changes no weight does not count. Random
steps are drawn by the operating system's entropy, and find what begins to mix later, soon or late.

Not seen: a model that was not recorded (its micro-batches do not share a pass), inputs that cannot be cut into
examples, outputs without the examples as their first axis, effects as small as rounding may be (`_close`), a backward
pass that mixes what the forward pass did not, and what is done with the output outside of the model, such as a division
by the batch's number of tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from edp.per_example import GradientRecorder
from edp.steps import HookUsageError

_CHECKED_WEIGHTS = 2
_RANDOM_STEPS = 256
"""One step of so many is compared on average. A comparison takes up to seven passes of one or two examples."""
_TF32_EPS = 2.0**-10
"""Rounding of products on a GPU. PyTorch takes TF32 for float32 convolutions there."""
_MIXES = (
    "the model's output for an example depends on the other examples of its batch, so the clip does not bound what one "
    "example changes; allowed: layers that treat each example by itself, such as nn.LayerNorm and nn.GroupNorm"
)
_Outputs = tuple[list[Tensor], list[Tensor]]
"""Outputs with the examples as their first axis, and outputs that are one number."""


class MixingCheck:
    """The checks of one hook. They end with a `HookUsageError`, before anything of the step is released.

    Args:
        recorder: records the micro-batches that share a forward pass; None: no outputs are compared.
        steps: steps that were taken before, when a run is resumed. Its first weights were checked then.
    """

    def __init__(self, model: nn.Module, recorder: GradientRecorder | None, steps: int) -> None:
        self._model, self._recorder = model, recorder
        self._left = max(0, _CHECKED_WEIGHTS - steps)
        self._first, self._drawn, self._compared = True, False, False
        self._size = 0.0
        self._bits: list[int] = []
        self._state: dict[str, int] = {}
        if recorder is not None:
            # Before the forward pass: whatever the runs leave in the model, the pass itself overwrites.
            model.register_forward_pre_hook(self._before_forward, with_kwargs=True)

    def begin_epoch(self) -> None:
        """Keep the state, for comparisons in the epoch."""
        self._state, self._first = self._state_now(), True

    def begin_step(self) -> None:
        """Draw whether the next step is one of the random ones."""
        self._drawn, self._compared = _draw(), False

    def end_step(self) -> None:
        """Compare the state with that at the start of the epoch, in its first step and in random ones."""
        if self._first or self._drawn:
            self._compare_state()
        self._first = False

    def end_epoch(self) -> None:
        """Compare the state with that at the start of the epoch."""
        self._compare_state()

    def _state_now(self) -> dict[str, int]:
        frozen = {f"frozen parameter {name}": p for name, p in self._model.named_parameters() if not p.requires_grad}
        held = frozen | {f"buffer {name}": x for name, x in self._model.named_buffers()}
        return dict(zip(held, _bits(held.values()), strict=True))

    def _compare_state(self) -> None:
        before, now = self._state, self._state_now()
        for name in before.keys() | now.keys():
            if before.get(name) != now.get(name):
                raise HookUsageError(
                    f"{name}: it changed in a step, and what it holds of the data is released without clip and noise; "
                    "allowed: buffers and frozen parameters that training leaves as they are"
                )

    def _before_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder = self._recorder
        if recorder is None or not recorder.is_recording or self._compared or not (self._left or self._drawn):
            return
        if len(recorder.micro_batch_of_example) > 1 and torch.is_grad_enabled():
            self._compared = True
            if self._left:
                bits = _bits(recorder.parameters)
                self._left, self._bits = self._left - (bits != self._bits), bits
            else:
                # Late in a run a loss near 0 may come from large scores, whose rounding grows with the weights.
                weights = [p.detach() for p in recorder.parameters]
                largest = torch.stack(torch._foreach_norm(weights, torch.inf)).max()
                self._size = max(self._size, float(largest.nan_to_num(0.0)))
            self._size = _compare(model, recorder, args, kwargs, self._size)


def _draw() -> bool:
    return secrets.randbelow(_RANDOM_STEPS) == 0


def _bits(tensors: Iterable[Tensor]) -> list[int]:
    """Return the sum of each tensor's bits, as 64-bit integers: it changes with the tensor but for a rare chance."""
    sums = [_sum_of_bits(x.detach()) for x in tensors]
    return torch.stack(sums).tolist() if sums else []  # waits for a GPU once


def _sum_of_bits(x: Tensor) -> Tensor:
    # A copy begins at an address that 64 bits can be read from.
    flat = (x.contiguous() if x.storage_offset() == 0 else x.clone(memory_format=torch.contiguous_format)).flatten()
    octets = flat.view(torch.uint8)
    whole = len(octets) // 8 * 8
    return octets[:whole].view(torch.int64).sum() + octets[whole:].sum(dtype=torch.int64)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _compare(
    model: nn.Module, recorder: GradientRecorder, args: tuple[Any, ...], kwargs: dict[str, Any], size: float
) -> float:
    """Raise if the output for the first or the last example of a batch depends on the other one.

    Args:
        size: largest output in the step that was compared before. Rounding does not become smaller with a loss.

    Returns:
        The largest output so far.
    """
    examples, device = len(recorder.micro_batch_of_example), recorder.parameters[0].device
    devices = [device] if device.type == "cuda" else []
    if not any(_can_choose(x, examples) for x in tree_leaves((args, kwargs))):
        return size

    def random_state() -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(one) for one in devices)]

    def run(index: list[int]) -> tuple[_Outputs, bool]:
        """Return the outputs for these examples, and True if random numbers were drawn for them."""
        inputs, named = tree_map(lambda x: _chosen(x, index, examples), (args, kwargs))
        # Every run begins with the same random state, and leaves it as it was.
        with torch.random.fork_rng(devices), recorder.rehearsal(len(index)):
            before = random_state()
            output = model.forward(*inputs, **named)
            drew = not all(map(torch.equal, before, random_state()))
        numbers = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.is_floating_point()]
        sums = [x.detach() for x in numbers if x.dim() == 0 and x.requires_grad and recorder.micro_batches > 1]
        return ([x.detach() for x in numbers if _has_rows(x, len(index))], sums), drew

    try:
        together, drew = run([0, -1])
        again, _ = run([0, -1])
        size = max([size, *(float(x.nan_to_num(0.0, 0.0, 0.0).abs().max()) for x in [*together[0], *together[1]])])
        if not _all_close(together, again, size):
            return size  # its random numbers are not PyTorch's, and no two runs have the same
        others = [run([i, i] if drew else [i])[0] for i in (0, -1)]
    except Exception as error:
        raise HookUsageError(
            f"the model cannot run one example of a batch without the others ({type(error).__name__}: {error}), so it "
            "may mix them; allowed: a model that treats each example by itself, or check_mixing=False if you know "
            "that this one does"
        ) from error
    if not drew:
        _compare_alone(together, others, size)
        return size
    for row, (outputs, _) in enumerate(others):
        for with_other, replaced in zip(together[0], outputs, strict=False):
            if not _close(with_other[row], replaced[row], size):
                raise HookUsageError(_MIXES)
    try:
        with _evaluating(model):
            together, still = run([0, -1])
            others = [run([i])[0] for i in (0, -1)]
    except Exception:
        return size  # a model need not have such a mode
    if not still:
        _compare_alone(together, others, size)
    return size


def _compare_alone(together: _Outputs, others: list[_Outputs], size: float) -> None:
    """Raise unless each of two examples has the same outputs alone, and each number is the sum of theirs."""
    for row, (outputs, _) in enumerate(others):
        for with_other, alone in zip(together[0], outputs, strict=False):
            if not _close(with_other[row], alone[0], size):
                raise HookUsageError(_MIXES)
    for of_both, first, second in zip(together[1], others[0][1], others[1][1], strict=False):
        without_examples = torch.equal(of_both, first) and torch.equal(of_both, second)
        if not without_examples and not _close(of_both, first + second, size):
            raise HookUsageError(
                "the model's output is one number that is not the sum of a term for each example, such as a mean over "
                "the batch: its divisor lets one example change the gradients of the others; allowed: a loss for each "
                "example, or their sum"
            )


def _all_close(one: _Outputs, other: _Outputs, size: float) -> bool:
    return all(_close(x, y, size) for a, b in zip(one, other, strict=True) for x, y in zip(a, b, strict=True))


def _has_rows(x: Any, rows: int) -> bool:
    return isinstance(x, Tensor) and x.dim() > 0 and len(x) == rows


def _can_choose(x: Any, examples: int) -> bool:
    return _has_rows(x, examples) or hasattr(x, "select_examples")


def _chosen(x: Any, index: list[int], examples: int) -> Any:
    """Return some examples of one of the model's inputs, or the input itself if it has none.

    An object that is not a tensor is asked for them by its method `select_examples(index)`, if it has one.
    """
    if not _can_choose(x, examples):
        return x
    return x[index] if isinstance(x, Tensor) else x.select_examples(index)


def _close(a: Tensor, b: Tensor, size: float) -> bool:
    """Return True if `a` and `b` differ by no more than rounding in a model with outputs of this size.

    Rounding may take half of the digits: a loss near 0 comes from large scores. Tensors of different shapes are not
    compared, nor numbers that are not finite: one example's infinite loss must not end a run.
    """
    if a.shape != b.shape:
        return True
    device, eps = a.device.type, [torch.finfo(a.dtype).eps]
    if torch.is_autocast_enabled(device):
        eps.append(torch.finfo(torch.get_autocast_dtype(device)).eps)
    if device == "cuda":
        eps.append(_TF32_EPS)
    return not bool(((a - b).abs().nan_to_num(0.0, 0.0) > max(eps) ** 0.5 * (1 + size)).any())
