"""What a release says of one utterance beside its weights.

Models of two neighbouring corpora are trained with equal seeds, without noise and without an effect of the clip, and
registered. Every file and tag that a recipient gets is compared.

`docs/privacy.md` names what may differ, under *What is read without noise*.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from sweeps.config.loading import as_yaml
from sweeps.engine.prepare import ensure_states
from sweeps.registry.bundle import quiet
from sweeps.registry.register import register
from sweeps.tracking.tracker import Tracker
from tests.support.encoder_folders import make_encoder
from tests.support.registering import MODELS, frozen
from trainables.config import CorpusSpec, ModelSpec, ShadowSpec, TrialSpec
from trainables.corpora import generate, load_corpus
from trainables.corpora.labels import Labels
from trainables.corpora.types import Utterance
from trainables.features.encoded_corpus import encode
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.workers.worker import run_trial

PUBLISHED = generate("communication", 90, seed=4)
TRAIN = [one._replace(user=f"u{i // 3}") for i, one in enumerate(PUBLISHED[:48])]
ORDINARY = PUBLISHED[48]._replace(user="u0")
VALID, TEST = ([one._replace(user="u0") for one in part] for part in (PUBLISHED[49:60], PUBLISHED[60:]))
STRANGE = Utterance(
    ("Zyxwvü", *(f"unheard-of-{number}" * 4 for number in range(60)), "🎉"),
    ("O", "B-secret", *["I-secret"] * 59, "O"),
    "diagnose_illness",
    "u0",
)
"""The only utterance with its intent and its slot, the longest one, of words that no other has, of a user who then has
the most utterances."""

BY_WEIGHTS = {"weights", "tag ser", "tag valid_ser", "card Useful", "tag weights_sha256"} | {
    "head.model-index.results.metrics.value"
}
"""What the weights decide, and figures, which no ε covers."""
BY_NUMBER = {"ledger.json.entries.mechanism.rate", "ledger.json.entries.steps", "tag epsilon_user", "card Warning"}
"""What the number of utterances decides, and the most utterances of a user."""
MOST_OF_A_USER = {"ledger.json.most_of_a_user"}


@dataclass
class Release:
    """Everything that a recipient of a registered model has, by place."""

    found: dict[str, Any] = field(default_factory=dict)

    def differs_from(self, other: Release) -> set[str]:
        """Return the places that differ, without positions in lists."""
        places = self.found.keys() | other.found.keys()
        differing = {place for place in places if self.found.get(place) != other.found.get(place)}
        return {re.sub(r"\.\d+(?=\.|$)", "", place) for place in differing}


class Releases:
    """Trainings of one model on corpora of your own, each registered under a name of its own."""

    def __init__(self, kind: str, tracker: Tracker, place: Path) -> None:
        self.tracker, self.place, self.made = tracker, place, 0
        self._known: dict[str, Release] = {}
        self.model: ModelSpec = frozen(make_encoder("bert", place / "encoder")) if kind == "heads" else MODELS[kind]

    def of(self, train: list[Utterance], schema: list[Utterance] | None, **edp: Any) -> Release:
        """Train on `train`, with a schema of the labels of `schema`, and register the model; each only once."""
        known = repr((train, schema, edp))
        if known not in self._known:
            self._known[known] = self.new(train, schema, **edp)
        return self._known[known]

    def new(self, train: list[Utterance], schema: list[Utterance] | None, **edp: Any) -> Release:
        """Do as `of`, also if it was done before."""
        self.made += 1
        folder = self.place / str(self.made)
        (folder / "mine").mkdir(parents=True)
        for name, part in (("train", train), ("valid", VALID), ("test", TEST)):
            lines = [json.dumps(one._asdict()) for one in part]
            (folder / "mine" / f"{name}.jsonl").write_text("\n".join(lines))
        corpus = CorpusSpec(name="mine", path=str(folder / "mine"), split="published")
        if schema is not None:
            labels = Labels.of(schema)
            names = {"intents": list(labels.intents), "slots": [tag[2:] for tag in labels.tags[1::2]]}
            (folder / "schema.yaml").write_text(yaml.safe_dump(names))
            corpus = corpus.model_copy(update={"schema": str(folder / "schema.yaml")})
        spec = TrialSpec.model_validate(
            {
                "corpus": corpus.model_dump(),
                "model": self.model.model_dump(),
                "shadow": ShadowSpec(corpus=CorpusSpec(name="video", utterances=60)).model_dump(),
                "training": {"method": "dpsgd", "epochs": 2, "batch_size": 12, "learning_rate": 0.1, "workers": 1},
                "edp": {"C": 1e6, "z0": 0, "alpha": "none", "reproducible_noise": 3, **edp},
            }
        )
        encoded = encode(load_corpus(corpus), spec.model, folder / "encoded")
        ensure_states([encoded.folder], [spec.model], lambda line: None)
        with alone():
            result = run_trial(TrialJob(spec, encoded.folder, folder / "trained"), lambda epoch, metrics: None)
        assert result is not None
        run_id = self.tracker.start("a run", params={}, tags={})
        model = register(
            f"{self.place.name} {self.made}",
            tracker=self.tracker,
            run_id=run_id,
            folder=folder / "trained",
            features=encoded.folder / "features",
            spec=spec,
            metrics=result.metrics,
            examples=encoded.size("train"),
        )
        version = self.tracker.client.get_model_version(model.name, str(model.version))
        path = f"served_model/{version.source.rpartition('/')[2]}"
        with quiet():
            saved = self.tracker.client.download_artifacts(run_id, path, str(folder))
        own = {str(folder): "", run_id: "", model.name: "", str(Path(version.source).parent): ""}
        release = Release(dict(_places(Path(saved), version.tags, own)))
        release.found["configuration"] = _without(as_yaml(spec), own)
        return release


def _places(folder: Path, tags: dict[str, str], own: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield everything in a registered model's folder and tags, without names and times of this very release."""
    for name, value in tags.items():
        yield f"tag {name}", _without(value, own)
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or "code" in file.relative_to(folder).parts:  # our own source
            continue
        if file.name == "model.safetensors":
            saved = load_file(file)
            yield "weights", [tensor.tolist() for tensor in saved.values()]
            shapes = {name: (tuple(one.shape), one.dtype) for name, one in saved.items()}
            yield from _leaves("weights", {"shapes": shapes, "size": file.stat().st_size})
        elif file.name == "README.md":
            _, head, card = _without(file.read_text(), own).split("---\n", 2)
            yield from _leaves("head", yaml.safe_load(head))
            for line in card.splitlines():
                yield f"card {line.strip('#- ').partition(':')[0]}", line
        elif file.suffix in (".json", ".yaml", ".yml") or file.name == "MLmodel":
            text = _without(file.read_text(), own)
            yield from _leaves(file.name, json.loads(text) if file.suffix == ".json" else yaml.safe_load(text))
        else:
            yield f"{file.name} bytes", hashlib.sha256(file.read_bytes()).hexdigest()


_OF_THE_MOMENT = {"model_uuid", "utc_time_created", "model_size_bytes", "model_id", "uri"}


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of a document by their paths."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        yield f"{place} (length)", len(value)
        for key, inner in items:
            if key not in _OF_THE_MOMENT:
                yield from _leaves(f"{place}.{key}", inner)
    else:
        yield place, value


def _without(text: str, own: dict[str, str]) -> str:
    for name, other in own.items():
        text = text.replace(name, other)
    return text


@pytest.fixture(scope="module", params=["clc", "bert", "heads"])
def releases(request: pytest.FixtureRequest, tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Releases:
    return Releases(request.param, tracker, tmp_path_factory.mktemp(f"neighbours-{request.param}"))


EVERYTHING = [*TRAIN, ORDINARY, STRANGE, *VALID, *TEST]


@pytest.mark.slow
def test_the_same_corpus_gives_the_same_release(releases: Releases) -> None:
    one, same = releases.of([*TRAIN, STRANGE], EVERYTHING), releases.new([*TRAIN, STRANGE], EVERYTHING)
    assert one.differs_from(same) == set(), "so whatever differs below is of the utterance"


@pytest.mark.slow
def test_one_utterance_for_another_changes_the_weights_and_the_most_of_a_user_alone(releases: Releases) -> None:
    strange, ordinary = (releases.of([*TRAIN, one], EVERYTHING) for one in (STRANGE, ORDINARY))
    assert "weights" in strange.differs_from(ordinary)
    assert strange.differs_from(ordinary) <= BY_WEIGHTS, "the schema has all labels"
    other_user = releases.of([*TRAIN, ORDINARY._replace(user="someone else")], EVERYTHING)
    assert other_user.differs_from(ordinary) <= MOST_OF_A_USER | {"tag epsilon_user"} | BY_WEIGHTS  # other dropout


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
def test_one_utterance_more_also_changes_their_number(sampling: str, releases: Releases) -> None:
    more = releases.of([*TRAIN, STRANGE], EVERYTHING, sampling=sampling)
    less = releases.of(TRAIN, EVERYTHING, sampling=sampling)
    assert "ledger.json.entries.mechanism.rate" in more.differs_from(less)
    assert more.differs_from(less) <= BY_WEIGHTS | BY_NUMBER | MOST_OF_A_USER


@pytest.mark.slow
def test_an_utterance_whose_intent_the_schema_lacks_leaves_no_trace(releases: Releases) -> None:
    schema = [*TRAIN, *VALID, *TEST]
    with_it, without = releases.of([*TRAIN, STRANGE], schema), releases.of(TRAIN, schema)
    assert with_it.differs_from(without) == set(), "not even in the weights"


@pytest.mark.slow
def test_without_a_schema_a_label_of_one_utterance_is_in_the_release(releases: Releases) -> None:
    strange, ordinary = (releases.of([*TRAIN, one], None) for one in (STRANGE, ORDINARY))
    beyond = strange.differs_from(ordinary) - BY_WEIGHTS
    assert {"config.json.labels.intents", "config.json.labels.tags", "weights.size"} <= beyond
    assert any(place.startswith("weights.shapes") for place in beyond)
    named = ("weights.", "config.json.labels", "schema.yaml")
    assert all(place.startswith(named) or "rivate part" in place for place in beyond), "its number of weights"


def test_every_value_is_compared() -> None:
    one = Release(dict(_leaves("a", [{"x": 1}, {"x": 2, "y": 0}])))
    assert one.differs_from(Release(dict(_leaves("a", [{"x": 1}, {"x": 3}])))) == {"a.x", "a.y", "a.1 (length)"}
