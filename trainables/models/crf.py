"""A linear-chain CRF whose cost is one small matrix product a time step.

The sum over paths is taken in the space of exponentials, `log(exp(a - max a) @ exp(T)) + max a`, so that a
step is a (B, K) x (K, K) product instead of a (B, K, K) logsumexp; the gradient is written out (the posterior
probabilities of forward-backward), which halves the time of autograd's. Lafferty et al. 2001; Rabiner 1989.

Shapes: b utterances, t time, k or j tags. A mask is True on real tokens, which come first; every row has one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

# exp overflows float32 at 88; a weight that large times the underflowed number beside it is no longer a
# probability.
_LARGEST_EXPONENT = 80.0


class CRF(nn.Module):
    """Scores of a tag after another, first and last; pairs that BIO forbids are learnable too."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.transitions_jk = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.start_k = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.end_k = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))

    def nll(self, emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor) -> Tensor:
        """Negative log-likelihood of each utterance's tags, (B,)."""
        return crf_nll(emissions_btk, tags_bt, mask_bt, self.transitions_jk, self.start_k, self.end_k)

    def viterbi(self, emissions_btk: Tensor, mask_bt: Tensor) -> Tensor:
        """Likeliest tags, (B, T); 0 beyond the utterance."""
        return viterbi(emissions_btk, mask_bt, self.transitions_jk, self.start_k, self.end_k)

    def marginals(self, emissions_btk: Tensor, mask_bt: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior probability of each tag, (B, T, K), and the log of the sum over paths, (B,)."""
        return marginals(emissions_btk, mask_bt, self.transitions_jk, self.start_k, self.end_k)


def crf_nll(
    emissions_btk: Tensor,
    tags_bt: Tensor,
    mask_bt: Tensor,
    transitions_jk: Tensor,
    start_k: Tensor,
    end_k: Tensor,
) -> Tensor:
    """Log of the sum over all paths less the score of the given one, (B,); once differentiable."""
    log_z_b: Tensor = _LogPartition.apply(  # type: ignore[no-untyped-call]
        emissions_btk, mask_bt, transitions_jk, start_k, end_k
    )
    return log_z_b - path_score(emissions_btk, tags_bt, mask_bt, transitions_jk, start_k, end_k)


def path_score(
    emissions_btk: Tensor,
    tags_bt: Tensor,
    mask_bt: Tensor,
    transitions_jk: Tensor,
    start_k: Tensor,
    end_k: Tensor,
) -> Tensor:
    """Score of one path, (B,)."""
    emitted_bt = emissions_btk.gather(2, tags_bt[:, :, None]).squeeze(2).masked_fill(~mask_bt, 0)
    moved_bt = transitions_jk[tags_bt[:, :-1], tags_bt[:, 1:]].masked_fill(~mask_bt[:, 1:], 0)
    last_b = tags_bt.gather(1, mask_bt.sum(1, keepdim=True) - 1).squeeze(1)
    return emitted_bt.sum(1) + moved_bt.sum(1) + start_k[tags_bt[:, 0]] + end_k[last_b]


def viterbi(
    emissions_btk: Tensor, mask_bt: Tensor, transitions_jk: Tensor, start_k: Tensor, end_k: Tensor
) -> Tensor:
    """Tags of the highest-scoring path, (B, T) int64; 0 beyond the utterance."""
    steps = emissions_btk.shape[1]
    best_bk = start_k + emissions_btk[:, 0]
    from_tbk = []
    stay_k = torch.arange(emissions_btk.shape[2], device=emissions_btk.device)
    transitions_kj = transitions_jk.t().contiguous()  # max over the last, contiguous axis is the fast one
    for t in range(1, steps):
        score_bk, from_bk = (best_bk[:, None, :] + transitions_kj).max(2)
        real_b1 = mask_bt[:, t, None]
        best_bk = torch.where(real_b1, score_bk + emissions_btk[:, t], best_bk)
        from_tbk.append(torch.where(real_b1, from_bk, stay_k))
    tag_b = (best_bk + end_k).argmax(1)
    tags = [tag_b]
    for from_bk in reversed(from_tbk):
        tag_b = from_bk.gather(1, tag_b[:, None]).squeeze(1)
        tags.append(tag_b)
    return torch.stack(tags[::-1], 1).masked_fill(~mask_bt, 0)


@torch.no_grad()
def marginals(
    emissions_btk: Tensor, mask_bt: Tensor, transitions_jk: Tensor, start_k: Tensor, end_k: Tensor
) -> tuple[Tensor, Tensor]:
    """Posterior tag probabilities (B, T, K), 0 beyond the utterance, and log of the sum over paths (B,)."""
    alpha_btk, log_z_b = _forward(emissions_btk, mask_bt, transitions_jk, start_k, end_k)
    beta_btk = _backward(emissions_btk, mask_bt, transitions_jk, end_k)
    return _posterior(alpha_btk, beta_btk, log_z_b, mask_bt), log_z_b


def _log_matmul(scores_bk: Tensor, exp_kj: Tensor, shift: Tensor) -> Tensor:
    """log(exp(scores) @ exp_kj) + shift, (B, J); never log(0): what underflows stays finite and far below the
    rest.
    """
    top_b1 = scores_bk.amax(1, keepdim=True)
    sum_bj = torch.exp(scores_bk - top_b1) @ exp_kj
    return sum_bj.clamp_min(torch.finfo(sum_bj.dtype).tiny).log() + (top_b1 + shift)


def _forward(
    emissions_btk: Tensor, mask_bt: Tensor, transitions_jk: Tensor, start_k: Tensor, end_k: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-sum of the paths that end in each tag, (B, T, K), and of all of them, (B,)."""
    shift = transitions_jk.max()
    exp_jk = torch.exp(transitions_jk - shift)
    alpha_bk = start_k + emissions_btk[:, 0]
    alphas = [alpha_bk]
    for t in range(1, emissions_btk.shape[1]):
        next_bk = _log_matmul(alpha_bk, exp_jk, shift) + emissions_btk[:, t]
        alpha_bk = torch.where(mask_bt[:, t, None], next_bk, alpha_bk)
        alphas.append(alpha_bk)
    return torch.stack(alphas, 1), torch.logsumexp(alpha_bk + end_k, 1)


def _backward(emissions_btk: Tensor, mask_bt: Tensor, transitions_jk: Tensor, end_k: Tensor) -> Tensor:
    """Log-sum of the ways on from each tag, its own emission left out, (B, T, K)."""
    shift = transitions_jk.max()
    exp_kj = torch.exp(transitions_jk - shift).t()
    beta_bk = end_k.expand(emissions_btk.shape[0], -1)
    betas = [beta_bk]
    for t in range(emissions_btk.shape[1] - 1, 0, -1):
        previous_bk = _log_matmul(emissions_btk[:, t] + beta_bk, exp_kj, shift)
        beta_bk = torch.where(mask_bt[:, t, None], previous_bk, beta_bk)
        betas.append(beta_bk)
    return torch.stack(betas[::-1], 1)


def _posterior(alpha_btk: Tensor, beta_btk: Tensor, log_z_b: Tensor, mask_bt: Tensor) -> Tensor:
    log_btk = alpha_btk + beta_btk - log_z_b[:, None, None]
    return log_btk.clamp_max(0).exp().masked_fill(~mask_bt[:, :, None], 0)


class _LogPartition(torch.autograd.Function):
    """Log of the sum over paths; its gradient is the expected number of times that each score is used."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        emissions_btk: Tensor,
        mask_bt: Tensor,
        transitions_jk: Tensor,
        start_k: Tensor,
        end_k: Tensor,
    ) -> Tensor:
        alpha_btk, log_z_b = _forward(emissions_btk, mask_bt, transitions_jk, start_k, end_k)
        ctx.save_for_backward(emissions_btk, mask_bt, transitions_jk, end_k, alpha_btk, log_z_b)
        return log_z_b

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_b: Tensor) -> tuple[Tensor, None, Tensor, Tensor, Tensor]:
        emissions_btk, mask_bt, transitions_jk, end_k, alpha_btk, log_z_b = ctx.saved_tensors  # type: ignore[attr-defined]
        beta_btk = _backward(emissions_btk, mask_bt, transitions_jk, end_k)
        grad_btk = _posterior(alpha_btk, beta_btk, log_z_b, mask_bt) * grad_b[:, None, None]
        last_b11 = (mask_bt.sum(1) - 1)[:, None, None].expand(-1, 1, grad_btk.shape[2])
        grad_end_k = grad_btk.gather(1, last_b11).sum((0, 1))

        # P(tag j at t, tag k at t + 1) = exp(alpha_j + T_jk + emission_k + beta_k - log Z), as one matrix
        # product
        before_btk, after_btk = alpha_btk[:, :-1], (emissions_btk + beta_btk)[:, 1:]
        top_bt1, shift = before_btk.amax(2, keepdim=True), transitions_jk.max()
        top_after_bt1 = after_btk.amax(2, keepdim=True)
        log_weight_bt1 = top_bt1 + top_after_bt1 + shift - log_z_b[:, None, None]
        weight_bt1 = log_weight_bt1.clamp_max(_LARGEST_EXPONENT).exp() * grad_b[:, None, None]
        left_btk = torch.exp(before_btk - top_bt1) * weight_bt1.masked_fill(~mask_bt[:, 1:, None], 0)
        right_btk = torch.exp(after_btk - top_after_bt1)
        pairs_jk = left_btk.flatten(0, 1).t() @ right_btk.flatten(0, 1)
        grad_transitions_jk = pairs_jk * torch.exp(transitions_jk - shift)
        return grad_btk, None, grad_transitions_jk, grad_btk[:, 0].sum(0), grad_end_k
