"""One backward pass gives what a loop over micro-batches gives: norms and clipped sums, layer by layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edp.book import Book, keep_book
from edp.scaling import layer_of_parameter

VOCABULARY, LENGTH, WIDTH = 11, 5, 6


class Tagger(nn.Module):
    """Words and positions, a bottleneck as LoRA has it, norms, and a head a token and one an utterance."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.tags, self.intent = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 3)

    def forward(self, word_bt: Tensor) -> Tensor:
        """Loss of each utterance, (B,)."""
        steps = torch.arange(word_bt.shape[1])[None]
        x = self.words(word_bt) + self.positions(steps)
        mixed = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), 2) @ x
        x = self.norm(mixed + self.up(self.down(x)).tanh())
        real = (word_bt > 0)[:, :, None]
        tags = self.tags(x).log_softmax(2)[:, :, 0] * real[:, :, 0]
        return -tags.sum(1) - self.intent((x * real).sum(1)).log_softmax(1)[:, 0]


def words(examples: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    word_bt = torch.randint(1, VOCABULARY, (examples, LENGTH), generator=generator)
    length_b = torch.randint(2, LENGTH + 1, (examples,), generator=generator)
    return word_bt.where(torch.arange(LENGTH) < length_b[:, None], 0)


def literal(model: nn.Module, batch: Tensor, micro_batch_b: Tensor, factor_m: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Squared norms (M, K) and the weighted sum of gradients, by one backward pass a micro-batch."""
    parameters, layer, names = layer_of_parameter(model)
    squares_mk = torch.zeros(len(factor_m), len(names), dtype=parameters[0].dtype)
    sums = [torch.zeros_like(p) for p in parameters]
    for m, factor in enumerate(factor_m):
        mine = batch[micro_batch_b == m]
        if len(mine) == 0:
            continue
        gradient = torch.autograd.grad(model(mine).sum(), parameters)
        for g, k, total in zip(gradient, layer, sums, strict=True):
            squares_mk[m, k] += g.square().sum()
            total += factor * g
    return squares_mk, sums


def noted(
    book: Book, model: nn.Module, batch: Tensor, micro_batch_b: Tensor, factor_m: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """The same from the book."""
    with book.examples(micro_batch_b, len(factor_m)):
        loss = model(batch).sum()
    loss.backward()
    squares_mk, sums = book.squares(), [torch.empty_like(p) for p in book.parameters]
    assert all(p.grad is None for p in book.parameters), "an unclipped gradient was made"
    book.write(factor_m, {id(p): x for p, x in zip(book.parameters, sums, strict=True)})
    return squares_mk, sums


def relative(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error of a tensor, over its norm."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))


MICRO_BATCHES = {
    "one example each": torch.arange(12),
    "some of several": torch.arange(12) % 5,
    "two large ones": torch.arange(12) // 6,
    "one of all": torch.zeros(12, dtype=torch.long),
    "one without any": torch.tensor([0, 0, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3]),
}


@pytest.mark.parametrize("micro_batch_b", MICRO_BATCHES.values(), ids=MICRO_BATCHES.keys())
@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_norms_and_sums_are_those_of_a_loop_over_micro_batches(
    micro_batch_b: Tensor, dtype: torch.dtype, within: float
) -> None:
    model, batch = Tagger().to(dtype), words(12)
    factor_m = torch.rand(int(micro_batch_b.max()) + 1, dtype=dtype, generator=torch.Generator().manual_seed(2))
    expected = literal(model, batch, micro_batch_b, factor_m)
    found = noted(keep_book(model), model, batch, micro_batch_b, factor_m)
    assert relative([found[0]], [expected[0]]) < within
    assert relative(found[1], expected[1]) < within
