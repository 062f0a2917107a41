"""The CRF against a sum over all paths, written out."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainables.corpora.labels import Labels
from trainables.models.crf import CRF, FORBIDDEN, crf_nll, marginals, viterbi
from trainables.models.tags import Softmax, allowed_first_k, allowed_jk

Scores = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # emissions, mask, transitions, start, end


def scores(lengths: list[int], tags: int, seed: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Scores:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype) * scale

    steps = max(lengths)
    mask_bt = torch.arange(steps) < torch.tensor(lengths)[:, None]
    return draw(len(lengths), steps, tags), mask_bt, draw(tags, tags), draw(tags), draw(tags)


def all_paths(row: int, s: Scores) -> tuple[list[tuple[int, ...]], Tensor]:
    emissions, mask, transitions, start, end = s
    length = int(mask[row].sum())
    paths = list(itertools.product(range(len(start)), repeat=length))
    found = []
    for path in paths:
        score = start[path[0]] + end[path[-1]] + sum(emissions[row, t, k] for t, k in enumerate(path))
        found.append(score + sum(transitions[j, k] for j, k in itertools.pairwise(path)))
    return paths, torch.stack(found)


lengths_and_tags = st.tuples(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 99))


@settings(max_examples=25, deadline=None)
@given(lengths_and_tags)
def test_all_of_it_agrees_with_the_sum_over_all_paths(drawn: tuple[list[int], int, int]) -> None:
    lengths, tags, seed = drawn
    s = scores(lengths, tags, seed)
    best_bt = viterbi(*s)
    marginals_btk, log_z_b = marginals(*s)
    for row, length in enumerate(lengths):
        paths, found = all_paths(row, s)
        log_z = found.logsumexp(0)
        torch.testing.assert_close(log_z_b[row], log_z, rtol=0, atol=1e-10)
        assert tuple(best_bt[row, :length].tolist()) == paths[int(found.argmax())]
        assert not best_bt[row, length:].any()
        expected_tk = torch.zeros_like(marginals_btk[row])
        for path, probability in zip(paths, (found - log_z).exp(), strict=True):
            for t, k in enumerate(path):
                expected_tk[t, k] += probability
        torch.testing.assert_close(marginals_btk[row], expected_tk, rtol=0, atol=1e-10)
        gold_bt = torch.zeros(s[1].shape, dtype=torch.long)
        gold_bt[row, :length] = torch.tensor(paths[-1])
        torch.testing.assert_close(crf_nll(s[0], gold_bt, *s[1:])[row], log_z - found[-1], rtol=0, atol=1e-10)


def test_the_written_out_gradient_is_the_numerical_one() -> None:
    emissions, mask, *rest = scores([4, 1, 3], 3, seed=1)
    gold_bt = torch.randint(0, 3, mask.shape, generator=torch.Generator().manual_seed(2))
    inputs = [tensor.requires_grad_() for tensor in (emissions, *rest)]
    weight_b = torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64)  # every utterance's loss weighs differently

    def loss(e: Tensor, *others: Tensor) -> Tensor:
        return (crf_nll(e, gold_bt, mask, *others) * weight_b).sum()

    assert torch.autograd.gradcheck(loss, inputs)


def test_padding_has_no_say() -> None:
    short = scores([2, 2], 3, seed=3)
    emissions = torch.cat([short[0], torch.full((2, 3, 3), 1e6, dtype=torch.float64)], 1)
    mask = torch.nn.functional.pad(short[1], (0, 3))
    gold_bt = torch.tensor([[1, 2], [0, 1]])
    padded_bt = torch.nn.functional.pad(gold_bt, (0, 3), value=2)
    torch.testing.assert_close(
        crf_nll(emissions, padded_bt, mask, *short[2:]), crf_nll(short[0], gold_bt, *short[1:]), rtol=0, atol=1e-12
    )
    long_emissions = emissions.requires_grad_()
    crf_nll(long_emissions, padded_bt, mask, *short[2:]).sum().backward()
    assert long_emissions.grad is not None
    assert not long_emissions.grad[:, 2:].any()


@pytest.mark.parametrize("scale", [30.0, 300.0, 1e4])
def test_float32_stays_finite_however_extreme_the_scores(scale: float) -> None:
    s = scores([6, 1, 4], 5, seed=4, scale=scale, dtype=torch.float32)
    leaves = [tensor.requires_grad_() for tensor in (s[0], *s[2:])]
    loss_b = crf_nll(s[0], torch.zeros(s[1].shape, dtype=torch.long), *s[1:])
    loss_b.sum().backward()
    assert loss_b.isfinite().all()
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in leaves)
    posterior_btk, _ = marginals(*s)
    torch.testing.assert_close(posterior_btk.sum(2), s[1].float(), rtol=0, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 99), st.floats(0.1, 40))
def test_what_bio_alone_allows_needs_no_table_of_transitions(
    lengths: list[int], types: int, seed: int, scale: float
) -> None:
    """Emissions, and paths that BIO forbids too, against the CRF that has a score for every move."""
    tags = 1 + 2 * types
    labels = Labels(("x",), ("O", *(f"{kind}-{name}" for name in range(types) for kind in "BI")))
    crf = CRF(tags, (allowed_jk(labels), allowed_first_k(labels)), learnt=False).double()
    emissions, mask, *_ = scores(lengths, tags, seed, scale)
    gold_bt = torch.randint(tags, mask.shape, generator=torch.Generator().manual_seed(seed)).masked_fill(~mask, 0)
    weight_b = torch.rand(len(lengths), dtype=torch.float64)
    found, expected = emissions.clone().requires_grad_(), emissions.clone().requires_grad_()
    nll_b, table_b = crf.nll(found, gold_bt, mask), crf_nll(expected, gold_bt, mask, *crf.scores())
    torch.testing.assert_close(nll_b, table_b, rtol=1e-9, atol=1e-9)
    (nll_b * weight_b).sum().backward()
    (table_b * weight_b).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad, rtol=0, atol=1e-9)
    posterior_btk, loss_b = crf.certainty(emissions, gold_bt, mask)
    torch.testing.assert_close(posterior_btk, marginals(emissions, mask, *crf.scores())[0], rtol=0, atol=1e-9)
    assert loss_b is not None
    torch.testing.assert_close(loss_b, nll_b.detach(), rtol=1e-9, atol=1e-9)
    best_bt = viterbi(emissions, mask, *crf.scores(FORBIDDEN))
    assert torch.equal(crf.viterbi(emissions, mask), best_bt)
    assert torch.equal(Softmax(bio=True).viterbi(emissions, mask), best_bt)


def test_confident_emissions_that_bio_forbids_give_finite_losses_in_float32() -> None:
    labels = Labels(("x",), ("O", "B-a", "I-a", "B-b", "I-b"))
    crf = CRF(5, (allowed_jk(labels), allowed_first_k(labels)), learnt=False)
    emissions = torch.full((1, 4, 5), -500.0)
    emissions[0, :, 2], emissions[0, 2, 4] = 500, 1000
    emissions.requires_grad_()
    nll_b = crf.nll(emissions, torch.tensor([[0, 1, 2, 0]]), torch.ones(1, 4, dtype=torch.bool))
    nll_b.sum().backward()
    assert torch.isfinite(nll_b).all()
    assert emissions.grad is not None
    assert torch.isfinite(emissions.grad).all()
