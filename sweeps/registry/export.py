"""Export a released model to folders that transformers or PEFT open by themselves, with the same scores.

Each part that the format holds is one folder: `encoder`; `slots`, with a class for token classification; `intents`,
with one for sequence classification. A head is exported if the other library's own head for the architecture is a
single linear layer on the same sub-word, which a trial shows. `docs/models.md` lists all cases.

Shapes: b utterances, t tokens, s sub-words, h hidden, k labels.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import safetensors.torch
import torch
from tokenizers import Tokenizer, processors
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from edp.spec import UserError
from trainables.config import BERTSpec
from trainables.corpora.types import split_blanks
from trainables.features.encoder import quiet
from trainables.features.pretrained import hub_name
from trainables.features.token_features import PieceInputs, encode_utterances
from trainables.features.word_pieces import NONE, WordPieces
from trainables.models.bert import BERT
from trainables.models.released import ReleasedModel
from trainables.models.tags import Softmax
from trainables.models.trainable import LORA_RANK, SCALE, adapt

Format = Literal["transformers", "peft"]
_TRIAL = ["play some jazz", "what is the weather in boston", "stop"]
_ROUNDING = 1e-4
"""The largest difference of scores in the trial, as a share of the largest score."""
_TASKS = {"encoder": "FEATURE_EXTRACTION", "slots": "TOKEN_CLS", "intents": "SEQ_CLS"}
"""PEFT's names of the parts."""


class _Part(NamedTuple):
    model: PreTrainedModel
    head: str | None
    """The name of the linear layer that scores labels; None for the encoder alone."""


def export_model(released: ReleasedModel, folder: Path, format: Format) -> list[str]:
    """Write the parts of a model that `format` holds to a new folder, and return a line about each part.

    Raises:
        UserError: for a model of which the format holds nothing.
    """
    if (fault := _fault(released.spec, format)) is not None:
        raise UserError(f"--format = {format}: {fault}")
    assert isinstance(released.model, BERT), "other models were refused"
    lines, card = [], released.folder / "README.md"
    text = card.read_text(encoding="utf-8").replace("library_name: edp-sweeps", f"library_name: {format}", 1)
    with quiet():
        for name, part in _parts(released, released.model):
            if isinstance(part, str):
                lines.append(f"left out {name}: {part}")
                continue
            place = folder / name
            place.mkdir(parents=True)
            if format == "peft":
                _save_adapters(part, released.spec, name, place)
            else:
                part.model.save_pretrained(place)
            _save_tokenizer(released.features, place)
            (place / "README.md").write_text(text, encoding="utf-8")
            read = "" if name != "slots" else f"; a word's tag is that of its {released.model.word} sub-word"
            lines.append(f"wrote {place} ({type(part.model).__name__}){read}")
    return lines


def _fault(spec: Any, format: Format) -> str | None:
    """Return why a format holds nothing of a model, and what does; None if it holds a part."""
    own = "allowed: the folder itself (--format folder), which trainables.load_model opens"
    if not isinstance(spec, BERTSpec):
        return f"CLC is no architecture of transformers; {own}"
    if (features := spec.features) is not None:
        return f"its heads read whitened states of layers {features.layers}, which no head of transformers does; {own}"
    if (spec.trainable == "lora") != (format == "peft"):
        other = "has adapters; allowed: --format peft" if format != "peft" else "has none; allowed: transformers"
        return f"an encoder trained with model.trainable = {spec.trainable} {other}"
    return None


def _parts(released: ReleasedModel, model: BERT) -> Iterator[tuple[str, _Part | str]]:
    """Yield each part by its name, or why it cannot be exported."""
    yield "encoder", _Part(model.encoder, None)
    if model.slot_head is not None:
        if isinstance(model.crf, Softmax) and not model.crf.bio:
            yield "slots", _with_head(released, model, "slots")
        else:
            rule = "model.head.bio" if isinstance(model.crf, Softmax) else "a CRF"
            yield "slots", f"{rule} chooses the tags of an utterance together, and the format has scores of each alone"
    if model.intent_head is not None:
        yield "intents", _with_head(released, model, "intents")


def _with_head(released: ReleasedModel, model: BERT, name: str) -> _Part | str:
    """Return a model of transformers with encoder and head, or why there is none that gives the same scores."""
    auto: Any = AutoModelForTokenClassification if name == "slots" else AutoModelForSequenceClassification
    head, codes = (model.slot_head, model.codes_ck) if name == "slots" else (model.intent_head, model.codes_ci)
    assert isinstance(head, torch.nn.Linear), "heads on states were refused"
    weight_kh, bias_k = head.weight.data, head.bias.data
    if codes is not None:
        weight_kh, bias_k = codes.t() @ weight_kh, bias_k @ codes
    config = copy.deepcopy(model.encoder.config)
    labels = released.labels.tags if name == "slots" else released.labels.intents
    config.id2label, config.label2id = dict(enumerate(labels)), {label: i for i, label in enumerate(labels)}
    if type(config) not in auto._model_mapping:
        return f"transformers has no {auto.__name__.removeprefix('Auto')} of type {config.model_type}"
    other = auto.from_config(config).eval()
    base, prefix = other.base_model, f"{other.base_model_prefix}."
    if released.spec.trainable == "lora":
        adapt(base, released.spec.lora_target, released.spec.lora_rank)
    missing = base.load_state_dict(model.encoder.state_dict(), strict=False).missing_keys
    own = {key: one for key, one in other.named_parameters() if not key.startswith(prefix)}
    if missing or {key.rpartition(".")[2] for key in own} != {"weight", "bias"} or len(own) != 2:
        named = ", ".join(sorted({key.rpartition(".")[0] for key in [*missing, *own]}))
        return f"the head of {type(other).__name__} ({named}) is not a single linear layer with a bias"
    for key, one in own.items():
        one.data = (weight_kh if key.endswith("weight") else bias_k).clone()
    if not _same_scores(released, model, other, name):
        return f"{type(other).__name__} reads another sub-word than the {model.sentence} one"
    return _Part(other, next(iter(own)).rpartition(".")[0])


@torch.inference_mode()
def _same_scores(released: ReleasedModel, model: BERT, other: Any, name: str) -> bool:
    """Return True if a trial gives the same scores."""
    batch = encode_utterances([split_blanks(one) for one in _TRIAL], released.features)
    inputs, output = batch.inputs, model.outputs(batch)
    assert isinstance(inputs, PieceInputs), "an encoder reads sub-words"
    found: Tensor = other(input_ids=inputs.piece_bs, attention_mask=inputs.piece_mask_bs.long()).logits
    expected = output.intent_logits_bi
    if name == "slots":
        place_bt = inputs.last_bt if model.word == "last" else inputs.first_bt
        found = found.gather(1, place_bt[:, :, None].expand(-1, -1, found.shape[2]))[batch.mask_bt]
        expected = output.emissions_btk[batch.mask_bt]
    return found.shape == expected.shape and bool((found - expected).abs().max() <= _ROUNDING * expected.abs().max())


def _save_adapters(part: _Part, spec: BERTSpec, name: str, folder: Path) -> None:
    """Write PEFT's two files, and the architecture with its labels, with which the base model is to be loaded."""
    state, rank = part.model.state_dict(), spec.lora_rank or LORA_RANK
    adapted = sorted(key.removesuffix(".down.weight") for key in state if key.endswith(".down.weight"))
    tensors = {
        f"base_model.model.{layer}.{theirs}.weight": state[f"{layer}.{own}.weight"].contiguous()
        for layer in adapted
        for own, theirs in (("down", "lora_A"), ("up", "lora_B"))
    }
    if part.head is not None:
        for kind in ("weight", "bias"):
            tensors[f"base_model.model.{part.head}.{kind}"] = state[f"{part.head}.{kind}"].contiguous()
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": _TASKS[name],
        "base_model_name_or_path": hub_name(spec.pretrained),
        "r": rank,
        "lora_alpha": SCALE * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": adapted,
        "modules_to_save": None if part.head is None else [part.head],
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    part.model.config.save_pretrained(folder)


def _save_tokenizer(features: Any, folder: Path) -> None:
    """Write the tokenizer, with the special tokens that the model reads around an utterance."""
    assert isinstance(features, WordPieces), "an encoder reads sub-words"
    features.save_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {"pad_token": features.pad, "unk_token": features.unknown}
    special |= {"cls_token": features.start, "sep_token": features.end}
    named = {kind: tokenizer.id_to_token(index) for kind, index in special.items() if index != NONE}
    if not any(tokenizer.encode("a").special_tokens_mask) and "cls_token" in named:  # no post-processor
        cls, sep = named["cls_token"], named["sep_token"]
        around = [(cls, features.start), (sep, features.end)]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{cls} $A {sep}", special_tokens=around)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=features.max_pieces, **named).save_pretrained(
        folder
    )
