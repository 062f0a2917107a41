"""A released model: a folder, and the code that opens it and answers utterances, without a sweep, Ray or MLflow.

`docs/models.md#formats-of-other-libraries` says what the folder holds. A membership attacker sees the scores of
`ReleasedModel.predict`, so `mia_auc` was measured on exactly this interface.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from edp.spec import UserError
from trainables.config import BERTSpec, ModelSpec
from trainables.corpora.labels import Labels, slot_spans
from trainables.corpora.types import split_blanks
from trainables.features.compute_states import served_states
from trainables.features.states import has_states, state_sizes
from trainables.features.token_features import encode_utterances, load_features
from trainables.models import JointModel, build_model
from trainables.records.files import reading

WEIGHTS, CONFIG = "model.safetensors", "config.json"
_AT_ONCE = 4096
"""The largest number of tokens, with padding, that are computed at once, unless one utterance has more."""


class Slot(BaseModel):
    """One slot of an utterance."""

    name: str
    value: str
    """The slot's tokens, joined with spaces."""
    start: int
    """The index of the first token, from 0."""
    score: float
    """The lowest probability among the tags of the slot's tokens."""


class Prediction(BaseModel):
    """The model's answer to one utterance. A task without intents has no intent, one without slots an empty list."""

    utterance: str | None = None
    """The utterance as it was sent; None if it is no text."""
    intent: str | None = None
    intent_score: float | None = None
    """The probability of the intent."""
    slots: list[Slot]
    reason: str | None = None
    """Why there is no answer, or none about the whole utterance."""

    @property
    def scores(self) -> list[float]:
        """The scores of the intent and the slots."""
        return [score for score in (self.intent_score, *(slot.score for slot in self.slots)) if score is not None]


class ReleasedModel:
    """A model in a folder. Blanks, tabs and ends of lines separate tokens, as in the corpora."""

    def __init__(self, folder: Path) -> None:
        with reading(folder / CONFIG):
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            self.folder, self.labels, settings = folder, Labels.from_dict(config["labels"]), config["model"]
        try:
            self.spec: Any = TypeAdapter(ModelSpec).validate_python(settings)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(
                map(str, [*first["loc"], *([first["ctx"]["field"]] if "field" in first.get("ctx", {}) else [])])
            )
            raise UserError(
                f"model = {str(folder)!r}: {place or 'kind'}: {first['msg'].partition(';')[0]}; "
                "allowed: a model of this version"
            ) from None
        self.model = _empty(self.spec, self.labels, folder, config.get("encoder"))
        safetensors.torch.load_model(self.model, folder / WEIGHTS)
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            raise ValueError("its weights are not finite")
        self.model.eval()
        self.features = load_features(folder / "features")
        self._states = served_states(self.spec, folder, self.labels) if has_states(self.spec) else None

    def predict(self, utterances: Sequence[Any]) -> list[Prediction]:
        """Return an answer to each utterance, in order; what cannot be read gets a reason in place of an answer."""
        answers: dict[int, Prediction] = {}
        tokens: dict[int, list[str]] = {}
        for place, given in enumerate(utterances):
            if (reason := _unreadable(given)) is None:
                tokens[place] = _words(given)
            else:
                text = given.encode(errors="replace").decode() if isinstance(given, str) else None
                answers[place] = Prediction(utterance=text, slots=[], reason=reason)
        places = list(tokens)
        for piece in _pieces([len(words) for words in tokens.values()]):
            some = [places[index] for index in piece]
            found = self._predictions([utterances[place] for place in some], [tokens[place] for place in some])
            answers |= dict(zip(some, found, strict=True))
        return [answers[place] for place in range(len(utterances))]

    def _predictions(self, utterances: list[str], tokens: list[list[str]]) -> list[Prediction]:
        batch = encode_utterances(tokens, self.features)
        found = self.model.predict(batch if self._states is None else self._states(batch))
        predictions = []
        for row, (utterance, words, tags) in enumerate(zip(utterances, tokens, found.tags(), strict=True)):
            sure = [float(found.slot_marginals_btk[row, place, tag]) for place, tag in enumerate(tags)]
            names = [self.labels.tags[tag] for tag in tags]
            intent = int(found.intents_b[row]) if self.labels.has_intents else None
            read = int(batch.lengths_b[row])
            predictions.append(
                Prediction(
                    utterance=utterance,
                    intent=None if intent is None else self.labels.intents[intent],
                    intent_score=None if intent is None else float(found.intent_probs_bi[row, intent]),
                    slots=[
                        Slot(name=name, value=" ".join(words[start:end]), start=start, score=min(sure[start:end]))
                        for name, start, end in slot_spans(names)
                    ],
                    reason=f"too long: its first {read} of {len(words)} words are read" if read < len(words) else None,
                )
            )
        return predictions


def load_model(folder: Path | str) -> ReleasedModel:
    """Open a released model: its folder, or that of the MLflow model that holds it.

    Raises:
        UserError: for a folder without a model, one of another version, or a frozen encoder that is not
            available.
    """
    given = Path(folder)
    for one in (given, given / "artifacts" / "bundle"):
        if (one / WEIGHTS).is_file() and (one / CONFIG).is_file():
            with reading(one / CONFIG):
                library = json.loads((one / CONFIG).read_text(encoding="utf-8")).get("library_name")
            if library == "edp-sweeps":
                return ReleasedModel(one)
    raise UserError(
        f"model = {str(given)!r}: no {WEIGHTS} and {CONFIG} of ours there; allowed: the folder of a released model"
    )


def write_model(folder: Path, spec: ModelSpec, weights: Path) -> None:
    """Write weights, configuration and schema of a model to `folder`, which holds its `features/` already.

    Args:
        weights: the `model.pt` that a trial wrote. Only tensors and plain data are read from it.

    Raises:
        UserError: for the weights of a trained encoder that do not name its architecture.
    """
    saved = torch.load(weights, map_location="cpu", weights_only=True)
    labels, encoder = Labels.from_dict(saved["labels"]), json.loads(saved.get("encoder", "null"))
    if isinstance(spec, BERTSpec) and spec.features is None and encoder is None:
        raise UserError(f"{weights} does not name its architecture; allowed: a model that edp-sweep train writes now")
    model = _empty(spec, labels, folder, encoder)
    model.load_state_dict(saved["state_dict"])
    safetensors.torch.save_model(model, str(folder / WEIGHTS), {"format": "pt"})
    config = {"library_name": "edp-sweeps", "model": spec.model_dump(mode="json"), "labels": labels.to_dict()}
    if encoder is not None:
        config["encoder"] = encoder
    (folder / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
    names = {"intents": labels.intents if labels.has_intents else (), "slots": [tag[2:] for tag in labels.tags[1::2]]}
    text = yaml.safe_dump({kind: list(found) for kind, found in names.items() if found}, allow_unicode=True)
    (folder / "schema.yaml").write_text(text, encoding="utf-8")


def _empty(spec: Any, labels: Labels, folder: Path, encoder: dict[str, Any] | None) -> JointModel:
    """Return a model with the architecture of a spec, for weights that are loaded later."""
    if not isinstance(spec, BERTSpec):
        return build_model(spec, labels, seed=0)
    if spec.features is not None:
        return build_model(spec, labels, seed=0, state_sizes=state_sizes(spec, folder / "features", labels))
    from trainables.features.encoder import config_from_json
    from trainables.models.bert import BERT  # transformers takes seconds to import

    assert encoder is not None, "the configuration names the architecture of a trained encoder"
    return BERT(spec, labels, config=config_from_json(json.dumps(encoder)))


def _words(utterance: str) -> list[str]:
    """Return the tokens of an utterance."""
    return split_blanks(re.sub(r"[\r\n]", " ", utterance))


def _unreadable(given: Any) -> str | None:
    """Return why the model cannot read an input; None if it can."""
    if not isinstance(given, str):
        return "no text; allowed: a string"
    if not given.isascii() and any("\ud800" <= character <= "\udfff" for character in given):
        return "half a character; allowed: Unicode text"
    return None if _words(given) else "no words; allowed: at least one"


def _pieces(lengths: list[int]) -> Iterator[list[int]]:
    """Yield the indices of utterances of similar length, so that long ones add no padding to short ones."""
    piece: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if piece and (len(piece) + 1) * lengths[place] > _AT_ONCE:
            yield piece
            piece = []
        piece.append(place)
    if piece:
        yield piece
