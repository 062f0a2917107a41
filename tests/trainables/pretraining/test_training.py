"""Both objectives learn; a training that was stopped, however it was, ends with the weights of one that was not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from edp.spec import UserError
from tests.support.encoder_folders import make_encoder
from tests.support.public import CORPORA, pool_of, recipe
from trainables.config import BERTSpec, CorpusSpec
from trainables.corpora.labels import Labels
from trainables.corpora.types import Utterance
from trainables.features.compute_states import encoder_digest
from trainables.features.name_scores import readable
from trainables.features.pretrained import pretrained_folder, pretrained_pieces
from trainables.models.bert import BERT
from trainables.pretraining.data import IGNORED, make_pool, read_utterances, stage_batches
from trainables.pretraining.objectives import Masked, Supervised, column_vectors
from trainables.pretraining.overlap import pretrained_on
from trainables.pretraining.run import PretrainingStopped, Record, describe, pieces_of, start_of, train, write_folder
from trainables.pretraining.spec import PretrainSpec


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("public") / "data"


def trained(spec: PretrainSpec, checkpoint: Path, **options: Any) -> tuple[PreTrainedModel, Record]:
    encoder = start_of(spec)
    return encoder, train(spec, pool_of(spec), encoder, checkpoint, **options)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "precision"), [("supervised", "bfloat16"), ("masked", "float32")])
def test_the_loss_falls_and_every_layer_learns_but_the_embeddings(
    objective: str, precision: str, place: Path, tmp_path: Path
) -> None:
    training = {"warm_up": 5, "precision": precision, "device": "cpu"}
    stages = [{"steps": 120, "batch_size": 16, "learning_rate": 2e-3}]
    spec = recipe(place, objective=objective, stages=stages, training=training)
    encoder, record = trained(spec, tmp_path / "checkpoint.pt")
    first, last = fmean(record.losses[:20]), fmean(record.losses[-20:])
    assert last < (0.85 if objective == "supervised" else 0.95) * first, (first, last)
    before = start_of(spec).state_dict()
    for name, tensor in encoder.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, before[name]) == name.startswith("embeddings."), name


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("B-fromloc.city_name", "fromloc city name"),
        ("I-PlayMusic", "play music"),
        ("book_restaurant", "book restaurant"),
        ("Straßen_größe", "straßen größe"),
        ("?", "other"),
    ],
)
def test_a_label_is_read_as_words(label: str, words: str) -> None:
    assert readable(label) == words


def test_labels_of_one_name_have_one_vector_and_o_has_none(place: Path) -> None:
    spec = recipe(place)
    pool, encoder = pool_of(spec), start_of(spec)
    tags, intents = column_vectors(encoder, pieces_of(spec), pool)
    hidden = encoder.config.hidden_size
    for column, vector in zip(pool.tag_columns, tags, strict=True):
        assert vector.norm() == pytest.approx(0 if column.label == "O" else hidden**0.5, rel=1e-5)
    rows = {(c.corpus, c.label): vector for c, vector in zip(pool.tag_columns, tags, strict=True)}
    assert all(torch.equal(v, rows[c, f"I-{t[2:]}"]) for (c, t), v in rows.items() if t.startswith("B-"))
    assert len(intents) == len(pool.intent_columns)


@torch.no_grad()
def test_the_loss_is_that_of_a_softmax_a_corpus(place: Path) -> None:
    """Against a literal one: utterance by utterance, among the labels of its corpus alone."""
    spec = recipe(place)
    pool, encoder = pool_of(spec), start_of(spec).eval()
    torch.manual_seed(0)
    objective = Supervised(encoder.config.hidden_size, pool, column_vectors(encoder, pieces_of(spec), pool)).eval()
    rows = np.array([0, 3, 161, 170, 265, 300])
    batch, corpus_b = pool.batch(rows)
    found = objective(encoder, batch, corpus_b)

    assert objective.tag_names is not None
    assert objective.intent_names is not None
    every = list(itertools.chain(*(read_utterances(corpus) for corpus in spec.corpora)))
    kinds = ["OBI".index(column.label[0]) for column in pool.tag_columns]
    tokens, slot_loss, intent_loss = 0, 0.0, 0.0
    for row in rows:
        utterance, one = every[row], pool.batch(np.array([row]))[0]
        number = int(pool.corpus[row])
        inputs: Any = one.inputs
        states = encoder(input_ids=inputs.piece_bs, attention_mask=inputs.piece_mask_bs.long()).last_hidden_state[0]
        tokens += len(utterance.tokens)
        own_tags = [x for x, column in enumerate(pool.tag_columns) if column.corpus == number]
        own_intents = [x for x, column in enumerate(pool.intent_columns) if column.corpus == number]
        for position, tag in enumerate(utterance.tags if own_tags else ()):
            state = states[inputs.first_bt[0, position]]
            names = objective.kinds(state)[kinds] + objective.tag_names(state[None])[0]
            right = [pool.tag_columns[x].label for x in own_tags].index(tag)
            for weight, scores in ((1.0, objective.tags(state)), (1.0, names)):
                slot_loss -= weight * float(scores[own_tags].log_softmax(0)[right])
        if own_intents:
            right = [pool.intent_columns[x].label for x in own_intents].index(utterance.intent)
            text = states.mean(0)
            for weight, scores in ((0.4, objective.intents(text)), (0.4, objective.intent_names(text[None])[0])):
                intent_loss -= weight * float(scores[own_intents].log_softmax(0)[right])
    assert float(found) == pytest.approx(slot_loss / tokens + intent_loss / len(rows), rel=1e-4)


def test_a_corpus_has_columns_for_what_it_has_labels_for(place: Path) -> None:
    pool = pool_of(recipe(place))
    names = list(CORPORA)
    assert {names[column.corpus] for column in pool.tag_columns} == {"both", "slots"}
    assert {names[column.corpus] for column in pool.intent_columns} == {"both", "intents"}
    for number, (name, utterances) in enumerate(CORPORA.items()):
        rows = np.flatnonzero(pool.corpus == number)
        assert len(rows) == len(utterances) == pool.corpora[number]["utterances"]
        batch, _ = pool.batch(rows)
        assert batch.tags_bt is not None
        assert batch.intent_b is not None
        assert bool((batch.tags_bt[batch.mask_bt] == IGNORED).all()) == (name == "intents")
        assert bool((batch.intent_b == IGNORED).all()) == (name == "slots")
    labels = Labels.of(CORPORA["both"])
    assert [column.label for column in pool.tag_columns if column.corpus == 0] == list(labels.tags)


def test_a_stage_sees_its_corpora_pass_after_pass_and_what_it_replays(place: Path) -> None:
    spec = recipe(place, stages=[{"corpora": ["both"], "replay": 40, "steps": 26, "batch_size": 16}])
    pool = pool_of(spec)
    batches = stage_batches(spec, 0, pool)
    assert len(batches) == 26
    one_pass, another = np.concatenate(batches[:13]), np.concatenate(batches[13:])
    assert len(set(one_pass.tolist())) == len(one_pass) == 200
    assert set(one_pass.tolist()) == set(another.tolist())
    assert one_pass.tolist() != another.tolist()
    assert np.bincount(pool.corpus[one_pass])[0] == 160
    lengths = np.diff(pool.offsets)
    spread = fmean(float(np.ptp(lengths[rows])) for rows in batches)
    assert spread < np.ptp(lengths) / 2, "utterances of like length go together"


def test_utterances_without_a_slot_are_left_out_of_corpora_that_have_slots(place: Path) -> None:
    def rows(share: float) -> np.ndarray:
        spec = recipe(place, slotless=share, stages=[{"steps": 400, "batch_size": 16}])
        return np.unique(np.concatenate(stage_batches(spec, 0, pool_of(spec))))

    spec = recipe(place)
    bare = np.array([set(u.tags) == {"O"} for corpus in spec.corpora for u in read_utterances(corpus)])
    intents_alone = pool_of(spec).corpus == list(CORPORA).index("intents")
    assert (bare & ~intents_alone).any()
    assert rows(1.0).tolist() == list(range(len(bare)))
    assert rows(0.0).tolist() == np.flatnonzero(~bare | intents_alone).tolist()
    assert len(rows(0.0)) < len(rows(0.5)) < len(bare)


@pytest.mark.slow
def test_a_killed_training_ends_with_the_same_weights(place: Path, tmp_path: Path) -> None:
    """Killed after every kind of step: in a stage, at its end, and before the first checkpoint."""
    spec = recipe(place)
    whole, record = trained(spec, tmp_path / "whole.pt")

    class Killed(BaseException):
        pass

    def kill_after(last: int) -> Any:
        def on_step(step: int, loss: float) -> None:
            if step == last:
                raise Killed

        return on_step

    checkpoint = tmp_path / "killed.pt"
    for last in (1, 7, 31, 45):
        with pytest.raises(Killed):
            trained(spec, checkpoint, on_step=kill_after(last))
    with pytest.raises(PretrainingStopped):
        trained(spec, checkpoint, stopped=lambda: True)
    steps: list[int] = []
    resumed, again = trained(spec, checkpoint, on_step=lambda step, loss: steps.append(step))
    assert steps[0] > 40
    assert again.losses == record.losses
    assert encoder_digest(resumed) == encoder_digest(whole)


def test_what_has_no_labels_can_only_be_masked(place: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.jsonl"
    lines = [{"tokens": u.tokens, "tags": ["O"] * len(u.tokens), "intent": "none"} for u in CORPORA["both"]]
    bare.write_text("".join(json.dumps(line) + "\n" for line in lines))
    corpora, stages = [{"name": "bare", "path": str(bare)}], [{"steps": 2, "batch_size": 8}]
    with pytest.raises(UserError, match="allowed: objective = masked"):
        trained(recipe(place, corpora=corpora, stages=stages), tmp_path / "a.pt")
    masked = recipe(place, corpora=corpora, stages=stages, objective="masked")
    assert trained(masked, tmp_path / "b.pt")[1].steps == 2


def test_an_encoder_without_a_mask_cannot_be_masked(place: Path, tmp_path: Path) -> None:
    folder = make_encoder("roberta", tmp_path / "roberta")
    spec = recipe(place, objective="masked", model={"pretrained": str(folder)})
    with pytest.raises(UserError, match=r"objective = masked: .* has no \[MASK\] or <mask>"):
        trained(spec, tmp_path / "checkpoint.pt")


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "electra", "deberta-v2", "modernbert"])
@pytest.mark.slow
def test_the_folder_is_an_encoder_of_the_same_architecture_that_a_model_starts_from(
    kind: str, place: Path, tmp_path: Path
) -> None:
    start = make_encoder(kind, tmp_path / "start")
    spec = recipe(place, model={"pretrained": str(start)}, stages=[{"steps": 3, "batch_size": 8}])
    corpora = [read_utterances(corpus) for corpus in spec.corpora]
    encoder, record = trained(spec, tmp_path / "checkpoint.pt")
    folder = tmp_path / "made"
    pieces = pieces_of(spec)
    write_folder(folder, encoder, pieces, spec, describe(spec, pool_of(spec), record, "abc"), corpora)

    model = BERT(
        BERTSpec(pretrained=str(folder), vocabulary=CorpusSpec(name="snips")), Labels.of(CORPORA["both"]), None
    )
    assert encoder_digest(model.encoder) == encoder_digest(encoder)
    again = pretrained_pieces(str(folder))
    assert again is not None
    words = ["play", "some", "jazz"]
    assert (again.pieces(words), again.start, again.end, again.max_pieces) == (
        pieces.pieces(words),
        pieces.start,
        pieces.end,
        pieces.max_pieces,
    )
    about = pretrained_on(folder)
    assert about is not None
    assert [corpus["name"] for corpus in about["corpora"]] == list(CORPORA)
    assert about["steps"] == 3
    assert str(tmp_path) not in (folder / "pretraining.json").read_text()
    assert pretrained_folder(str(folder))[0] == folder


@pytest.mark.parametrize("contents", [b"", b"PK", {}, {"encoder": {}, "objective": {}, "record": {}}], ids=str)
def test_a_checkpoint_that_is_broken_is_one_line(contents: Any, place: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    if isinstance(contents, bytes):
        checkpoint.write_bytes(contents)
    else:
        torch.save(contents, checkpoint)
    with pytest.raises(UserError, match=r"checkpoint\.pt is broken \(") as caught:
        trained(recipe(place), checkpoint)
    assert "\n" not in str(caught.value)


def test_a_rate_at_which_the_loss_does_not_stay_finite_is_refused_and_nothing_is_written(
    place: Path, tmp_path: Path
) -> None:
    stages = [{"steps": 20, "batch_size": 16, "learning_rate": 1e30}]
    with pytest.raises(UserError, match=r"stages\[0\]\.learning_rate = 1e\+30: at step \d+ of 20 the loss is"):
        trained(recipe(place, stages=stages), tmp_path / "checkpoint.pt")


def test_a_batch_of_which_the_vocabulary_knows_no_word_teaches_nothing(place: Path) -> None:
    spec = recipe(place, objective="masked")
    encoder, pieces = start_of(spec), pieces_of(spec)
    unknown = [Utterance(("😀", "😢"), ("O", "O"), "say")] * 20
    batch, corpus_b = make_pool(spec.corpora[:1], [unknown], pieces).batch(np.arange(4))
    assert Masked(encoder, pieces)(encoder, batch, corpus_b).item() == 0.0
