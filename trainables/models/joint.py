"""The base of all models: the heads, the loss and the predictions of joint intent and slot filling.

A model has heads for the labels that the corpus has. A corpus without slots has the tag `O` only, and one without
intents has a single intent. The score of a single label adds nothing to a loss, and its probability is 1.

Shapes: b utterances, t tokens, i intents, k tags.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edp.per_example import GradientRecorder
from trainables.config import HeadSpec
from trainables.corpora.labels import Labels
from trainables.features.token_features import Batch
from trainables.models.crf import CRF
from trainables.models.dropout import DropoutKeys, KeyedDropout
from trainables.models.tags import Softmax, allowed_first_k, allowed_jk, intent_codes, tag_codes

_HEADS = ("head_dropout", "intent_head", "slot_head", "crf")


@dataclass(frozen=True)
class ModelOutput:
    """The scores before the softmax over intents and before the CRF."""

    intent_logits_bi: Tensor
    emissions_btk: Tensor
    mask_bt: Tensor


@dataclass(frozen=True)
class Predictions:
    """The predictions for a batch, with probabilities; `loss_b` (float64) is None if the batch has no labels."""

    intents_b: Tensor
    tags_bt: Tensor
    mask_bt: Tensor
    intent_probs_bi: Tensor
    slot_marginals_btk: Tensor
    loss_b: Tensor | None

    def tags(self) -> list[list[int]]:
        """Return each utterance's tag ids, without padding."""
        lengths = self.mask_bt.sum(1).tolist()
        return [row[:length] for row, length in zip(self.tags_bt.tolist(), lengths, strict=True)]


class JointModel(nn.Module, ABC):
    """An encoder with an intent head and a slot head, which has a CRF by default.

    A head is None if the corpus lacks its labels. `forward` returns the loss, so that DDP can wrap the model.
    """

    pretrained_source: str = "random start"
    encoder_is_frozen: bool = False
    """True if only the heads are trained. The encoder then runs without dropout and without a gradient."""
    recorder: GradientRecorder | None = None
    """Recorder of the layers' gradients by micro-batch (`edp.record_per_example`), if there is one."""

    codes_ck: Tensor | None
    """The matrix that combines scores to those of tags (`trainables.models.tags.tag_codes`); None: no combination."""
    codes_ci: Tensor | None
    """The matrix that combines scores to those of intents; None: no combination."""
    slots_ik: Tensor | None
    """What an intent adds to the scores of tags, which is public and not trained; None: nothing.

    The likelihood of tags is that given the intent. Predictions, which do not know it, add the mean over the predicted
    intents."""

    def __init__(
        self, sentence_size: int, token_size: int, labels: Labels, dropout: float, head: HeadSpec = HeadSpec()
    ) -> None:
        super().__init__()
        codes_ck = tag_codes(labels, types=head.shared_types, parts=head.shared_parts) if labels.has_slots else None
        codes_ci = intent_codes(labels, parts=head.shared_parts) if labels.has_intents else None
        self.dropout_keys = DropoutKeys()
        self.head_dropout = KeyedDropout(dropout, self.dropout_keys, 0)
        self.intent_outputs = len(labels.intents) if codes_ci is None else len(codes_ci)
        self.intent_head = nn.Linear(sentence_size, self.intent_outputs) if labels.has_intents else None
        self.slot_outputs = len(labels.tags) if codes_ck is None else len(codes_ck)
        self.slot_head: nn.Module | None = nn.Linear(token_size, self.slot_outputs) if labels.has_slots else None
        self.register_buffer("codes_ck", codes_ck, persistent=False)
        self.register_buffer("codes_ci", codes_ci, persistent=False)
        self.register_buffer("slots_ik", None)
        self.crf: CRF | Softmax
        if head.slots == "softmax" or not labels.has_slots:
            self.crf = Softmax(bio=head.bio and labels.has_slots)
        else:
            allowed = allowed_jk(labels), allowed_first_k(labels)
            learnt = head.slots == "crf"
            self.crf = CRF(len(labels.tags), allowed if head.bio or not learnt else None, learnt=learnt)

    def train(self, mode: bool = True) -> JointModel:
        """Set the mode as `nn.Module.train` does, but keep a frozen encoder in evaluation mode."""
        super().train(mode)
        if self.encoder_is_frozen:
            for name, child in self.named_children():
                child.train(mode and name in _HEADS)
        return self

    @abstractmethod
    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return a vector of each utterance, (B, sentence_size), and of each token, (B, T, token_size)."""

    def padded(self, lengths_b: Tensor) -> AbstractContextManager[None]:
        """Tell the recorder that rows beyond an utterance's length (B,) get no gradient in the block, to save time."""
        return self.recorder.padded(lengths_b) if self.recorder is not None else nullcontext()

    def outputs(self, batch: Batch) -> ModelOutput:
        """Return the scores of intents (B, I) and tags (B, T, K)."""
        self.dropout_keys.key_b = batch.key_b
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.encoder_is_frozen):
            sentence_bh, token_bth = self.encode(batch)
        # Scores have the type of the weights, also if products are taken in a smaller one.
        heads = [head for head in (self.intent_head, self.slot_head) if head is not None]
        kind = next(heads[0].parameters()).dtype
        intent_logits_bi = sentence_bh.new_zeros(len(batch), 1)
        if self.intent_head is not None:
            intent_logits_bi = self.intent_head(self.head_dropout(sentence_bh))
        if self.codes_ci is not None:
            intent_logits_bi = intent_logits_bi @ self.codes_ci.to(intent_logits_bi)
        emissions_btk = sentence_bh.new_zeros(*batch.mask_bt.shape, 1, dtype=kind)
        if self.slot_head is not None:
            emissions_btk = self.slot_scores(self.slot_head, token_bth, batch).to(kind)
        if self.codes_ck is not None:
            emissions_btk = emissions_btk @ self.codes_ck.to(kind)
        return ModelOutput(intent_logits_bi.to(kind), emissions_btk, batch.mask_bt)

    def slot_scores(self, head: nn.Module, token_bth: Tensor, batch: Batch) -> Tensor:
        """Return the slot head's scores of tokens (B, T, H): those of tags, or those that `codes_ck` combines."""
        with self.padded(batch.lengths_b):
            scores_btc: Tensor = head(self.head_dropout(token_bth))
        return scores_btc

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of each utterance, (B,): its tags' plus its intent's (Dupuy et al., section 4.2)."""
        assert batch.tags_bt is not None, "a loss needs labels"
        assert batch.intent_b is not None, "a loss needs labels"
        output = self.outputs(batch)
        return self.slot_loss(output, batch) + cross_entropy(output.intent_logits_bi, batch.intent_b, reduction="none")

    def slot_loss(self, output: ModelOutput, batch: Batch) -> Tensor:
        """Return the loss of each utterance's tags, given its intent, (B,)."""
        assert batch.tags_bt is not None, "a loss needs labels"
        # A CRF's sums over paths need the full precision.
        with torch.autocast(output.emissions_btk.device.type, enabled=False):
            slot_loss_b: Tensor = self.crf.nll(self._given_intents(output, batch), batch.tags_bt, output.mask_bt)
        return slot_loss_b

    def _given_intents(self, output: ModelOutput, batch: Batch | None = None) -> Tensor:
        """Return the scores of tags (B, T, K) given the intents of `batch`, or the predicted ones without it."""
        if self.slots_ik is None:
            return output.emissions_btk
        if batch is not None and batch.intent_b is not None:
            slots_bk = self.slots_ik[batch.intent_b]
        else:
            slots_bk = output.intent_logits_bi.softmax(1) @ self.slots_ik
        return output.emissions_btk + slots_bk[:, None].to(output.emissions_btk)

    @torch.no_grad()
    def predict(self, batch: Batch) -> Predictions:
        """Return the likeliest intents and tags, and their probabilities. Dropout follows the model's mode."""
        output = self.outputs(batch)
        intents_b, tags_bt = self.likeliest(output)
        return Predictions(intents_b, tags_bt, output.mask_bt, *self.certainty(output, batch))

    @torch.no_grad()
    def likeliest(self, output: ModelOutput) -> tuple[Tensor, Tensor]:
        """Return the likeliest intents (B,) and tags (B, T)."""
        return output.intent_logits_bi.argmax(1), self.crf.viterbi(self._given_intents(output), output.mask_bt)

    @torch.no_grad()
    def certainty(self, output: ModelOutput, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return probabilities of intents (B, I) and tags (B, T, K), and the loss (B,) in float64; None without labels.

        The loss is computed in double precision, because attacks read it: for a confident model, float32 would leave
        mostly rounding errors.
        """
        emissions_btk = self._given_intents(output).double()
        marginals_btk, loss_b = self.crf.certainty(emissions_btk, batch.tags_bt, output.mask_bt)
        if self.slots_ik is not None and loss_b is not None:
            emissions_btk = self._given_intents(output, batch).double()
            loss_b = self.crf.certainty(emissions_btk, batch.tags_bt, output.mask_bt)[1]
        if loss_b is not None and batch.intent_b is not None:
            loss_b = loss_b + cross_entropy(output.intent_logits_bi.double(), batch.intent_b, reduction="none")
        return output.intent_logits_bi.softmax(1), marginals_btk.to(output.emissions_btk.dtype), loss_b
