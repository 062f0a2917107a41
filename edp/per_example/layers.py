"""What the book knows of PyTorch's own layers, and a rule for any other.

Shapes: b examples, t rows of each, n rows of all, m micro-batches, i inputs, o outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from edp.per_example.recorder import Book, Sums
from edp.per_example.registry import teach


def trainable(layer: nn.Module, name: str) -> list[nn.Parameter]:
    """The layer's own parameter of that name, if it has one and it is trained."""
    found = getattr(layer, name, None)
    return [found] if isinstance(found, nn.Parameter) and found.requires_grad else []


@teach(nn.Linear)
def linear(book: Book, layer: nn.Linear, x: Tensor) -> Tensor:
    """Of an input (B, …, I). LoRA's adapters are such layers, too."""
    weights, biases = trainable(layer, "weight"), trainable(layer, "bias")
    kept, rows = x.detach(), book.rows(x, layer)

    def note(g: Tensor) -> None:
        if weights and book.one_each and rows.holds_gradients(layer.in_features, layer.out_features):
            # No rows are gathered: padding is multiplied too, which costs a narrow layer less.
            g_bto, x_bti = (y.reshape(len(y), -1, y.shape[-1]).to(layer.weight.dtype) for y in (g, kept))
            book.note_gradient(weights[0], torch.bmm(g_bto.transpose(1, 2), x_bti))
            if biases:
                book.note_gradient(biases[0], g_bto.sum(1))
            return
        g_no = rows.take(g).to(layer.weight.dtype)
        if weights:
            x_ni, gram = book.packed(rows, kept, layer.weight)
            book.note_linear(rows, [(x_ni, weights[0])], biases, g_no, gram)
        else:
            book.note_gradient(biases[0], rows.sums(g_no))

    output = F.linear(x, layer.weight.detach(), None if layer.bias is None else layer.bias.detach())
    return book.tap(output, [*weights, *biases], note)


@teach(nn.LayerNorm)
def layer_norm(book: Book, layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Of an input (B, …, d): instantiated, two vectors a micro-batch."""
    weights, biases = trainable(layer, "weight"), trainable(layer, "bias")
    book.rows(x, layer)  # checks the first axis
    axes = len(layer.normalized_shape)
    weight = None if layer.weight is None else layer.weight.detach()
    bias = None if layer.bias is None else layer.bias.detach()
    output, mean, rstd = torch.ops.aten.native_layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)
    kept, mean, rstd = x.detach(), mean.detach(), rstd.detach()

    def note(g: Tensor) -> None:
        between = tuple(range(1, g.dim() - axes))

        def summed(values: Tensor) -> Tensor:
            return book.by_micro_batch(values.sum(between) if between else values)

        if weights:
            book.note_gradient(weights[0], summed((kept - mean).mul_(rstd).mul_(g)).to(weights[0].dtype))
        if biases:
            book.note_gradient(biases[0], summed(g).to(biases[0].dtype))

    return book.tap(output, [*weights, *biases], note)


@teach(nn.Embedding)
def embedding(book: Book, layer: nn.Embedding, index: Tensor) -> Tensor:
    """Of indices (B, …). One row of indices for all examples, (1, …), is taken apart: positions have it."""
    if layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse:
        raise RuntimeError("an embedding with max_norm, scale_grad_by_freq or sparse gradients cannot be clipped")
    examples = len(book.micro_batch_of_example)
    if len(index) == 1 and index.dim() > 1:
        index = index.expand(examples, *index.shape[1:])
    weights = trainable(layer, "weight")
    weight = weights[0]
    output = F.embedding(index, weight.detach())
    # An output whose examples are not its first axis, or have no axis beside it, would be attributed wrongly.
    rows = book.rows(output, layer)

    def note(g: Tensor) -> None:
        g_nd = rows.take(g).to(weight.dtype)
        index_n = index.reshape(-1).index_select(0, rows.row_n)
        if layer.padding_idx is not None:
            g_nd = g_nd * (index_n != layer.padding_idx)[:, None]
        # An index that stands twice in a micro-batch has one gradient there: its rows are added up first. They are
        # counted without asking a GPU how many there are.
        key_n, order_n = (rows.micro_batch_n * layer.num_embeddings + index_n).sort(stable=True)
        place_n = F.pad((key_n[1:] != key_n[:-1]).cumsum(0), (1, 0))
        one_nd = torch.zeros_like(g_nd).index_add_(0, place_n, g_nd.index_select(0, order_n))
        own_n = torch.zeros_like(key_n).index_copy_(0, place_n, key_n)
        micro_batch_n, index_n = own_n // layer.num_embeddings, own_n % layer.num_embeddings
        squares_m = g_nd.new_zeros(rows.micro_batches).index_add_(0, micro_batch_n, torch.linalg.vecdot(one_nd, one_nd))

        def write(factor_m: Tensor, sums: Sums, add: bool) -> None:
            out = sums[id(weight)] if add else sums[id(weight)].zero_()
            # What was measured: rows that nearly cancel would leave their rounding among the others' gradients.
            out.index_add_(0, index_n, book.finite(one_nd) * factor_m[micro_batch_n, None])

        book.note(weights, squares_m, write)

    return book.tap(output, weights, note)


def instantiated(book: Book, layer: nn.Module, *inputs: Any) -> Tensor:
    """The rule of any layer: its gradient is made for each example, (B, *shape). Teach it with `teach(Kind)`.

    The layer is a function of its own parameters and its inputs, whose tensors have the examples as their first axis;
    it draws nothing at random, and its output is one tensor with the examples first.
    """
    names = [name for name, p in layer.named_parameters(recurse=False) if p.requires_grad]
    parameters = [layer.get_parameter(name) for name in names]
    detached = {name: p.detach() for name, p in zip(names, parameters, strict=True)}
    kept = tuple(x.detach() if isinstance(x, Tensor) else x for x in inputs)
    axes = tuple(0 if isinstance(x, Tensor) else None for x in inputs)
    with book.closed():
        output = functional_call(layer, detached, inputs)

    def of_one(g: Tensor, *example: Any) -> dict[str, Tensor]:
        batch = tuple(x[None] if isinstance(x, Tensor) else x for x in example)
        gradient: dict[str, Tensor] = vjp(lambda p: functional_call(layer, p, batch)[0], detached)[1](g)[0]
        return gradient

    def note(g: Tensor) -> None:
        with book.closed(), torch.enable_grad():
            gradient = vmap(of_one, in_dims=(0, *axes))(g, *kept)
        for name, parameter in zip(names, parameters, strict=True):
            book.note_gradient(parameter, book.by_micro_batch(gradient[name].detach()))

    return book.tap(output, parameters, note)
