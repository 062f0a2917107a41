"""The served model: utterances in; intent, slots and their scores out.

MLflow stores this file as text beside the weights and runs it to load the model ("models from code"), so nothing is
unpickled. A server needs only what this file imports: `edp` and `trainables`, which are stored with the model, and
PyTorch, but no Ray.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from trainables.models.released import Prediction, load_model

BUNDLE = "bundle"
"""The name of the artifact that is the folder of the released model."""


class UtteranceModel(PythonModel):
    """The pyfunc model."""

    def load_context(self, context: PythonModelContext) -> None:
        """Open the released model.

        With `answers: intents` in the model's configuration, answers are the names of intents alone, as
        `mlflow.models.evaluate` compares them.

        Raises:
            MlflowException: for another value.
        """
        self._model = load_model(Path(context.artifacts[BUNDLE]))
        self._answers = (context.model_config or {}).get("answers", "whole")
        if self._answers not in ("whole", "intents"):
            raise MlflowException.invalid_parameter_value(
                f"model_config.answers = {json.dumps(self._answers)}; allowed: whole, intents"
            )

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
        answers: list[Any] = self._model.predict(sent)
        return [answer.intent for answer in answers] if self._answers == "intents" else answers


set_model(UtteranceModel())
