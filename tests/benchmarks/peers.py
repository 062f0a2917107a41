"""The peers of the benchmarks: a plain PyTorch loop over plain PyTorch models, and Opacus.

The plain loop shares only the order of the utterances, the encoded batches' tensors and the sizes with this project.

Opacus takes per-example gradients from hooks on modules that it knows. No such module owns the CRF's parameters, so the
peer's slot loss is a cross entropy per token, which is cheaper: the ratio flatters the peer. CLC's LSTM is Opacus' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from edp.sampling import Indices, shuffled_epoch
from trainables.config import BERTSpec, CLCSpec, TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.token_features import ALPHABET_SIZE, Batch, PieceInputs, WordInputs
from trainables.features.word_pieces import MAX_PIECES

Step = Callable[[], None]
"""A function that takes a method's next training step."""
WITHOUT_CRF = "slot loss without the CRF: Opacus cannot hook its parameters"


class CannotRun(RuntimeError):
    """The error that a method cannot run a model; its text is the reason."""


def batches(spec: TrialSpec, corpus: EncodedCorpus, rank: int, world: int) -> Iterator[Indices]:
    """Yield the indices of this worker's share of each step, the same utterances that our methods take.

    Shuffled epochs follow each other without end. The last step of each, which may be short, is left out.
    """
    size, seed = corpus.size("train"), spec.training.seed
    batch_size = spec.training.batch_in(size)
    for epoch in count():
        sizes = {"batch_size": batch_size, "micro_batches": world, "workers": world}
        steps = shuffled_epoch(size, seed=seed, epoch=epoch, **sizes)
        yield from (step[rank][0] for step in islice(steps, size // batch_size))


class PlainCRF(nn.Module):
    """The textbook CRF, with a logsumexp per time step and autograd."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.moves = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.start = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))

    def forward(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the negative log-likelihood of each utterance's tags, (B,), from scores (B, T, tags)."""
        rows = torch.arange(len(tags), device=tags.device)
        total = self.start + scores[:, 0]
        path = self.start[tags[:, 0]] + scores[rows, 0, tags[:, 0]]
        for t in range(1, scores.shape[1]):
            on = mask[:, t]
            after = torch.logsumexp(total[:, :, None] + self.moves, 1) + scores[:, t]
            total = torch.where(on[:, None], after, total)
            path = path + on * (self.moves[tags[:, t - 1], tags[:, t]] + scores[rows, t, tags[:, t]])
        last = tags[rows, mask.sum(1) - 1]
        return torch.logsumexp(total + self.end, 1) - path - self.end[last]


class PaperModel(nn.Module):
    """The layers of the paper's sizes that both peers use: an encoder, an intent head and a slot head."""

    def __init__(self, spec: TrialSpec, corpus: EncodedCorpus, lstm: type[nn.Module]) -> None:
        super().__init__()
        model, labels = spec.model, corpus.labels
        if isinstance(model, CLCSpec):
            self.letters = nn.Embedding(ALPHABET_SIZE + 1, model.char_embedding_size)
            self.convolution = nn.Conv1d(model.char_embedding_size, model.char_filters, 3, padding=1)
            self.lstm = lstm(
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


class PlainModel(PaperModel):
    """The plain loop's model, with a CRF."""

    def __init__(self, spec: TrialSpec, corpus: EncodedCorpus) -> None:
        super().__init__(spec, corpus, nn.LSTM)
        if isinstance(spec.model, CLCSpec):
            self.letters.padding_idx = 0  # saves the gradient of padding; Opacus computes it
        self.crf = PlainCRF(len(corpus.labels.tags))

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of each utterance, (B,)."""
        sentence, tokens = self._encode(batch)
        assert batch.tags_bt is not None
        assert batch.intent_b is not None
        loss = nn.functional.cross_entropy(self.intent(self.dropout(sentence)), batch.intent_b, reduction="none")
        return loss + self.crf(self.slots(self.dropout(tokens)), batch.tags_bt, batch.mask_bt)

    def _encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = batch.inputs
        if isinstance(inputs, PieceInputs):
            found = self.bert(input_ids=inputs.piece_bs, attention_mask=inputs.piece_mask_bs.long()).last_hidden_state
            return found[:, 0], found.gather(1, inputs.first_bt[:, :, None].expand(-1, -1, found.shape[2]))
        assert isinstance(inputs, WordInputs)
        chars = self.convolution(self.letters(inputs.chars_uc).transpose(1, 2)).relu().amax(2)
        tokens = self.dropout(torch.cat([inputs.vectors_ud, chars], 1)[inputs.word_bt])
        packed = pack_padded_sequence(tokens, batch.lengths_b, batch_first=True, enforce_sorted=False)
        found = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]
        return found.masked_fill(~batch.mask_bt[:, :, None], -torch.inf).amax(1), found


def plain_bert(spec: BERTSpec, vocabulary_size: int | None) -> Any:
    """Return Hugging Face's encoder with the paper's sizes and random weights."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary_size or 30_522,
        hidden_size=spec.hidden_size,
        num_hidden_layers=spec.layers or 4,
        num_attention_heads=spec.heads,
        intermediate_size=1200 if spec.hidden_size == 312 else 4 * spec.hidden_size,
        max_position_embeddings=MAX_PIECES,
        hidden_dropout_prob=spec.dropout,
        attention_probs_dropout_prob=spec.dropout,
    )
    return BertModel(config, add_pooling_layer=False)


def plain_stepper(spec: TrialSpec, corpus: EncodedCorpus, device: torch.device) -> Step:
    """Return a function that takes the plain loop's next step."""
    model = DistributedDataParallel(PlainModel(spec, corpus).to(device).train())
    optimizer = torch.optim.Adam(model.parameters(), lr=spec.training.learning_rate)
    shares = batches(spec, corpus, dist.get_rank(), dist.get_world_size())

    def step() -> None:
        optimizer.zero_grad()
        model(corpus.batch("train", next(shares)).to(device)).mean().backward()
        optimizer.step()

    return step


class PeerModel(PaperModel):
    """The paper's sizes in modules that Opacus hooks: the first axis of every module is the example."""

    def __init__(self, spec: TrialSpec, corpus: EncodedCorpus) -> None:
        from opacus.layers import DPLSTM

        super().__init__(spec, corpus, DPLSTM)

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of each utterance, (B,)."""
        inputs = batch.inputs
        assert batch.tags_bt is not None
        assert batch.intent_b is not None
        if isinstance(inputs, PieceInputs):
            # Each example needs its own positions: with one row for all, all would share one gradient.
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
        """Embed the words, (B, T, E). One convolution reads all words of an utterance, with a blank between them."""
        chars_btc = nn.functional.pad(inputs.chars_uc, (0, 1))[inputs.word_bt]
        b, t, c = chars_btc.shape
        real_b1n = (chars_btc > 0).view(b, 1, t * c)
        embedded = self.letters(chars_btc.view(b, t * c)).transpose(1, 2) * real_b1n
        found = self.convolution(embedded.contiguous()).masked_fill(~real_b1n, -torch.inf)
        chars = found.view(b, -1, t, c).amax(3).relu().transpose(1, 2)
        return torch.cat([inputs.vectors_ud[inputs.word_bt], chars], 2)


class _Given:
    """The loss function that Opacus requires, for a model that has computed its loss already."""

    reduction = "mean"

    def __call__(self, loss_b: Tensor) -> Tensor:
        return loss_b


def opacus_stepper(spec: TrialSpec, corpus: EncodedCorpus, device: torch.device, *, ghost: bool) -> Step:
    """Return a function that takes Opacus' next step.

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
        raise CannotRun("measured with one worker only: its all-reduce cannot share our process group")
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
