"""Tag sequences under the BIO rules: allowed sequences, shared scores of labels, and slot heads without transitions.

There are two such heads: a softmax of each token, and a CRF in which all sequences that BIO allows have the same
transition score.

I-x may follow B-x and I-x only, and every other tag may follow any. So forward-backward (Rabiner 1989, "A Tutorial on
Hidden Markov Models", section III) needs no product with a matrix of transitions. Any tag may come before O and B-x,
and the shares of the paths so far add up to 1. Only B-x and I-x may come before I-x. A step costs O(K), where a learnt
CRF's costs O(K²).

Tags are O, and then B-x and I-x of each type x in turn (`Labels`). Shapes: b utterances, t time, k or j tags, x types,
c scores that those of labels are combined from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, log_softmax

from trainables.corpora.labels import Labels, words_of

UNLIKELY = -30.0
"""Score of I-x where BIO forbids it, in the sums over paths. It is finite: a corpus may break the rules of BIO."""
_U = math.exp(UNLIKELY)


class _Weights(NamedTuple):
    """The exponentials of emissions minus the token's largest: of O (T, B, 1), B-x and I-x (T, B, X)."""

    o_tb1: Tensor
    b_tbx: Tensor
    i_tbx: Tensor


class _Forward(NamedTuple):
    """The weights, and the factors (T, B, X) before I-x: the share of paths that end in B-x or I-x, and a little."""

    weights: _Weights
    before_tbx: Tensor


def bio_nll(emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor) -> Tensor:
    """Return the log of the sum over all paths minus the score of the given one, (B,); once differentiable."""
    nll_b: Tensor = _NLL.apply(emissions_btk, tags_bt, mask_bt)
    return nll_b


@torch.no_grad()
def bio_marginals(emissions_btk: Tensor, mask_bt: Tensor) -> tuple[Tensor, Tensor]:
    """Return posterior tag probabilities (B, T, K), 0 beyond the utterance, and log of the sum over paths (B,)."""
    forward, log_z_b = _forward(emissions_btk, mask_bt)
    return _posterior(forward, mask_bt), log_z_b


@torch.no_grad()
def bio_viterbi(emissions_btk: Tensor, mask_bt: Tensor) -> Tensor:
    """Return the tags of the highest-scoring path that BIO allows, (B, T) int64; 0 beyond the utterance.

    Viterbi (Rabiner 1989, section III.B) in O(K) a step: I-x comes after the better of B-x and I-x, anything else after
    the best of all.
    """
    best_tbk = emissions_btk.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    best_tbk[0, :, 2::2] = -math.inf
    top_b1, first_tag_b1 = best_tbk[0].max(1, keepdim=True)
    top_tags = [first_tag_b1]
    for t in range(1, len(best_tbk)):
        before_bk, here_bk = best_tbk[t - 1], best_tbk[t]
        here_bk[:, 2::2] += torch.maximum(before_bk[:, 1::2], before_bk[:, 2::2])
        here_bk[:, :1] += top_b1
        here_bk[:, 1::2] += top_b1
        top_b1, tag_b1 = here_bk.max(1, keepdim=True)
        top_tags.append(tag_b1)
    tag_b1 = top_tags[-1]
    path = [tag_b1]
    for t in range(len(best_tbk) - 2, -1, -1):
        begun_b1 = (tag_b1 - 1).clamp(min=0)
        is_begun_b1 = best_tbk[t].gather(1, begun_b1) >= best_tbk[t].gather(1, tag_b1)
        is_inside_b1 = (tag_b1 > 0) & (tag_b1 % 2 == 0) & mask_bt[:, t + 1, None]
        tag_b1 = torch.where(is_inside_b1, torch.where(is_begun_b1, begun_b1, tag_b1), top_tags[t])
        path.append(tag_b1)
    return torch.cat(path[::-1], 1).masked_fill(~mask_bt, 0)


def _forward(emissions_btk: Tensor, mask_bt: Tensor) -> tuple[_Forward, Tensor]:
    top_bt1 = emissions_btk.amax(2, keepdim=True)
    weight_tbk = torch.exp(emissions_btk - top_bt1).transpose(0, 1)
    o_tb1, b_tbx, i_tbx = weight_tbk[:, :, :1], weight_tbk[:, :, 1::2].contiguous(), weight_tbk[:, :, 2::2].contiguous()
    before_tbx = torch.empty_like(b_tbx)
    before_tbx[0] = _U
    scales = []
    for t in range(len(b_tbx)):
        ends_bx = torch.addcmul(b_tbx[t], i_tbx[t], before_tbx[t])
        scale_b1 = ends_bx.sum(1, keepdim=True) + o_tb1[t]
        scales.append(scale_b1)
        if t + 1 < len(b_tbx):
            torch.mul(ends_bx, (1 - _U) / scale_b1, out=before_tbx[t + 1]).add_(_U)
    log_bt = (torch.cat(scales, 1).log() + top_bt1.squeeze(2)).masked_fill(~mask_bt, 0)
    return _Forward(_Weights(o_tb1, b_tbx, i_tbx), before_tbx), log_bt.sum(1)


def _posterior(forward: _Forward, mask_bt: Tensor) -> Tensor:
    """Return tag probabilities (B, T, K)."""
    (o_tb1, b_tbx, i_tbx), before_tbx = forward
    mask_tb1 = mask_bt.t()[:, :, None]
    # The weight of the paths after O is 1. After B-x and I-x it is larger, since a path may also continue inside x.
    ways_tbx = torch.ones_like(b_tbx)
    for t in range(len(b_tbx) - 1, 0, -1):
        inside_bx, begun_bx = i_tbx[t] * ways_tbx[t], b_tbx[t] * ways_tbx[t]
        scale_b1 = begun_bx.sum(1, keepdim=True) + o_tb1[t] + _U * inside_bx.sum(1, keepdim=True)
        ways_tbx[t - 1] += inside_bx.mul_((1 - _U) * mask_tb1[t] / scale_b1)
    begin_tbx = b_tbx * ways_tbx
    inside_tbx = (i_tbx * before_tbx).mul_(ways_tbx)
    total_tb1 = begin_tbx.sum(2, keepdim=True) + inside_tbx.sum(2, keepdim=True) + o_tb1
    factor_tb1 = mask_tb1 / total_tb1
    posterior_btk = o_tb1.new_empty(*mask_bt.shape, 1 + 2 * b_tbx.shape[2])
    out_tbk = posterior_btk.transpose(0, 1)
    torch.mul(o_tb1, factor_tb1, out=out_tbk[:, :, :1])
    torch.mul(begin_tbx, factor_tb1, out=out_tbk[:, :, 1::2])
    torch.mul(inside_tbx, factor_tb1, out=out_tbk[:, :, 2::2])
    return posterior_btk


def bio_path_score(emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor) -> Tensor:
    """Return the score of one path, (B,)."""
    emitted_bt = emissions_btk.gather(2, tags_bt[:, :, None]).squeeze(2)
    before_bt = torch.nn.functional.pad(tags_bt[:, :-1], (1, 0))
    inside_bt = (tags_bt > 0) & (tags_bt % 2 == 0)
    astray_bt = inside_bt & (before_bt != tags_bt) & (before_bt != tags_bt - 1)
    return (emitted_bt + UNLIKELY * astray_bt).masked_fill(~mask_bt, 0).sum(1)


class _NLL(torch.autograd.Function):
    """The negative log-likelihood. Its gradient by a score is how often paths use it, expected minus observed."""

    @staticmethod
    def forward(ctx: Any, emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor) -> Tensor:
        forward, log_z_b = _forward(emissions_btk, mask_bt)
        ctx.save_for_backward(tags_bt, mask_bt, *forward.weights, forward.before_tbx)
        return log_z_b - bio_path_score(emissions_btk, tags_bt, mask_bt)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_b: Tensor) -> tuple[Tensor | None, ...]:
        tags_bt, mask_bt, *weights, before_tbx = ctx.saved_tensors
        grad_btk = _posterior(_Forward(_Weights(*weights), before_tbx), mask_bt)
        observed_bt1 = mask_bt[:, :, None].to(grad_btk.dtype).neg_()
        grad_btk.scatter_add_(2, tags_bt[:, :, None], observed_bt1)
        return grad_btk.mul_(grad_b[:, None, None]), None, None


def allowed_jk(labels: Labels) -> Tensor:
    """Return the allowed transitions, (K, K) bool: I-x follows B-x and I-x only."""
    tags = labels.tags
    return torch.tensor([[tag[:1] != "I" or before[2:] == tag[2:] for tag in tags] for before in tags])


def allowed_first_k(labels: Labels) -> Tensor:
    """Return the tags that may begin an utterance, (K,) bool: not I-x."""
    return torch.tensor([tag[:1] != "I" for tag in labels.tags])


_PART = 0.5
"""Weight of a word's score beside a label's own. With 1 the clip leaves less of a label's; ATIS' SER is the same."""


def tag_codes(labels: Labels, *, types: bool, parts: bool) -> Tensor | None:
    """Return the matrix (C, K) that combines C scores to those of tags; None if each tag has its own score.

    Args:
        types: the score of B-x is that of B plus that of x, and the score of I-x that of I plus that of x.
        parts: tags whose names have a word in common share a score of that word.
    """
    if not types:
        return _codes(labels.tags, [{tag} for tag in labels.tags], [tag[2:] for tag in labels.tags]) if parts else None
    scores = ["O", "B", "I", *(f"type {tag[2:]}" for tag in labels.tags[1::2])]
    made_of = [{tag[:1], f"type {tag[2:]}"} for tag in labels.tags]
    return _codes(scores, made_of, [tag[2:] for tag in labels.tags] if parts else ())


def intent_codes(labels: Labels, *, parts: bool) -> Tensor | None:
    """Return the matrix (C, I) that combines C scores to those of intents, as `tag_codes` does for tags."""
    return _codes(labels.intents, [{intent} for intent in labels.intents], labels.intents) if parts else None


def _codes(scores: Sequence[str], made_of: Sequence[set[str]], names: Sequence[str]) -> Tensor:
    """Return a row for each of `scores`, then one for each word that several different `names` have in common."""
    words = [set(words_of(name)) for name in names]
    times = Counter(word for found in dict(zip(names, words, strict=True)).values() for word in found)
    shared = sorted(word for word, count in times.items() if count > 1)
    own = [[float(score in parts) for parts in made_of] for score in scores]
    return torch.tensor([*own, *([_PART * (word in found) for found in words] for word in shared)])


class Softmax(nn.Module):
    """A softmax over each token's tags, without weights; with `bio`, it never predicts sequences that BIO forbids."""

    def __init__(self, *, bio: bool = False) -> None:
        super().__init__()
        self.bio = bio

    def nll(self, emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor) -> Tensor:
        """Return the sum of the tokens' cross entropies, (B,)."""
        loss_n = cross_entropy(emissions_btk.flatten(0, 1), tags_bt.flatten(), reduction="none")
        return loss_n.view_as(tags_bt).masked_fill(~mask_bt, 0).sum(1)

    def viterbi(self, emissions_btk: Tensor, mask_bt: Tensor) -> Tensor:
        """Return the likeliest tags that are allowed together, (B, T); 0 beyond the utterance."""
        if self.bio:
            return bio_viterbi(emissions_btk, mask_bt)
        return emissions_btk.argmax(2).masked_fill(~mask_bt, 0)

    def certainty(self, emissions_btk: Tensor, tags_bt: Tensor | None, mask_bt: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return tag probabilities (B, T, K), 0 beyond the utterance, and the loss (B,); None without tags."""
        log_btk = log_softmax(emissions_btk, 2)
        loss_b = None
        if tags_bt is not None:
            loss_b = -log_btk.gather(2, tags_bt[:, :, None]).squeeze(2).masked_fill(~mask_bt, 0).sum(1)
        return log_btk.exp() * mask_bt[:, :, None], loss_b
