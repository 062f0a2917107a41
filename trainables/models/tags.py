"""What a slot head may say of a token, and the slot head that learns no transitions: a softmax of each token.

Shapes: b utterances, t tokens, k or j tags, c scores that labels' are made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from trainables.corpora.labels import Labels, words_of
from trainables.models.bio import bio_viterbi


def allowed_jk(labels: Labels) -> Tensor:
    """Which tag may follow which, (K, K) bool: I-x follows B-x and I-x only."""
    tags = labels.tags
    return torch.tensor([[tag[:1] != "I" or before[2:] == tag[2:] for tag in tags] for before in tags])


def allowed_first_k(labels: Labels) -> Tensor:
    """Which tag may begin an utterance, (K,) bool: not I-x."""
    return torch.tensor([tag[:1] != "I" for tag in labels.tags])


_PART = 0.5
"""Weight of a word's score beside a label's own: at 1 ATIS' SER is the same, and the clip leaves less of a label's."""


def tag_codes(labels: Labels, *, types: bool, parts: bool) -> Tensor | None:
    """Matrix (C, K) that makes tags' scores of C others; None where each tag has its own.

    Args:
        types: B-x is B plus x, I-x is I plus x.
        parts: tags whose names have a word in common share a score of that word.
    """
    if not types:
        return _codes(labels.tags, [{tag} for tag in labels.tags], [tag[2:] for tag in labels.tags]) if parts else None
    scores = ["O", "B", "I", *(f"type {tag[2:]}" for tag in labels.tags[1::2])]
    made_of = [{tag[:1], f"type {tag[2:]}"} for tag in labels.tags]
    return _codes(scores, made_of, [tag[2:] for tag in labels.tags] if parts else ())


def intent_codes(labels: Labels, *, parts: bool) -> Tensor | None:
    """Matrix (C, I) as `tag_codes` has it for tags."""
    return _codes(labels.intents, [{intent} for intent in labels.intents], labels.intents) if parts else None


def _codes(scores: Sequence[str], made_of: Sequence[set[str]], names: Sequence[str]) -> Tensor:
    """A row for each of `scores`, then one for each word that several of the different `names` have."""
    words = [set(words_of(name)) for name in names]
    times = Counter(word for found in dict(zip(names, words, strict=True)).values() for word in found)
    shared = sorted(word for word, count in times.items() if count > 1)
    own = [[float(score in parts) for parts in made_of] for score in scores]
    return torch.tensor([*own, *([_PART * (word in found) for found in words] for word in shared)])


class Softmax(nn.Module):
    """Each token's tag by itself; with `bio`, what BIO forbids is never answered. It has no weights."""

    def __init__(self, *, bio: bool = False) -> None:
        super().__init__()
        self.bio = bio

    def nll(self, emissions_btk: Tensor, tags_bt: Tensor, mask_bt: Tensor) -> Tensor:
        """Sum over the tokens of each one's cross entropy, (B,)."""
        loss_n = cross_entropy(emissions_btk.flatten(0, 1), tags_bt.flatten(), reduction="none")
        return loss_n.view_as(tags_bt).masked_fill(~mask_bt, 0).sum(1)

    def viterbi(self, emissions_btk: Tensor, mask_bt: Tensor) -> Tensor:
        """Likeliest tags, together allowed, (B, T); 0 beyond the utterance."""
        if self.bio:
            return bio_viterbi(emissions_btk, mask_bt)
        return emissions_btk.argmax(2).masked_fill(~mask_bt, 0)

    def certainty(self, emissions_btk: Tensor, tags_bt: Tensor | None, mask_bt: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tag probabilities (B, T, K), 0 beyond the utterance, and the loss (B,); None without tags."""
        log_btk = log_softmax(emissions_btk, 2)
        loss_b = None
        if tags_bt is not None:
            loss_b = -log_btk.gather(2, tags_bt[:, :, None]).squeeze(2).masked_fill(~mask_bt, 0).sum(1)
        return log_btk.exp() * mask_bt[:, :, None], loss_b
