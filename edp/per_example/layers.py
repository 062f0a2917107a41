"""Rules for PyTorch's own layers, and one by autograd for any other.

Shapes: b examples, t rows of each, n rows of all, m micro-batches, i inputs, o outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from edp.per_example.recorder import GradientRecorder, Sums
from edp.per_example.registry import register_layer


def trainable(layer: nn.Module, name: str) -> list[nn.Parameter]:
    """Return the layer's own parameter of that name in a list, empty if it has none or it is frozen."""
    found = getattr(layer, name, None)
    return [found] if isinstance(found, nn.Parameter) and found.requires_grad else []


@register_layer(nn.Linear)
def linear(recorder: GradientRecorder, layer: nn.Linear, x: Tensor) -> Tensor:
    """Record a linear layer with an input (B, …, I). LoRA's adapters are such layers, too."""
    weights, biases = trainable(layer, "weight"), trainable(layer, "bias")
    rows = recorder.rows(x, layer)

    def record(g: Tensor, kept: Tensor) -> None:
        if weights and recorder.one_each and rows.holds_gradients(layer.in_features, layer.out_features):
            # Multiply padding too: for a narrow layer that costs less than gathering the rows.
            g_bto, x_bti = (y.reshape(len(y), -1, y.shape[-1]).to(layer.weight.dtype) for y in (g, kept))
            recorder.record_gradient(weights[0], torch.bmm(g_bto.transpose(1, 2), x_bti))
            if biases:
                recorder.record_gradient(biases[0], g_bto.sum(1))
            return
        g_no = rows.take(g).to(layer.weight.dtype)
        if weights:
            x_ni, gram = recorder.packed(rows, kept, layer.weight)
            recorder.record_linear(rows, [(x_ni, weights[0])], biases, g_no, gram)
        else:
            recorder.record_gradient(biases[0], rows.sums(g_no))

    output = F.linear(x, layer.weight.detach(), None if layer.bias is None else layer.bias.detach())
    return recorder.hook(output, [*weights, *biases], record, x.detach())


@register_layer(nn.LayerNorm)
def layer_norm(recorder: GradientRecorder, layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Record a layer norm with an input (B, …, d): its gradients in full, two vectors a micro-batch."""
    weights, biases = trainable(layer, "weight"), trainable(layer, "bias")
    recorder.rows(x, layer)  # checks the first axis
    axes = len(layer.normalized_shape)
    weight = None if layer.weight is None else layer.weight.detach()
    bias = None if layer.bias is None else layer.bias.detach()
    output, mean, rstd = torch.ops.aten.native_layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)

    def record(g: Tensor, kept: Tensor, mean: Tensor, rstd: Tensor) -> None:
        between = tuple(range(1, g.dim() - axes))

        def summed(values: Tensor) -> Tensor:
            return recorder.by_micro_batch(values.sum(between) if between else values)

        if weights:
            recorder.record_gradient(weights[0], summed((kept - mean).mul_(rstd).mul_(g)).to(weights[0].dtype))
        if biases:
            recorder.record_gradient(biases[0], summed(g).to(biases[0].dtype))

    return recorder.hook(output, [*weights, *biases], record, x.detach(), mean.detach(), rstd.detach())


@register_layer(nn.Embedding)
def embedding(recorder: GradientRecorder, layer: nn.Embedding, index: Tensor) -> Tensor:
    """Record an embedding of indices (B, …). Indices (1, …) for all examples, as of positions, are expanded."""
    if layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse:
        raise RuntimeError("an embedding with max_norm, scale_grad_by_freq or sparse gradients cannot be clipped")
    examples = len(recorder.micro_batch_of_example)
    if len(index) == 1 and index.dim() > 1:
        index = index.expand(examples, *index.shape[1:])
    weights = trainable(layer, "weight")
    weight = weights[0]
    output = F.embedding(index, weight.detach())
    # Check the output's axes: examples elsewhere than in the first one would be attributed to other micro-batches.
    rows = recorder.rows(output, layer)

    def record(g: Tensor) -> None:
        g_nd = rows.take(g).to(weight.dtype)
        index_n = index.reshape(-1).index_select(0, rows.row_n)
        if layer.padding_idx is not None:
            g_nd = g_nd * (index_n != layer.padding_idx)[:, None]
        # An index that occurs twice in a micro-batch has one gradient there: add up its rows first. Sorting and a
        # cumulative sum number the distinct ones without waiting for a GPU.
        key_n, order_n = (rows.micro_batch_n * layer.num_embeddings + index_n).sort(stable=True)
        place_n = F.pad((key_n[1:] != key_n[:-1]).cumsum(0), (1, 0))
        one_nd = torch.zeros_like(g_nd).index_add_(0, place_n, g_nd.index_select(0, order_n))
        own_n = torch.zeros_like(key_n).index_copy_(0, place_n, key_n)
        micro_batch_n, index_n = own_n // layer.num_embeddings, own_n % layer.num_embeddings
        squares_m = g_nd.new_zeros(rows.micro_batches).index_add_(0, micro_batch_n, torch.linalg.vecdot(one_nd, one_nd))

        def write(factor_m: Tensor, sums: Sums, add: bool) -> None:
            out = sums[id(weight)] if add else sums[id(weight)].zero_()
            # Add the very rows whose norms were measured: summed in another order, rows that nearly cancel would leave
            # their rounding in the sum.
            out.index_add_(0, index_n, recorder.finite(one_nd) * factor_m[micro_batch_n, None])

        recorder.record(weights, squares_m, write)

    return recorder.hook(output, weights, record)


def autograd_rule(recorder: GradientRecorder, layer: nn.Module, *inputs: Any) -> Tensor:
    """Record any layer by making its gradient for each example, (B, *shape), with autograd.

    Register it with `register_layer(Kind)(autograd_rule)`.

    The layer must be a function of its own parameters and its inputs, whose tensors have the examples as their first
    axis; it must draw nothing at random; and its output must be one tensor with the examples first.
    """
    names = [name for name, p in layer.named_parameters(recurse=False) if p.requires_grad]
    parameters = [layer.get_parameter(name) for name in names]
    detached = {name: p.detach() for name, p in zip(names, parameters, strict=True)}
    kept = tuple(x.detach() if isinstance(x, Tensor) else x for x in inputs)
    axes = tuple(0 if isinstance(x, Tensor) else None for x in inputs)
    with recorder.paused():
        output = functional_call(layer, detached, inputs)

    def of_one(g: Tensor, *example: Any) -> dict[str, Tensor]:
        batch = tuple(x[None] if isinstance(x, Tensor) else x for x in example)
        gradient: dict[str, Tensor] = vjp(lambda p: functional_call(layer, p, batch)[0], detached)[1](g)[0]
        return gradient

    def record(g: Tensor) -> None:
        with recorder.paused(), torch.enable_grad():
            gradient = vmap(of_one, in_dims=(0, *axes))(g, *kept)
        for name, parameter in zip(names, parameters, strict=True):
            recorder.record_gradient(parameter, recorder.by_micro_batch(gradient[name].detach()))

    return recorder.hook(output, parameters, record)
