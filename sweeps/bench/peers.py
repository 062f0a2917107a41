"""Opacus on the two models, as far as it goes, and why it goes no farther.

Opacus takes per-example gradients from hooks on modules that it knows. The CRF's parameters belong to none, so its slot
loss is a cross entropy a token here, which is cheaper: the ratio flatters the peer. CLC's LSTM is Opacus' own.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sweeps.bench.plain import plain_bert
from sweeps.bench.steps import CannotRun, Step, batches
from trainables.data.batch import Batch, PieceInputs, WordInputs
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.data.features import ALPHABET_SIZE
from trainables.spec import CLCSpec, TrialSpec

WITHOUT_CRF = "slot loss without the CRF: Opacus cannot hook its parameters"


class PeerModel(nn.Module):
    """The paper's sizes out of modules that Opacus hooks: every module's first axis is the example."""

    def __init__(self, spec: TrialSpec, corpus: EncodedCorpus) -> None:
        super().__init__()
        from opacus.layers import DPLSTM

        model, labels = spec.model, corpus.labels
        if isinstance(model, CLCSpec):
            self.letters = nn.Embedding(ALPHABET_SIZE + 1, model.char_embedding_size)
            self.convolution = nn.Conv1d(model.char_embedding_size, model.char_filters, 3, padding=1)
            self.lstm = DPLSTM(
                model.embedding_size + model.char_filters,
                model.hidden_size,
                num_layers=model.layers,
                bidirectional=True,
                batch_first=True,
                dropout=model.dropout,
            )
            size = 2 * model.hidden_size
        else:
            self.bert = plain_bert(model, corpus.vocabulary_size)
            size = model.hidden_size
        self.dropout = nn.Dropout(model.dropout)
        self.intent = nn.Linear(size, len(labels.intents))
        self.slots = nn.Linear(size, len(labels.tags))

    def forward(self, batch: Batch) -> Tensor:
        """Loss of each utterance, (B,)."""
        inputs = batch.inputs
        assert batch.tags_bt is not None
        assert batch.intent_b is not None
        if isinstance(inputs, PieceInputs):
            # Positions of each example: one row for all would have one gradient for all.
            steps = torch.arange(inputs.piece_bs.shape[1], device=inputs.piece_bs.device)
            position_bs = steps.expand_as(inputs.piece_bs).contiguous()
            kind_bs = torch.zeros_like(inputs.piece_bs)
            hidden = self.bert(
                input_ids=inputs.piece_bs,
                attention_mask=inputs.piece_mask_bs.long(),
                position_ids=position_bs,
                token_type_ids=kind_bs,
            ).last_hidden_state
            sentence = hidden[:, 0]
            tokens = hidden.gather(1, inputs.first_bt[:, :, None].expand(-1, -1, hidden.shape[2]))
        else:
            assert isinstance(inputs, WordInputs), "bench models read words or pieces"
            tokens = self.lstm(self.dropout(self._words(inputs)))[0]
            sentence = tokens.masked_fill(~batch.mask_bt[:, :, None], -torch.inf).amax(1)
        logits = self.slots(self.dropout(tokens)).transpose(1, 2)
        slot_bt = nn.functional.cross_entropy(logits, batch.tags_bt, reduction="none") * batch.mask_bt
        intent_b = nn.functional.cross_entropy(self.intent(self.dropout(sentence)), batch.intent_b, reduction="none")
        return intent_b + slot_bt.sum(1)

    def _words(self, inputs: WordInputs) -> Tensor:
        """(B, T, E): an utterance's words stand one after the other, a blank between them, for one convolution."""
        chars_btc = nn.functional.pad(inputs.chars_uc, (0, 1))[inputs.word_bt]
        b, t, c = chars_btc.shape
        real_b1n = (chars_btc > 0).view(b, 1, t * c)
        embedded = self.letters(chars_btc.view(b, t * c)).transpose(1, 2) * real_b1n
        found = self.convolution(embedded.contiguous()).masked_fill(~real_b1n, -torch.inf)
        chars = found.view(b, -1, t, c).amax(3).relu().transpose(1, 2)
        return torch.cat([inputs.vectors_ud[inputs.word_bt], chars], 2)


class _Given:
    """A loss that the model has computed already, as Opacus wants to be given one."""

    reduction = "mean"

    def __call__(self, loss_b: Tensor) -> Tensor:
        return loss_b


def opacus_stepper(spec: TrialSpec, corpus: EncodedCorpus, device: torch.device, *, ghost: bool) -> Step:
    """Opacus' next step.

    Raises:
        CannotRun: without Opacus, with several workers, or for ghost clipping of an LSTM.
    """
    try:
        import opacus.grad_sample as samples
        import opacus.optimizers as optimizers
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    except ImportError:
        raise CannotRun("opacus is not installed: pip install 'edp-sweeps[peers]'") from None
    if dist.get_world_size() > 1:
        raise CannotRun("measured with one worker only: its reducing does not share this process group's with ours")
    if ghost and isinstance(spec.model, CLCSpec):
        raise CannotRun("Opacus has no ghost clipping for recurrent layers")
    model = PeerModel(spec, corpus).to(device).train()
    private: Any = {"noise_multiplier": 1.0, "max_grad_norm": 0.5, "expected_batch_size": spec.training.batch_size}
    adam = torch.optim.Adam(model.parameters(), lr=spec.training.learning_rate)
    shares = batches(spec, corpus, 0, 1)
    if not ghost:
        sampled = samples.GradSampleModule(model)
        optimizer: Any = optimizers.DPOptimizer(adam, **private)

        def step() -> None:
            optimizer.zero_grad()
            sampled(corpus.batch("train", next(shares)).to(device)).mean().backward()
            optimizer.step()

        return step
    clipped = samples.GradSampleModuleFastGradientClipping(model, max_grad_norm=0.5)
    optimizer = optimizers.DPOptimizerFastGradientClipping(adam, **private)
    criterion = DPLossFastGradientClipping(clipped, optimizer, _Given())

    def ghost_step() -> None:
        optimizer.zero_grad()
        criterion(clipped(corpus.batch("train", next(shares)).to(device))).backward()
        optimizer.step()

    return ghost_step
