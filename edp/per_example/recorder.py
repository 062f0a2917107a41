"""The per-example gradient recorder: records that the layers' backward passes leave, and what follows from them.

    recorder = record_per_example(model)                    # layers leave records from now on
    with recorder.examples(micro_batch_b, micro_batches):   # the micro-batch of each example
        loss_b = model(batch)
    loss_b.sum().backward()
    squares_mk = recorder.squared_norms()                   # of each micro-batch's gradient in each layer
    recorder.write(factor_m, sums)                          # the sum of factor · gradient over the micro-batches

Shapes: b examples, m micro-batches, n rows, k layers, i inputs, o outputs of a layer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from edp.per_example.rows import Rows

Sums = dict[int, Tensor]
"""A tensor of each parameter's shape, by the parameter's `id`."""
Write = Callable[[Tensor, Sums, bool], None]
"""Writes the weighted sum (weights (M,)) of the recorded gradients into the parameters' sums; True: adds it there.
A micro-batch of weight 0 adds nothing, also where its gradient is not finite: `GradientRecorder.finite`."""


def layer_of_parameter(model: nn.Module) -> tuple[list[nn.Parameter], list[int], list[str]]:
    """Return the trainable parameters in registration order, the number of each one's layer, and the layers' names.

    A layer is a module that owns trainable parameters.
    """
    parameters: list[nn.Parameter] = []
    layers: list[int] = []
    names: list[str] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        owner = name.rpartition(".")[0]
        if owner not in names:
            names.append(owner)
        parameters.append(parameter)
        layers.append(names.index(owner))
    return parameters, layers, names


class GradientRecorder:
    """Records of one forward and backward pass over whole micro-batches. Made by `record_per_example`."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters, layer, self.layer_names = layer_of_parameter(model)
        self._layer = {id(p): k for p, k in zip(self.parameters, layer, strict=True)}
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._recording = False
        self._lengths_b: Tensor | None = None
        self.micro_batch_of_example = torch.zeros(0, dtype=torch.long)
        self._device = self.parameters[0].device
        self.micro_batches = 0
        self._some_dropped = False
        self.clear()

    def clear(self) -> None:
        """Delete all records."""
        self._recorded: set[int] = set()
        self._squares: list[list[Tensor]] = [[] for _ in self.layer_names]
        self._writes: list[Write] = []
        self._rows: dict[tuple[int, int], Rows] = {}
        # Keep two: query's and value's adapters share an input, and a layer with another input runs between them.
        self._packed: deque[tuple[Tensor, Rows, _Packed]] = deque(maxlen=2)

    @property
    def is_recording(self) -> bool:
        """True within `examples`: a forward pass leaves records."""
        return self._recording

    @property
    def has_records(self) -> bool:
        """True from a backward pass to `write` or `clear`."""
        return bool(self._recorded)

    def sizes(self) -> np.ndarray:
        """Return the number of examples of each micro-batch, (M,)."""
        return np.bincount(self.micro_batch_of_example.numpy(), minlength=self.micro_batches)

    @contextmanager
    def examples(self, micro_batch_b: Tensor, micro_batches: int) -> Iterator[None]:
        """Record the forward passes within, which must be over whole micro-batches.

        Args:
            micro_batch_b: the micro-batch of each example, (B,) int64 on the CPU, from 0. The examples are the first
                axis of the layers' inputs.
            micro_batches: M; some micro-batches may be empty.

        Raises:
            RuntimeError: if the records of the last backward pass were not written.
        """
        if self.has_records:
            raise RuntimeError(
                "the records of the last backward pass were not written: call EDPHook.accumulate after it"
            )
        self.clear()
        self.micro_batch_of_example, self.micro_batches = micro_batch_b, micro_batches
        self.one_each = torch.equal(micro_batch_b, torch.arange(micro_batches))
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run the layers within without recording."""
        before, self._recording = self._recording, False
        try:
            yield
        finally:
            self._recording = before

    @contextmanager
    def rehearsal(self, examples: int) -> Iterator[None]:
        """Run forward passes of other examples within, by the same rules. No backward pass may follow them."""
        before = self.micro_batch_of_example, self.micro_batches, self.one_each, self._lengths_b
        self.micro_batch_of_example, self.micro_batches = torch.arange(examples), examples
        self.one_each, self._lengths_b = True, None
        self.clear()
        try:
            yield
        finally:
            self.micro_batch_of_example, self.micro_batches, self.one_each, self._lengths_b = before
            self.clear()

    @contextmanager
    def padded(self, lengths_b: Tensor) -> Iterator[None]:
        """Leave out the rows beyond each example's length, to save time.

        The caller guarantees that no gradient reaches those rows: a row that is left out is not clipped.

        Args:
            lengths_b: rows of each example, (B,), on the CPU.
        """
        before, self._lengths_b = self._lengths_b, lengths_b
        try:
            yield
        finally:
            self._lengths_b = before

    def recomputing(self) -> AbstractContextManager[None]:
        """Return a context in which a layer of this forward pass may run again, for gradient checkpointing.

        Its rules then save the same tensors. They record nothing: no gradient reaches the second run's outputs.
        """
        now = self._recording, self._lengths_b

        @contextmanager
        def again() -> Iterator[None]:
            before = self._recording, self._lengths_b
            self._recording, self._lengths_b = now
            try:
                yield
            finally:
                self._recording, self._lengths_b = before

        return again()

    def rows(self, x: Tensor, layer: nn.Module) -> Rows:
        """Return the rows of a layer's input (B, …, d), flattened; without padding for an input (B, T, d).

        Raises:
            RuntimeError: if the first axis of `x` is not that of the examples.
        """
        examples, (size, per_example) = len(self.micro_batch_of_example), (x.shape[0], x.shape[1:-1].numel())
        if size != examples:
            raise RuntimeError(
                f"{type(layer).__name__} was given an input of shape {tuple(x.shape)}; allowed here: the {examples} "
                "examples as the first axis, or a rule of the layer's own (edp.register_layer)"
            )
        lengths_b = self._lengths_b if x.dim() == 3 else None
        key = (per_example, id(lengths_b))
        if key not in self._rows:
            length_b = torch.full((examples,), per_example) if lengths_b is None else lengths_b.clamp(max=per_example)
            example_n = torch.arange(examples).repeat_interleave(length_b)
            first_b = length_b.cumsum(0) - length_b
            step_n = torch.arange(len(example_n)) - first_b[example_n]
            self._rows[key] = self.rows_of(example_n * per_example + step_n, example_n)
        return self._rows[key]

    def rows_of(self, row_n: Tensor, example_n: Tensor) -> Rows:
        """Return the rows at `row_n` of the examples `example_n`; both (N,) int64 on the CPU."""
        return Rows.of(row_n, self.micro_batch_of_example[example_n], self.micro_batches, self._device)

    def by_micro_batch(self, values_b: Tensor) -> Tensor:
        """Return the sums of the examples' values (B, …) by micro-batch, (M, …)."""
        if self.one_each:
            return values_b
        index = self.micro_batch_of_example.to(values_b.device, non_blocking=True)
        return values_b.new_zeros(self.micro_batches, *values_b.shape[1:]).index_add_(0, index, values_b)

    # For the rules of the layers.

    def hook(
        self, output: Tensor, parameters: Sequence[nn.Parameter], record: Callable[..., None], *kept: Tensor
    ) -> Tensor:
        """Return `output` with a backward hook that calls `record` with its gradient and the tensors `kept`.

        Args:
            output: made from `Parameter.detach()` of `parameters`, so that autograd makes no gradient of them.
            parameters: they get a gradient of None from autograd: DDP must see that the backward pass reached them.
            kept: detached tensors that autograd saves for `record`. Gradient checkpointing frees them until the
                backward pass; tensors in the closure of `record` would stay in memory.
        """
        hooked: Tensor = _BackwardHook.apply(output, record, len(kept), *kept, *parameters)
        return hooked

    def record(self, parameters: Sequence[nn.Parameter], squares_m: Tensor, write: Write) -> None:
        """Record the gradients of `parameters`, which belong to one layer.

        Args:
            squares_m: squared L2 norm of each micro-batch's gradient, (M,), all `parameters` together.
            write: writes their weighted sum.

        Raises:
            RuntimeError: for a parameter that is recorded twice, whose norm would lack the cross terms, or that was
                put in the place of another one since the recorder was made.
        """
        for parameter in parameters:
            if id(parameter) not in self._layer:
                raise RuntimeError(
                    f"a parameter of shape {tuple(parameter.shape)} is none that record_per_example saw: it was "
                    "replaced, as sharding (FSDP) does; allowed: whole parameters, the same in every step"
                )
            if id(parameter) in self._recorded:
                raise RuntimeError(
                    f"{self._names[id(parameter)]} was used twice in a forward pass: the norm of its gradient would be "
                    "wrong; allowed: once, or a rule that records both uses together (edp.register_layer)"
                )
            self._recorded.add(id(parameter))
        self._squares[self._layer[id(parameters[0])]].append(squares_m)
        self._writes.append(write)

    def record_gradient(self, parameter: nn.Parameter, gradient_m: Tensor, order_m: Tensor | None = None) -> None:
        """Record the gradient of each micro-batch in full: for small parameters, and for few micro-batches.

        Args:
            gradient_m: (M, *shape).
            order_m: the micro-batches of the gradients, where others have none; None: all, in their order.
        """
        flat = gradient_m.reshape(len(gradient_m), -1)
        squares_m = torch.linalg.vecdot(flat, flat)
        if order_m is not None:
            squares_m = squares_m.new_zeros(self.micro_batches).index_copy_(0, order_m, squares_m)

        def write(factor_m: Tensor, sums: Sums, add: bool) -> None:
            chosen = factor_m if order_m is None else factor_m[order_m]
            _put(sums[id(parameter)], (chosen @ self.finite(flat)).view(parameter.shape), add)

        self.record([parameter], squares_m, write)

    def record_linear(
        self,
        rows: Rows,
        inputs: Sequence[tuple[Tensor, nn.Parameter]],
        biases: Sequence[nn.Parameter],
        g_no: Tensor,
        gram: Callable[[], Tensor] | None = None,
    ) -> None:
        """Record weights (O, I) whose products with their inputs are added up, and biases (O,) added to them.

        One example's gradient of a weight is `Σ_t g_t x_tᵀ`. Its squared norm is `Σ_{t,t'} ⟨x_t, x_t'⟩⟨g_t, g_t'⟩`,
        where t runs over all rows of the micro-batch: the ghost norm of Goodfellow (2015) and Li et al. (2021).
        Gradients that are no larger than these rows are made in full, which then costs less.

        Args:
            inputs: rows (N, I) and weight of each product.
            g_no: the gradient of the sum, rows likewise.
            gram: returns the Gram matrices of the inputs, added up, where another layer may have made them.
        """
        width, outputs = sum(x.shape[1] for x, _ in inputs), g_no.shape[1]
        if rows.micro_batches == 1 or rows.holds_gradients(width, outputs):
            for x_ni, weight in inputs:
                self.record_gradient(weight, rows.products(x_ni, g_no), rows.order_m)
            for bias in biases:
                self.record_gradient(bias, rows.sums(g_no))
            return
        pairs = gram() if gram is not None else torch.stack([rows.gram(x_ni) for x_ni, _ in inputs]).sum(0)
        squares_m = rows.sum_of_pairs((pairs + len(biases)).mul_(rows.gram(g_no)))

        def write(factor_m: Tensor, sums: Sums, add: bool) -> None:
            factor_n1 = factor_m[rows.micro_batch_n, None]
            narrow = outputs < width  # multiply the narrower side by the factor
            slope_no = self.finite(g_no)
            scaled = slope_no * factor_n1 if narrow else slope_no
            for x_ni, weight in inputs:
                out, factors = sums[id(weight)], self.finite(x_ni)
                torch.addmm(out, scaled.t(), factors if narrow else factors * factor_n1, beta=float(add), out=out)
            for bias in biases:
                _put(sums[id(bias)], slope_no.t() @ factor_n1[:, 0], add)

        self.record([*(weight for _, weight in inputs), *biases], squares_m, write)

    def packed(self, rows: Rows, x: Tensor, like: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
        """Return the rows of an input, in the type of `like`, and a function that returns their Gram matrices.

        Layers with the same input (query, key and value, or their adapters) share both.
        """
        for known, its_rows, packed in self._packed:
            # Autograd may return another object for the same numbers. They stay where they are while `known` lives.
            same = known.data_ptr() == x.data_ptr() and known.shape == x.shape and known.stride() == x.stride()
            if same and its_rows is rows and packed.x_ni.dtype == like.dtype:
                return packed.x_ni, packed.gram
        packed = _Packed(rows, rows.take(x).to(like.dtype))
        self._packed.append((x, rows, packed))
        return packed.x_ni, packed.gram

    # For the hook, which clips.

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each micro-batch's gradient in each layer, (M, K).

        Raises:
            RuntimeError: naming a parameter without a record: it would get noise and no clipped gradient.
        """
        for parameter in self.parameters:
            if id(parameter) not in self._recorded:
                raise RuntimeError(
                    f"{self._names[id(parameter)]} left no record in this backward pass: it would get noise and no "
                    "gradient; freeze it, or use it in every forward pass, through the layer that owns it"
                )
        # Rounding may leave a sum of products a little below zero.
        return torch.stack([torch.stack(squares).sum(0).clamp_min(0) for squares in self._squares], 1)

    def write(self, factor_m: Tensor, sums: Sums, *, add: bool = False) -> None:
        """Write `Σ_m factor · gradient` into each parameter's sum, or add it there, and delete the records.

        A micro-batch of factor 0 adds nothing, also where its gradient is not finite.
        """
        # On a GPU assume that some factor is 0: reading the factors would wait for the device.
        self._some_dropped = factor_m.device.type != "cpu" or not bool((factor_m != 0).all())
        for write in self._writes:
            write(factor_m, sums, add)
        self.clear()

    def finite(self, values: Tensor) -> Tensor:
        """Return `values` with 0 for what is not finite, for a `Write`: 0 · NaN is not 0."""
        return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0) if self._some_dropped else values


class _Packed:
    def __init__(self, rows: Rows, x_ni: Tensor) -> None:
        self.x_ni, self._rows = x_ni, rows
        self._gram: Tensor | None = None

    def gram(self) -> Tensor:
        if self._gram is None:
            self._gram = self._rows.gram(self.x_ni)
        return self._gram


def _put(out: Tensor, value: Tensor, add: bool) -> None:
    if add:
        out.add_(value)
    else:
        out.copy_(value)


class _BackwardHook(torch.autograd.Function):
    """The identity; its backward pass calls `record` with the gradient and the kept tensors."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, record: Callable[..., None], kept: int, *tensors: Tensor) -> Tensor:
        ctx.record, ctx.tensors = record, len(tensors)
        ctx.save_for_backward(*tensors[:kept])
        return output.view_as(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Without autocast: products of a smaller type would be rounded after the clip, by more than it allows for.
        with torch.autocast(gradient.device.type, enabled=False):
            ctx.record(gradient, *ctx.saved_tensors)
        ctx.record = None
        return gradient, None, None, *(None,) * ctx.tensors
