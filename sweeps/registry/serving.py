"""The served model: utterances in; intent, slots and their scores out.

MLflow stores this file as text beside the weights and runs it to load the model ("models from code"), so nothing is
unpickled. A server needs only what this file imports: `edp` and `trainables`, which are stored with the model, and
PyTorch, but no Ray. A membership attacker sees the scores, so `mia_auc` was measured on exactly this interface.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from pydantic import BaseModel, TypeAdapter

from trainables.config import BERTSpec, ModelSpec
from trainables.corpora.labels import Labels
from trainables.corpora.types import split_blanks
from trainables.features.compute_states import served_states
from trainables.features.states import has_states, state_sizes
from trainables.features.token_features import encode_utterances, load_features
from trainables.measure.ser import slot_spans
from trainables.models import JointModel, build_model

BUNDLE = "bundle"
"""The name of the artifact folder.

It holds `model.pt`, `ledger.json`, `model.json` (the model's spec) and `features/`; for a BERT also `encoder.json`. For
heads on a frozen encoder, `features/encoder.json` names that encoder, and `encoder/` holds it if it was included.
"""

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


class UtteranceModel(PythonModel):
    """The pyfunc model. Blanks, tabs and ends of lines separate tokens, as in the corpora."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the bundle. Only tensors and plain data are read from the file of the weights.

        Raises:
            ValueError: for weights that are not finite.
        """
        bundle = Path(context.artifacts[BUNDLE])
        saved = torch.load(bundle / "model.pt", map_location="cpu", weights_only=True)
        self._labels = Labels.from_dict(saved["labels"])
        self._features = load_features(bundle / "features")
        spec: Any = TypeAdapter(ModelSpec).validate_json((bundle / "model.json").read_text(encoding="utf-8"))
        self._model = self._empty(spec, bundle)
        self._states = served_states(spec, bundle, self._labels) if has_states(spec) else None
        self._model.load_state_dict(saved["state_dict"])
        if not all(parameter.isfinite().all() for parameter in self._model.parameters()):
            raise ValueError("its weights are not finite")
        self._model.eval()

    def _empty(self, spec: Any, bundle: Path) -> JointModel:
        if not isinstance(spec, BERTSpec):
            return build_model(spec, self._labels, seed=0)
        if spec.features is not None:
            sizes = state_sizes(spec, bundle / "features", self._labels)
            return build_model(spec, self._labels, seed=0, state_sizes=sizes)
        from trainables.features.encoder import config_from_json
        from trainables.models.bert import BERT  # transformers takes seconds to import

        config = config_from_json((bundle / "encoder.json").read_text(encoding="utf-8"))
        return BERT(spec, self._labels, config=config)

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> list[Prediction]:
        """Return an answer to each utterance, in order; what cannot be read gets a reason in place of an answer.

        If the type were a list of texts, MLflow would make the text "None" of a null. Without a type it warns.

        Raises:
            MlflowException: for a data frame with several columns (a server answers 400).
        """
        sent: list[Any] = list(model_input)
        if isinstance(model_input, pd.DataFrame):
            if len(sent) != 1:
                raise MlflowException.invalid_parameter_value(
                    f"columns = {json.dumps(list(map(str, sent)))}: a data frame must have one column; "
                    "allowed: the utterances alone"
                )
            sent = model_input.iloc[:, 0].tolist()
        answers: dict[int, Prediction] = {}
        tokens: dict[int, list[str]] = {}
        for place, given in enumerate(sent):
            if (reason := _unreadable(given)) is None:
                tokens[place] = _words(given)
            else:
                text = given.encode(errors="replace").decode() if isinstance(given, str) else None
                answers[place] = Prediction(utterance=text, slots=[], reason=reason)
        places = list(tokens)
        for piece in _pieces([len(words) for words in tokens.values()]):
            some = [places[index] for index in piece]
            found = self._predictions([sent[place] for place in some], [tokens[place] for place in some])
            answers |= dict(zip(some, found, strict=True))
        return [answers[place] for place in range(len(sent))]

    def _predictions(self, utterances: list[str], tokens: list[list[str]]) -> list[Prediction]:
        batch = encode_utterances(tokens, self._features)
        found = self._model.predict(batch if self._states is None else self._states(batch))
        predictions = []
        for row, (utterance, words, tags) in enumerate(zip(utterances, tokens, found.tags(), strict=True)):
            sure = [float(found.slot_marginals_btk[row, place, tag]) for place, tag in enumerate(tags)]
            names = [self._labels.tags[tag] for tag in tags]
            intent = int(found.intents_b[row]) if self._labels.has_intents else None
            read = int(batch.lengths_b[row])
            predictions.append(
                Prediction(
                    utterance=utterance,
                    intent=None if intent is None else self._labels.intents[intent],
                    intent_score=None if intent is None else float(found.intent_probs_bi[row, intent]),
                    slots=[
                        Slot(name=name, value=" ".join(words[start:end]), start=start, score=min(sure[start:end]))
                        for name, start, end in slot_spans(names)
                    ],
                    reason=f"too long: its first {read} of {len(words)} words are read" if read < len(words) else None,
                )
            )
        return predictions


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


set_model(UtteranceModel())
