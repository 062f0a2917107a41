"""A linear-chain CRF whose cost is one small matrix product a time step.

The sum over paths is taken in probabilities: `(a @ exp(T)) * exp(emission - max)`, scaled to a sum of 1 whose logarithm
is kept (Rabiner 1989). A step is then a (B, K) x (K, K) product, where a logsumexp would need (B, K, K). The gradient
is written out, as the posterior probabilities of forward-backward, which is twice as fast as autograd.

The factor of a transition is at least `tiny ** 0.4` of the largest one (35 nats below it in float32), so that no sum is
zero and no quotient overflows, whatever the scores.

Shapes: b utterances, t time, k or j tags. A mask is True on real tokens, which come first; every row has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from edp.per_example import GradientRecorder, register_layer
from trainables.models.tags import UNLIKELY, bio_marginals, bio_nll, bio_path_score, bio_viterbi

Record = Callable[[Tensor, Tensor, Tensor], None]

FORBIDDEN = -1e4
"""Score of a forbidden transition when paths are compared. No emission makes up for it."""


class CRF(nn.Module):
    """The scores of transitions between tags, of the first tag and of the last.

    Args:
        allowed: which tag may follow which (K, K), and which may be the first (K,), bool; None: all, so that scores of
            pairs that BIO forbids are learnt too.
        learnt: False: all scores stay 0, so they only forbid transitions and get no noise.
    """

    allowed_jk: Tensor | None
    first_k: Tensor | None

    def __init__(self, tags: int, allowed: tuple[Tensor, Tensor] | None = None, *, learnt: bool = True) -> None:
        super().__init__()
        self.learnt = learnt
        self.register_buffer("allowed_jk", allowed[0] if allowed is not None else None, persistent=False)
        self.register_buffer("first_k", allowed[1] if allowed is not None else None, persistent=False)
        self.transitions_jk = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.start_k = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.end_k = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        if not learnt:
            for score in self.parameters():
                nn.init.zeros_(score).requires_grad_(False)

    def nll(self, emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor) -> Tensor:
        """Return the negative log-likelihood of each utterance's tags, (B,)."""
        if not self.learnt:
            return bio_nll(emissions_btk, tags_bt, mask_bt)
        return crf_nll(emissions_btk, tags_bt, mask_bt, *self.scores())

    def viterbi(self, emissions_btk: Tensor, mask_bt: Tensor) -> Tensor:
        """Return the tags of the highest-scoring path, (B, T) int64; 0 beyond the utterance."""
        if not self.learnt:
            return bio_viterbi(emissions_btk, mask_bt)
        return viterbi(emissions_btk, mask_bt, *self.scores(FORBIDDEN))

    def scores(self, forbidden: float = UNLIKELY) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores of transitions (K, K), first tags (K,) and last tags (K,), plus `forbidden` if not allowed."""
        if self.allowed_jk is None or self.first_k is None:
            return self.transitions_jk, self.start_k, self.end_k
        transitions_jk = self.transitions_jk + torch.where(self.allowed_jk, 0.0, forbidden)
        return transitions_jk, self.start_k + torch.where(self.first_k, 0.0, forbidden), self.end_k

    def certainty(self, emissions_btk: Tensor, tags_bt: Tensor | None, mask_bt: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return posterior tag probabilities (B, T, K), 0 beyond the utterance, and the loss (B,); None without tags.

        Both are computed in the precision of the emissions.
        """
        if not self.learnt:
            marginals_btk, log_z_b = bio_marginals(emissions_btk, mask_bt)
            gold_b = None if tags_bt is None else bio_path_score(emissions_btk, tags_bt, mask_bt)
            return marginals_btk, None if gold_b is None else log_z_b - gold_b
        scores = [score.to(emissions_btk.dtype) for score in self.scores()]
        marginals_btk, log_z_b = marginals(emissions_btk, mask_bt, *scores)
        gold_b = None if tags_bt is None else path_score(emissions_btk, tags_bt, mask_bt, *scores)
        return marginals_btk, None if gold_b is None else log_z_b - gold_b


def crf_nll(
    emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor, *scores: Tensor, record: Record | None = None
) -> Tensor:
    """Return the log of the sum over all paths minus the score of the given one, (B,); once differentiable.

    Args:
        scores: those of `CRF.scores`.
        record: called in the backward pass with gradients of the scores by utterance, instead of returning their sums.
    """
    nll_b: Tensor = _NLL.apply(emissions_btk, tags_bt, mask_bt, record, *scores)
    return nll_b


@register_layer(CRF, method="nll")
def _record_nll(
    recorder: GradientRecorder, crf: CRF, emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor
) -> Tensor:
    """Return `CRF.nll`, and record each utterance's gradients of transitions, first and last scores."""

    def record(*gradients: Tensor) -> None:
        for parameter, gradient_b in zip(parameters, gradients, strict=True):
            if parameter.requires_grad:
                recorder.record_gradient(parameter, recorder.by_micro_batch(gradient_b))

    parameters = (crf.transitions_jk, crf.start_k, crf.end_k)
    return crf_nll(emissions_btk, tags_bt, mask_bt, *crf.scores(), record=record)


def path_score(emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor, *scores: Tensor) -> Tensor:
    """Return the score of one path, (B,)."""
    transitions_jk, start_k, end_k = scores
    emitted_bt = emissions_btk.gather(2, tags_bt[:, :, None]).squeeze(2).masked_fill(~mask_bt, 0)
    moved_bt = transitions_jk[tags_bt[:, :-1], tags_bt[:, 1:]].masked_fill(~mask_bt[:, 1:], 0)
    last_b = tags_bt.gather(1, mask_bt.sum(1, keepdim=True) - 1).squeeze(1)
    return emitted_bt.sum(1) + moved_bt.sum(1) + start_k[tags_bt[:, 0]] + end_k[last_b]


def viterbi(emissions_btk: Tensor, mask_bt: Tensor, transitions_jk: Tensor, start_k: Tensor, end_k: Tensor) -> Tensor:
    """Return the likeliest tags, (B, T); 0 beyond the utterance."""
    transitions_kj = transitions_jk.t().contiguous()  # a maximum over the last, contiguous axis is the fast one
    best_bk = start_k + emissions_btk[:, 0]
    bests = [best_bk]
    for t in range(1, mask_bt.shape[1]):
        next_bk = (best_bk[:, None, :] + transitions_kj).amax(2) + emissions_btk[:, t]
        best_bk = torch.where(mask_bt[:, t, None], next_bk, best_bk)
        bests.append(best_bk)
    tag_b = (best_bk + end_k).argmax(1)
    tags = [tag_b]
    # Predecessors are found only along the best path: an argmax at every tag costs three times the maxima.
    for t in range(mask_bt.shape[1] - 1, 0, -1):
        from_b = (bests[t - 1] + transitions_kj[tag_b]).argmax(1)
        tag_b = torch.where(mask_bt[:, t], from_b, tag_b)
        tags.append(tag_b)
    return torch.stack(tags[::-1], 1).masked_fill(~mask_bt, 0)


@torch.no_grad()
def marginals(
    emissions_btk: Tensor, mask_bt: Tensor, transitions_jk: Tensor, start_k: Tensor, end_k: Tensor
) -> tuple[Tensor, Tensor]:
    """Return posterior tag probabilities (B, T, K), 0 beyond the utterance, and log of the sum over paths (B,)."""
    forward, log_z_b = _forward(emissions_btk, mask_bt, transitions_jk, start_k, end_k)
    return _posterior(forward, _ahead(forward, mask_bt), mask_bt)[0], log_z_b


class _Forward(NamedTuple):
    """The forward pass in probabilities, each time step scaled to a sum of 1."""

    exp_jk: Tensor  # exp(transitions - their maximum), floored
    weight_btk: Tensor  # exp(emissions - their maximum over tags), start and end scores added
    alpha_btk: Tensor  # share of the paths so far that end in each tag
    scale_bt: Tensor  # divisor of each step


def _forward(
    emissions_btk: Tensor, mask_bt: Tensor, transitions_jk: Tensor, start_k: Tensor, end_k: Tensor
) -> tuple[_Forward, Tensor]:
    """Return the forward pass, and the log of the sum over paths, (B,)."""
    last_bt = mask_bt & ~nn.functional.pad(mask_bt[:, 1:], (0, 1))
    scores_btk = emissions_btk + last_bt[:, :, None] * end_k
    scores_btk[:, 0] += start_k
    top_bt1 = scores_btk.amax(2, keepdim=True)
    weight_btk = torch.exp(scores_btk - top_bt1)
    shift = transitions_jk.max()
    exp_jk = torch.exp(transitions_jk - shift)
    exp_jk = exp_jk.clamp_min(torch.finfo(exp_jk.dtype).tiny ** 0.4)

    scale_b1 = weight_btk[:, 0].sum(1, keepdim=True)
    alpha_bk = weight_btk[:, 0] / scale_b1
    alphas, scales = [alpha_bk], [scale_b1]
    for t in range(1, mask_bt.shape[1]):
        next_bk = (alpha_bk @ exp_jk) * weight_btk[:, t]
        scale_b1 = next_bk.sum(1, keepdim=True)
        alpha_bk = torch.where(mask_bt[:, t, None], next_bk / scale_b1, alpha_bk)
        alphas.append(alpha_bk)
        scales.append(scale_b1)
    scale_bt = torch.cat(scales, 1)
    log_bt = (scale_bt.log() + top_bt1.squeeze(2)).masked_fill(~mask_bt, 0)
    log_z_b = log_bt.sum(1) + shift * (mask_bt.sum(1) - 1)
    return _Forward(exp_jk, weight_btk, torch.stack(alphas, 1), scale_bt), log_z_b


def _ahead(forward: _Forward, mask_bt: Tensor) -> Tensor:
    """Return the share of the ways on from each tag, its own emission left out, scaled to a maximum of 1, (B, T, K)."""
    exp_kj = forward.exp_jk.t()
    beta_bk = torch.ones_like(forward.alpha_btk[:, 0])
    betas = [beta_bk]
    for t in range(mask_bt.shape[1] - 1, 0, -1):
        previous_bk = (forward.weight_btk[:, t] * beta_bk) @ exp_kj
        previous_bk = previous_bk / previous_bk.amax(1, keepdim=True)
        beta_bk = torch.where(mask_bt[:, t, None], previous_bk, beta_bk)
        betas.append(beta_bk)
    return torch.stack(betas[::-1], 1)


def _posterior(forward: _Forward, beta_btk: Tensor, mask_bt: Tensor) -> tuple[Tensor, Tensor]:
    """Return tag probabilities (B, T, K), and their divisors, (B, T, 1)."""
    joint_btk = forward.alpha_btk * beta_btk
    total_bt1 = joint_btk.sum(2, keepdim=True)
    return (joint_btk / total_bt1) * mask_bt[:, :, None], total_bt1


class _NLL(torch.autograd.Function):
    """The negative log-likelihood. Its gradient by a score is how often paths use it, expected minus observed.

    If there is a `record`, it gets the gradients of each utterance instead.
    """

    @staticmethod
    def forward(
        ctx: Any, emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor, record: Record | None, *scores: Tensor
    ) -> Tensor:
        forward, log_z_b = _forward(emissions_btk, mask_bt, *scores)
        ctx.record = record
        ctx.save_for_backward(tags_bt, mask_bt, *forward)
        return log_z_b - path_score(emissions_btk, tags_bt, mask_bt, *scores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_b: Tensor) -> tuple[Tensor | None, ...]:
        tags_bt, mask_bt, *saved = ctx.saved_tensors
        forward = _Forward(*saved)
        beta_btk = _ahead(forward, mask_bt)
        posterior_btk, total_bt1 = _posterior(forward, beta_btk, mask_bt)
        observed_bt1 = torch.where(mask_bt, -grad_b[:, None], 0)[:, :, None]
        grad_btk = (posterior_btk * grad_b[:, None, None]).scatter_add_(2, tags_bt[:, :, None], observed_bt1)
        last_b11 = (mask_bt.sum(1) - 1)[:, None, None].expand(-1, 1, grad_btk.shape[2])
        end_bk = grad_btk.gather(1, last_b11).squeeze(1)

        if not any(ctx.needs_input_grad[4:7]):
            return grad_btk, *(None,) * 6
        # P(j at t - 1, k at t) = alpha_j exp(T_jk) weight_k beta_k / (scale total): one matrix product over all t
        share_bt1 = mask_bt[:, 1:, None] * grad_b[:, None, None] / (forward.scale_bt[:, 1:, None] * total_bt1[:, 1:])
        from_btk = forward.alpha_btk[:, :-1] * share_bt1
        to_btk = forward.weight_btk[:, 1:] * beta_btk[:, 1:]
        pair_bt, tags = tags_bt[:, :-1] * grad_btk.shape[2] + tags_bt[:, 1:], grad_btk.shape[2]
        if ctx.record is None:
            expected_jk = (from_btk.flatten(0, 1).t() @ to_btk.flatten(0, 1)).mul_(forward.exp_jk)
            expected_jk.view(-1).index_add_(0, pair_bt.flatten(), observed_bt1[:, 1:, 0].flatten())
            return grad_btk, None, None, None, expected_jk, grad_btk[:, 0].sum(0), end_bk.sum(0)
        expected_bjk = (from_btk.transpose(1, 2) @ to_btk).mul_(forward.exp_jk)
        expected_bjk.view(-1, tags * tags).scatter_add_(1, pair_bt, observed_bt1[:, 1:, 0])
        ctx.record(expected_bjk, grad_btk[:, 0], end_bk)
        ctx.record = None
        return grad_btk, *(None,) * 6
