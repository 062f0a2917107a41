"""Check that no example changes what the model computes for another one, as the clip assumes.

Several micro-batches share a forward pass. The clip bounds the effect of an example only if the gradients of the other
micro-batches do not depend on it. A layer that mixes examples breaks that: one example then changes every gradient of
its batch, each by up to twice the clip, and the ledger counts one.

| mixing | found by |
|---|---|
| batch norms, running statistics of PyTorch's layers | `edp.per_example.refuse_mixing_layers`, before the first step |
| any buffer that follows the data | a comparison of the buffers before and after the first step of each epoch |
| any other, such as `x - x.mean(0)` | a comparison of outputs, in a run's first two steps |

The comparison takes an example of the batch together with another one, and without it. The model's output for it, the
loss or scores, has to be the same. Both runs have the same dropout: where the model draws random numbers, the other
example is replaced instead of left out, so that the same numbers are drawn for it. The second step is checked too,
because layers that are zero at first hide what is before them.

Not seen: a model that was not recorded (its micro-batches do not share a pass), inputs that cannot be cut into
examples, outputs without the examples as their first axis, effects as small as rounding may be (`_close`), and what is
done with the output outside of the model, such as a division by the batch's number of tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from edp.per_example import GradientRecorder
from edp.steps import HookUsageError

_CHECKED_STEPS = 2
_TF32_EPS = 2.0**-10
"""Rounding of products on a GPU. PyTorch takes TF32 for float32 convolutions there."""


class MixingCheck:
    """The checks of one hook. Both end with a `HookUsageError`, before anything of the step is released.

    Args:
        recorder: records the micro-batches that share a forward pass; None: no outputs are compared.
        steps: steps that were taken before, when a run is resumed. Its first steps were checked then.
    """

    def __init__(self, model: nn.Module, recorder: GradientRecorder | None, steps: int) -> None:
        self._model, self._recorder = model, recorder
        self._left = max(0, _CHECKED_STEPS - steps)
        self._compared, self._size = False, 0.0
        self._buffers: dict[str, Tensor] | None = None
        if recorder is not None and self._left:
            # Before the forward pass: whatever the runs leave in the model, the pass itself overwrites.
            model.register_forward_pre_hook(self._before_forward, with_kwargs=True)

    def begin_epoch(self) -> None:
        """Keep the buffers, for a comparison at the end of the next step."""
        self._buffers = {name: x.detach().clone() for name, x in self._model.named_buffers()}

    def end_step(self) -> None:
        """Compare the buffers with those at the start of the epoch, once an epoch. On a GPU that waits."""
        self._left, self._compared = max(0, self._left - self._compared), False
        before, self._buffers = self._buffers, None
        if before is None:
            return
        now = dict(self._model.named_buffers())
        for name in before.keys() | now.keys():
            if name not in now or name not in before or not torch.equal(now[name], before[name]):
                raise HookUsageError(
                    f"buffer {name}: it changed in a step, and what it holds of the data is released without clip and "
                    "noise; allowed: buffers that training leaves as they are"
                )

    def _before_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder = self._recorder
        if recorder is None or not recorder.is_recording or self._compared or not self._left:
            return
        if len(recorder.micro_batch_of_example) > 1 and torch.is_grad_enabled():
            self._compared = True
            self._size = _compare(model, recorder, args, kwargs, self._size)


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

    def run(index: list[int]) -> tuple[list[Tensor], bool]:
        """Return the outputs for these examples, and True if random numbers were drawn for them."""
        inputs, named = tree_map(lambda x: _chosen(x, index, examples), (args, kwargs))
        # Every run begins with the same random state, and leaves it as it was.
        with torch.random.fork_rng(devices), recorder.rehearsal(len(index)):
            before = random_state()
            output = model.forward(*inputs, **named)
            drew = not all(map(torch.equal, before, random_state()))
        rows = [x.detach() for x in tree_leaves(output) if _has_rows(x, len(index))]
        return [x for x in rows if x.is_floating_point()], drew

    try:
        together, drew = run([0, -1])
        again, _ = run([0, -1])
        size = max([size, *(float(x.nan_to_num(0.0, 0.0, 0.0).abs().max()) for x in together)])
        if not all(_close(x, y, size) for x, y in zip(together, again, strict=True)):
            return size  # its random numbers are not PyTorch's, and no two runs have the same
        without = [run([i, i] if drew else [i])[0] for i in (0, -1)]
    except Exception as error:
        raise HookUsageError(
            f"the model cannot run one example of a batch without the others ({type(error).__name__}: {error}), so it "
            "may mix them; allowed: a model that treats each example by itself, or check_mixing=False if you know "
            "that this one does"
        ) from error
    for row, outputs in enumerate(without):
        for with_other, alone in zip(together, outputs, strict=False):
            if not _close(with_other[row], alone[row if drew else 0], size):
                raise HookUsageError(
                    "the model's output for an example depends on the other examples of its batch, so the clip does "
                    "not bound what one example changes; allowed: layers that treat each example by itself, such as "
                    "nn.LayerNorm and nn.GroupNorm"
                )
    return size


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
