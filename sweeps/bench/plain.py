"""What a PyTorch user would write: the two models and an SGD loop without this project's code, to see what ours costs.

The only things shared are the order of the utterances, the encoded batches' tensors and the sizes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sweeps.bench.steps import Step, batches
from trainables.data.batch import Batch, PieceInputs, WordInputs
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.data.features import ALPHABET_SIZE
from trainables.encoders.word_pieces import MAX_PIECES
from trainables.spec import BERTSpec, CLCSpec, TrialSpec


class PlainCRF(nn.Module):
    """The textbook CRF: a logsumexp a time step, and autograd."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.moves = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.start = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))

    def forward(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
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


class PlainModel(nn.Module):
    """An encoder with an intent head and a CRF."""

    def __init__(self, spec: TrialSpec, corpus: EncodedCorpus) -> None:
        super().__init__()
        model, labels = spec.model, corpus.labels
        if isinstance(model, CLCSpec):
            self.letters = nn.Embedding(ALPHABET_SIZE + 1, model.char_embedding_size, padding_idx=0)
            self.convolution = nn.Conv1d(model.char_embedding_size, model.char_filters, 3, padding=1)
            self.lstm = nn.LSTM(
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
        self.crf = PlainCRF(len(labels.tags))

    def forward(self, batch: Batch) -> Tensor:
        sentence, tokens = self.encode(batch)
        assert batch.tags_bt is not None
        assert batch.intent_b is not None
        loss = nn.functional.cross_entropy(self.intent(self.dropout(sentence)), batch.intent_b, reduction="none")
        return loss + self.crf(self.slots(self.dropout(tokens)), batch.tags_bt, batch.mask_bt)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
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
    """Hugging Face's encoder with the paper's sizes, from a random start."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary_size or 30_522,
        hidden_size=spec.hidden_size,
        num_hidden_layers=spec.random_layers,
        num_attention_heads=spec.heads,
        intermediate_size=1200 if spec.hidden_size == 312 else 4 * spec.hidden_size,
        max_position_embeddings=MAX_PIECES,
        hidden_dropout_prob=spec.dropout,
        attention_probs_dropout_prob=spec.dropout,
    )
    return BertModel(config, add_pooling_layer=False)


def plain_stepper(spec: TrialSpec, corpus: EncodedCorpus, device: torch.device) -> Step:
    """The loop's next step."""
    model = DistributedDataParallel(PlainModel(spec, corpus).to(device).train())
    optimizer = torch.optim.Adam(model.parameters(), lr=spec.training.learning_rate)
    shares = batches(spec, corpus, dist.get_rank(), dist.get_world_size())

    def step() -> None:
        optimizer.zero_grad()
        model(corpus.batch("train", next(shares)).to(device)).mean().backward()
        optimizer.step()

    return step
