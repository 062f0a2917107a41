"""The weights that heads begin with, from public data alone: labels' names, and the text of the schema.

Scores of heads are linear in their weights. So heads that begin at public weights have the scores of these weights,
and private ones from zero on top. The mechanism and its accounting do not change, and a released model has one set of
weights. `public/` in the folder of the encoded corpus keeps the weights that were learnt from text, and `names.npz`.

Scores of labels by their names are linear maps of a frozen encoder's last states, which
`examples/pretrain_encoder.py` learns beside the encoder (`Names`). A label's name is part of the schema.

Shapes: h hidden, d width of a vector of `States`, c scores of a head, k tags, i intents, x labels, e size of the learnt
space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout, normalize

from edp.spec import UserError
from trainables.config import BERTSpec
from trainables.config.keys import cache_key
from trainables.corpora.labels import Labels, words_of
from trainables.features.compute_states import encoder_of, hidden_states
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.states import CONSTANT, NAME_SCORES, Moments, has_states, moments_file, state_names
from trainables.features.token_features import Batch, StateInputs, encode_utterances
from trainables.models import JointModel, build_model
from trainables.records.files import reading, save_arrays, save_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from trainables.features.word_pieces import WordPieces

Weights = dict[str, Tensor]
"""Of the state of `trainables.models.heads.Heads`: `slot_head.weight` and `intent_head.weight`, (C, D) each."""

_STEPS, _RATE, _MOMENTUM = 200, 60.0, 0.9
"""Full-batch steps on the text. More change little: the text is small, and the loss convex."""
_DROPOUT = 0.5
"""Share of a state's numbers that a step leaves out. It lowers the SER of the schema alone on SNIPS from 31 to 28 %."""
_AT_ONCE = 512
"""Utterances of a pass."""
_SLOTS = "slots_ik"
"""What the state of heads with a slot prior has besides their weights (`JointModel.slots_ik`)."""


def public_start(spec: BERTSpec, corpus: EncodedCorpus) -> dict[str, Tensor]:
    """Return the state that the heads of `spec` begin with: their public weights, and the slots of intents.

    A corpus without text, such as the shadow corpus, has no weights of a schema, and intents tell nothing of slots.

    Args:
        corpus: the corpus as `spec` reads it (`EncodedCorpus.for_model`).
    """
    state = _new_heads(spec, corpus).state_dict() | (_public_weights(spec, corpus) or {})
    if _SLOTS in state and corpus.size("schema"):
        state[_SLOTS] = spec.slot_prior * slots_of_intents(corpus)
    return state


def _public_weights(spec: BERTSpec, corpus: EncodedCorpus) -> Weights | None:
    start = None
    if spec.name_prior:
        names = from_names(spec, corpus)
        start = {name: spec.name_prior * weight for name, weight in names.items()}
    if spec.schema_weight and corpus.size("schema"):
        learnt = _kept_from_text(spec, corpus, start)
        before = start or {name: torch.zeros_like(weight) for name, weight in learnt.items()}
        start = {name: before[name] + spec.schema_weight * (learnt[name] - before[name]) for name in learnt}
    return start


def from_names(spec: BERTSpec, corpus: EncodedCorpus) -> Weights:
    """Return heads whose scores are those of the labels' names (`NameScores`).

    Scores are linear in the raw state x, and x = z P⁻¹ + mean for a whitened state z, so they are linear in z as well.
    """
    assert spec.features is not None, "BERTSpec requires it with a prior"
    scores, model = NameScores.load(corpus.folder), _new_heads(spec, corpus)
    names, sentence = state_names(spec, corpus.labels)
    found = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}

    def in_vectors(state: str, parts: int, weight_xh: Tensor, bias_x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the map as weights of the whitened state (X, H), and of the constant (X,)."""
        moments = Moments.load(moments_file(corpus.folder / "features", state))
        whitener = moments.whitener(spec.features.whiten if spec.features else 1.0)
        back_hh = torch.linalg.inv(whitener.projection_hh.double()) * sqrt(parts)
        constant_x = weight_xh.double() @ whitener.mean_h.double() + bias_x.double()
        return weight_xh.double() @ back_hh.T, constant_x / CONSTANT

    if corpus.labels.has_slots:
        layers = encoder_of(corpus.folder / "features")["architecture"]["num_hidden_layers"]
        last = next(number for number, name in enumerate(names) if name.endswith(f"_{layers}"))
        weight_kh, constant_k = in_vectors(names[last], len(names), scores.tag_kh, scores.tag_k)
        hidden = weight_kh.shape[1]
        slots = found["slot_head.weight"]
        weight_kd = torch.zeros(len(weight_kh), slots.shape[1], dtype=torch.float64)
        weight_kd[:, last * hidden : (last + 1) * hidden] = weight_kh
        weight_kd[:, -1] = constant_k
        found["slot_head.weight"] = _of_codes(weight_kd, model.codes_ck)
    if corpus.labels.has_intents:
        weight_ih, constant_i = in_vectors(sentence, 1, scores.intent_ih, scores.intent_i)
        weight_id = torch.cat([weight_ih, constant_i[:, None]], 1)
        found["intent_head.weight"] = _of_codes(weight_id, model.codes_ci)
    return found


def _of_codes(weight_xd: Tensor, codes_cx: Tensor | None) -> Tensor:
    """Return the smallest weights (C, D) of scores that `codes_cx` combines to those of `weight_xd`."""
    if codes_cx is None:
        return weight_xd.float()
    return torch.linalg.lstsq(codes_cx.T.double(), weight_xd, driver="gelsd").solution.float()


def slots_of_intents(corpus: EncodedCorpus) -> Tensor:
    """Return what an intent adds to the score of B-x, (I, K): the log of how much likelier slot type x is in its text.

    It is log(p_ix / g_x) with the share p_ix of the intent's utterances that have x, and its mean g_x over intents. An
    utterance with the mean shares is added to each intent, so that no share is 0. Types that no text has add nothing.
    """
    rows_n = np.arange(corpus.size("schema"))
    intents, types = len(corpus.labels.intents), (len(corpus.labels.tags) - 1) // 2
    intent_n = corpus.intent_ids("schema", rows_n)
    has_nx = np.zeros((len(rows_n), types))
    for has_x, tags in zip(has_nx, corpus.tag_ids("schema", rows_n), strict=True):
        has_x[[(tag - 1) // 2 for tag in tags if tag]] = 1
    size_i1 = np.bincount(intent_n, minlength=intents)[:, None]
    count_ix = np.zeros((intents, types))
    np.add.at(count_ix, intent_n, has_nx)
    mean_x = (count_ix / np.maximum(size_i1, 1)).mean(0)
    share_ix = (count_ix + mean_x) / (size_i1 + 1)
    added_ik = np.zeros((intents, len(corpus.labels.tags)))
    added_ik[:, 1::2] = np.log(np.divide(share_ix, mean_x, out=np.ones_like(share_ix), where=mean_x > 0))
    return torch.tensor(added_ik, dtype=torch.float32)


def _kept_from_text(spec: BERTSpec, corpus: EncodedCorpus, start: Weights | None) -> Weights:
    """Return `from_text`, from the file that an earlier training kept, if there is one."""
    training = [_STEPS, _RATE, _MOMENTUM, _DROPOUT]
    key = cache_key(
        training, spec.model_copy(update={"schema_weight": 0.0, "slot_prior": 0.0, "pretrained": None}), corpus.digest
    )
    path = Path(corpus.folder, "public", f"heads-{key}.pt")
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        save_tensors(from_text(spec, corpus, start), path)
    with reading(path):
        found: Weights = torch.load(path, map_location="cpu", weights_only=True)
    return found


def from_text(spec: BERTSpec, corpus: EncodedCorpus, start: Weights | None) -> Weights:
    """Return heads that are trained on the text of the schema, without privacy.

    The loss is the mean over tokens of the slots' plus the mean over utterances of the intents'. With sums over an
    utterance's tokens, as a trial has them, the slots' scores become so sure that private steps cannot correct them:
    SNIPS at epsilon 1 has a SER of 36 instead of 15 %. A slot prior is left out: with it, private heads on top
    had a higher SER in three of four trainings (docs/log/2026-11-27-small-epsilon.md).

    Args:
        corpus: the corpus as `spec` reads it (`EncodedCorpus.for_model`).
        start: the weights to begin with; None: zero.
    """
    model = _new_heads(spec.model_copy(update={"slot_prior": 0.0}), corpus)
    if start is not None:
        model.load_state_dict(start)
    size = corpus.size("schema")
    order_n = np.argsort(corpus.lengths("schema"), kind="stable")
    batches: list[Batch] = [corpus.batch("schema", order_n[at : at + _AT_ONCE]) for at in range(0, size, _AT_ONCE)]
    tokens = sum(int(batch.lengths_b.sum()) for batch in batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=_MOMENTUM)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # of dropout
        for _ in range(_STEPS):
            optimizer.zero_grad()
            for batch in batches:
                assert batch.intent_b is not None, "batches of a corpus have labels"
                output = model.outputs(_with_dropout(batch))
                slots = model.slot_loss(output, batch).sum() / tokens
                intents = cross_entropy(output.intent_logits_bi, batch.intent_b, reduction="sum") / size
                (slots + intents).backward()
            optimizer.step()
    return {name: weight.detach() for name, weight in model.named_parameters()}


def _with_dropout(batch: Batch) -> Batch:
    """Return a batch whose states lack a random share of their numbers, the same ones in all, but not the constant."""
    inputs = batch.inputs
    assert isinstance(inputs, StateInputs), "heads read states"

    def kept(x: Tensor) -> Tensor:
        share_d = torch.ones(x.shape[1])
        share_d[:-1] = dropout(share_d[:-1], _DROPOUT)
        return x * share_d

    return replace(batch, inputs=StateInputs(kept(inputs.token_nd), kept(inputs.sentence_bd)))


def _new_heads(spec: BERTSpec, corpus: EncodedCorpus) -> JointModel:
    return build_model(spec, corpus.labels, seed=0, state_sizes=corpus.state_sizes)


def begins_public(spec: object) -> bool:
    """Return True if the heads of a model begin with something public."""
    priors = isinstance(spec, BERTSpec) and (spec.name_prior or spec.schema_weight or spec.slot_prior)
    return isinstance(spec, BERTSpec) and has_states(spec) and bool(priors)


NAMES = "names.safetensors"
"""The file in an encoder's folder with the learnt weights of the scores of names."""
TAG_KINDS = "OBI"


def readable(label: str) -> str:
    """Return a label's name as plain words: `B-fromloc.city_name` is `fromloc city name`."""
    return " ".join(words_of(re.sub(r"^[BI]-", "", label))) or "other"


def name_vectors(encoder: PreTrainedModel, pieces: WordPieces, names: Sequence[str]) -> Tensor:
    """Return vectors of labels' names, (names, h): mean states of the encoder, scaled to a norm of sqrt(hidden)."""
    distinct = list(dict.fromkeys(names))
    training = encoder.training
    encoder.eval()
    batch = encode_utterances([name.split() for name in distinct], pieces)
    vectors = hidden_states(encoder, batch, ["sentence_mean_last"])[0].cpu().clone()
    encoder.train(training)
    vectors = normalize(vectors, dim=1) * vectors.shape[1] ** 0.5
    return vectors[[distinct.index(name) for name in names]]


@dataclass(frozen=True)
class NameScores:
    """The scores `weight · state + bias` of tags, weight (K, H), and of intents, weight (I, H), by their names."""

    tag_kh: Tensor
    tag_k: Tensor
    intent_ih: Tensor
    intent_i: Tensor

    def save(self, folder: Path) -> None:
        """Write the file of an encoded corpus' folder that `load` reads."""
        (folder / NAME_SCORES).parent.mkdir(exist_ok=True)
        save_arrays(folder / NAME_SCORES, **{name: value.numpy() for name, value in vars(self).items()})

    @classmethod
    def load(cls, folder: Path) -> NameScores:
        """Read the file that `save` wrote."""
        with reading(folder / NAME_SCORES), np.load(folder / NAME_SCORES) as saved:
            return cls(*(torch.from_numpy(saved[name]) for name in ("tag_kh", "tag_k", "intent_ih", "intent_i")))


def name_scores(encoder: PreTrainedModel, pieces: WordPieces, learnt: Path, labels: Labels) -> NameScores:
    """Return the scores of a corpus' labels.

    Args:
        encoder: the frozen encoder, which also reads the names.
        learnt: the file `NAMES` of its folder.
    """
    from safetensors.torch import load_file

    with reading(learnt):
        saved = load_file(learnt)

    def bilinear(kind: str, vector_xh: Tensor) -> tuple[Tensor, Tensor]:
        name_xe = vector_xh @ saved[f"{kind}.name.weight"].T / sqrt(len(saved[f"{kind}.name.weight"]))
        return name_xe @ saved[f"{kind}.state.weight"], name_xe @ saved[f"{kind}.state.bias"]

    hidden = saved["kinds.weight"].shape[1]
    vector_kh = torch.zeros(len(labels.tags), hidden)
    if labels.has_slots:
        vector_kh[1:] = name_vectors(encoder, pieces, [readable(tag) for tag in labels.tags[1:]])
    kind_k = torch.tensor([TAG_KINDS.index(tag[0]) for tag in labels.tags])
    tag_kh, tag_k = bilinear("tag_names", vector_kh)
    intents = name_vectors(encoder, pieces, [readable(intent) for intent in labels.intents])
    return NameScores(
        tag_kh + saved["kinds.weight"][kind_k],
        tag_k + saved["kinds.bias"][kind_k],
        *bilinear("intent_names", intents if labels.has_intents else torch.zeros(1, hidden)),
    )


def learnt_names(model: BERTSpec) -> Path:
    """Return the file with the encoder's learnt scores of names.

    Raises:
        UserError: if its folder has none, or as `available_encoder`.
    """
    from trainables.features.pretrained import available_encoder

    file = available_encoder(model).folder / NAMES
    if not file.is_file():
        raise UserError(
            f"model.name_prior = {model.name_prior:g}: {model.pretrained} has learnt no scores of names; allowed: 0, "
            "or an encoder of examples/pretrain_encoder.py, with --objective supervised"
        )
    return file
