"""A bidirectional LSTM over utterances without their padding, and a layer of it written out.

PyTorch's LSTM for the CPU computes a weight gradient at every time step: a thin product and an addition of the whole
matrix each. Here the weight gradient is one product over all tokens, and the gates' derivatives are taken over all
tokens at once. A time step then costs one product and a few passes over its states. Both directions take their time
steps together: the second reads every utterance from its end.

On a GPU cuDNN is faster, since a step of ours starts a dozen kernels. The recorder needs the gates' derivatives, which
cuDNN returns for one input alone: the gates' own (`cudnn_layer`).

Shapes: n tokens of all utterances (time step by time step, the longest utterance first), e inputs, h hidden. Gates
are in PyTorch's order: input, forget, cell, output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from edp.per_example import GradientRecorder, register_layer

Record = Callable[[Tensor, Tensor, Tensor, Tensor], None]
"""Called with input (N, E), the same read backwards, states (N, 2, H) and gates' derivatives (N, 2, 4·H)."""


@dataclass(frozen=True)
class Packing:
    """The order of the tokens of padded utterances (B, T) when packed: step by step, the longest utterance first."""

    flat_n: Tensor  # positions in the flattened (B, T)
    reversed_n: Tensor  # position of the token that mirrors each in its utterance
    before_m: Tensor  # position of the token before each, for all but the first step's
    utterance_n: Tensor  # the utterance of each, on the CPU
    starts: list[int]  # first token of each step, and at the end n

    @classmethod
    def of(cls, lengths_b: Tensor, device: torch.device | None = None) -> Packing:
        """Return the packing of utterances with these lengths (on the CPU), all at least 1, padded to the longest."""
        length_b, order_b = lengths_b.sort(descending=True, stable=True)
        steps = int(length_b[0])
        active_tb = torch.arange(steps)[:, None] < length_b
        sizes_t = active_tb.sum(1)
        starts = [0, *accumulate(sizes_t.tolist())]
        start_t = torch.tensor(starts[:-1])
        step_n, row_n = active_tb.nonzero(as_tuple=True)
        late = slice(starts[1], None)
        return cls(
            flat_n=(order_b[row_n] * steps + step_n).to(device, non_blocking=True),
            reversed_n=(start_t[length_b[row_n] - 1 - step_n] + row_n).to(device, non_blocking=True),
            before_m=(start_t[step_n[late] - 1] + row_n[late]).to(device, non_blocking=True),
            utterance_n=order_b[row_n],
            starts=starts,
        )

    @property
    def time_steps(self) -> int:
        """T: number of time steps."""
        return len(self.starts) - 1


class PackedLSTM(nn.LSTM):
    """An `nn.LSTM`, bidirectional and with biases, of packed tokens."""

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.between = nn.ModuleList()
        """The dropout before each layer but the first; empty: that of `nn.LSTM`."""

    def packed(self, input_ne: Tensor, packing: Packing) -> Tensor:
        """Map packed tokens (N, E) to (N, 2·H)."""
        if not library_is_faster(input_ne.device):
            return bidirectional_lstm(self, input_ne, packing)
        hidden: PackedSequence = self(PackedSequence(input_ne, torch.tensor(packing.starts).diff()))[0]
        return hidden.data


def library_is_faster(device: torch.device) -> bool:
    """Return True if PyTorch's LSTM is faster there than ours, which is the case with cuDNN."""
    return device.type != "cpu"


@register_layer(PackedLSTM, method="packed")
def _record_lstm(recorder: GradientRecorder, lstm: PackedLSTM, input_ne: Tensor, packing: Packing) -> Tensor:
    """Apply the LSTM, and record its gates as one linear layer of (input, state before, 1, 1) over all time steps."""
    rows = recorder.rows_of(torch.arange(len(packing.utterance_n)), packing.utterance_n)
    if not all(p.requires_grad for p in lstm.parameters()):
        raise RuntimeError("an LSTM is trained whole or not at all")

    def recording_of(layer: int) -> Record:
        def record(input_ne: Tensor, mirrored_ne: Tensor, hidden_n2h: Tensor, slope_n24h: Tensor) -> None:
            before_n2h = torch.zeros_like(hidden_n2h)
            before_n2h[packing.starts[1] :] = hidden_n2h[packing.before_m]
            # Gather rows of both directions at once: to gather those of one would copy that direction first.
            states, slopes = (rows.take(x.flatten(1)).unflatten(1, (2, -1)) for x in (before_n2h, slope_n24h))
            for way, (suffix, x_ne) in enumerate((("", input_ne), ("_reverse", mirrored_ne))):
                weights = [lstm.get_parameter(f"{kind}_l{layer}{suffix}") for kind in ("weight_ih", "weight_hh")]
                biases = [lstm.get_parameter(f"{kind}_l{layer}{suffix}") for kind in ("bias_ih", "bias_hh")]
                kind = weights[0].dtype
                inputs = [rows.take(x_ne).to(kind), states[:, way]]
                recorder.record_linear(rows, list(zip(inputs, weights, strict=True)), biases, slopes[:, way])

        return record

    return bidirectional_lstm(lstm, input_ne, packing, recording_of)


def bidirectional_lstm(
    lstm: PackedLSTM, input_ne: Tensor, packing: Packing, recording_of: Callable[[int], Record] | None = None
) -> Tensor:
    """Apply `lstm` to packed tokens, giving (N, 2·H). Its dropout follows its mode.

    Args:
        recording_of: returns a function for each layer, which the backward pass calls instead of computing gradients of
            the weights.
    """
    hidden_n = input_ne
    for layer in range(lstm.num_layers):
        if layer > 0 and len(lstm.between):
            hidden_n = lstm.between[layer - 1](hidden_n, packing.flat_n, packing.time_steps)
        elif layer > 0:
            hidden_n = nn.functional.dropout(hidden_n, lstm.dropout, lstm.training)
        ways = (f"l{layer}", f"l{layer}_reverse")
        biases = [getattr(lstm, f"bias_ih_{way}") + getattr(lstm, f"bias_hh_{way}") for way in ways]
        weights = [getattr(lstm, f"{kind}_{way}") for way in ways for kind in ("weight_ih", "weight_hh")]
        if recording_of is not None and library_is_faster(input_ne.device):
            hidden_n = cudnn_layer(hidden_n, packing, recording_of(layer), *weights, *biases)
            continue
        if torch.is_autocast_enabled(input_ne.device.type):
            # The cast is here, so that states and the gates' derivatives stay in the weights' own type.
            low = torch.get_autocast_dtype(input_ne.device.type)
            hidden_n, weights = hidden_n.to(low), [weight.to(low) for weight in weights]
        record = recording_of(layer) if recording_of is not None else None
        hidden_n = _Layer.apply(hidden_n, packing, record, *weights, *biases)
    return hidden_n


def cudnn_layer(input_ne: Tensor, packing: Packing, record: Record, *parameters: Tensor) -> Tensor:
    """Apply one layer in both directions by PyTorch's LSTM, giving (N, 2·H), and record it in the backward pass.

    PyTorch's LSTM gets the inputs of the gates, (N, 8·H), as its input, and the identity as the weights of that input:
    so the gradient of its input is the gates' derivatives. Products with the identity are exact. States are of the type
    of the biases, also under autocast.

    Args:
        parameters: the weights of input and state of the first direction, those of the second, and both biases.
    """
    in_there, state_there, in_back, state_back, *biases = (parameter.detach() for parameter in parameters)
    given_ne, h = input_ne.detach(), state_there.shape[1]

    def both_ways(x_nk: Tensor) -> Tensor:
        there, back = x_nk.chunk(2, 1)
        return torch.stack([there, back[packing.reversed_n]], 1)

    def captured(slope_n8h: Tensor) -> None:
        record(given_ne, given_ne[packing.reversed_n], both_ways(states_nh), both_ways(slope_n8h))

    gates_n8h = torch.cat([input_ne @ in_there.t() + biases[0], input_ne @ in_back.t() + biases[1]], 1)
    gates_n8h = _CaptureGateGradients.apply(gates_n8h, captured, *parameters)
    # On the meta device no random numbers are drawn for weights that are replaced.
    empty = nn.LSTM(8 * h, h, bias=False, bidirectional=True, device="meta", dtype=gates_n8h.dtype)
    lstm = empty.requires_grad_(False).to_empty(device=gates_n8h.device)
    own_8h8h = torch.eye(8 * h, device=gates_n8h.device)
    weights = (own_8h8h[: 4 * h], state_there, own_8h8h[4 * h :], state_back)
    for name, weight in zip(lstm.state_dict(), weights, strict=True):
        lstm.get_parameter(name).copy_(weight)
    with torch.autocast(gates_n8h.device.type, enabled=False):
        hidden_nh: Tensor = lstm(PackedSequence(gates_n8h, torch.tensor(packing.starts).diff()))[0].data
    states_nh = hidden_nh.detach()
    return hidden_nh


class _CaptureGateGradients(torch.autograd.Function):
    """The identity, whose backward pass calls `captured` with the gradient, in the place of the parameters' gradients.

    The parameters are inputs, so that DDP learns that they have been passed.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, captured: Callable[[Tensor], None], *parameters: Tensor) -> Tensor:
        ctx.captured, ctx.parameters = captured, len(parameters)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad.device.type, enabled=False):
            ctx.captured(grad)
        ctx.captured = None
        return grad, None, *(None,) * ctx.parameters


def _add_product(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Add `a @ b` to `out`, multiplied in the type of `b`."""
    if b.dtype == out.dtype:
        out.addmm_(a, b)
    else:
        out += a.to(b.dtype) @ b


class _Layer(torch.autograd.Function):
    """One layer in both directions, there and back, which are the second axis of tensors over tokens.

    Input and weights may be of a smaller type than the biases. States are of the type of the biases.
    """

    @staticmethod
    def forward(ctx: Any, input_ne: Tensor, packing: Packing, record: Record | None, *parameters: Tensor) -> Tensor:
        in_there, state_there, in_back, state_back, bias_there, bias_back = parameters
        n, h = len(input_ne), state_there.shape[1]
        gates_n24h = bias_there.new_empty(n, 2, 4 * h)
        mirrored_ne = input_ne[packing.reversed_n]
        gates_n24h[:, 0], gates_n24h[:, 1] = bias_there, bias_back
        _add_product(gates_n24h[:, 0], input_ne, in_there.t())
        _add_product(gates_n24h[:, 1], mirrored_ne, in_back.t())
        cell_n2h, tanh_n2h, hidden_n2h = (bias_there.new_empty(n, 2, h) for _ in range(3))
        before = None
        for start, end in pairwise(packing.starts):
            gates, cell = gates_n24h[start:end], cell_n2h[start:end]
            if before is not None:
                last = slice(before, before + end - start)
                _add_product(gates[:, 0], hidden_n2h[last, 0], state_there.t())
                _add_product(gates[:, 1], hidden_n2h[last, 1], state_back.t())
            gates[..., : 2 * h].sigmoid_()
            gates[..., 2 * h : 3 * h].tanh_()
            gates[..., 3 * h :].sigmoid_()
            i, f, g, o = gates.split(h, 2)
            torch.mul(i, g, out=cell)
            if before is not None:
                cell.addcmul_(f, cell_n2h[last])
            torch.tanh(cell, out=tanh_n2h[start:end])
            torch.mul(o, tanh_n2h[start:end], out=hidden_n2h[start:end])
            before = start
        ctx.packing, ctx.record = packing, record
        ctx.save_for_backward(input_ne, mirrored_ne, gates_n24h, cell_n2h, tanh_n2h, hidden_n2h, *parameters[:4])
        return torch.cat([hidden_n2h[:, 0], hidden_n2h[packing.reversed_n, 1]], 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_n2h: Tensor) -> tuple[Tensor | None, ...]:
        packing: Packing = ctx.packing
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        input_ne, mirrored_ne, gates_n24h, cell_n2h, tanh_n2h, hidden_n2h, *weights = saved
        in_there, state_there, in_back, state_back = weights
        h = state_there.shape[1]
        first = packing.starts[1]
        i, f, g, o = gates_n24h.split(h, 2)
        # derivative of each gate's input: by the cell for the first three, by the hidden state for the last
        slope_n24h = torch.empty_like(gates_n24h)
        torch.mul(g * i, 1 - i, out=slope_n24h[..., :h])
        torch.mul(f, 1 - f, out=slope_n24h[..., h : 2 * h])
        slope_n24h[:first, :, h : 2 * h] = 0
        slope_n24h[first:, :, h : 2 * h] *= cell_n2h[packing.before_m]
        torch.mul(i, 1 - g * g, out=slope_n24h[..., 2 * h : 3 * h])
        torch.mul(tanh_n2h * o, 1 - o, out=slope_n24h[..., 3 * h :])
        through_n2h = o * (1 - tanh_n2h * tanh_n2h)  # derivative of the hidden state by the cell
        d_hidden_n2h = torch.stack([grad_n2h[:, :h], grad_n2h[packing.reversed_n, h:]], 1)
        d_cell = torch.zeros_like(d_hidden_n2h[:first])
        starts = packing.starts
        for step in range(len(starts) - 2, -1, -1):
            start, end = starts[step], starts[step + 1]
            slope, d_hidden, d_here = slope_n24h[start:end], d_hidden_n2h[start:end], d_cell[: end - start]
            d_here.addcmul_(d_hidden, through_n2h[start:end])
            slope[..., : 3 * h].unflatten(2, (3, h)).mul_(d_here[:, :, None])
            slope[..., 3 * h :].mul_(d_hidden)
            if step > 0:
                last = starts[step - 1]
                _add_product(d_hidden_n2h[last : last + end - start, 0], slope[:, 0], state_there)
                _add_product(d_hidden_n2h[last : last + end - start, 1], slope[:, 1], state_back)
                d_here.mul_(f[start:end])
        there_n4h, back_n4h = slope_n24h.to(state_there.dtype).unbind(1)
        d_input_ne = None
        if ctx.needs_input_grad[0]:
            d_input_ne = there_n4h @ in_there
            d_input_ne += (back_n4h @ in_back)[packing.reversed_n]
        if ctx.record is not None:
            with torch.autocast(input_ne.device.type, enabled=False):
                ctx.record(input_ne, mirrored_ne, hidden_n2h, slope_n24h)
            ctx.record = None
            return d_input_ne, *(None,) * 8
        d_bias_there, d_bias_back = slope_n24h[:, 0].sum(0), slope_n24h[:, 1].sum(0)
        before_m2h = hidden_n2h.to(state_there.dtype)[packing.before_m]
        return (
            d_input_ne,
            None,
            None,
            there_n4h.t() @ input_ne,
            there_n4h[first:].t() @ before_m2h[:, 0],
            back_n4h.t() @ mirrored_ne,
            back_n4h[first:].t() @ before_m2h[:, 1],
            d_bias_there,
            d_bias_back,
        )
