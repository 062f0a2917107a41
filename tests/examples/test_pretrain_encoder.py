"""The example that pretrains an encoder: both objectives learn, and private heads start from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from edp.spec import UserError
from sweeps.engine.prepare import encode_missing, read_missing
from sweeps.store.prepared import locate
from tests.support.encoder_folders import make_encoder
from tests.support.frozen_heads import model_spec, trial_spec
from tests.support.public import CORPORA, write_corpora
from trainables.config import CorpusSpec
from trainables.corpora import Splits
from trainables.corpora.labels import Labels
from trainables.corpora.overlap import check_corpus, check_utterances
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.encoder import Encoder
from trainables.training.process import new_model
from trainables.training.trainer import Trainer

pytest.importorskip("accelerate", reason="the Trainer of transformers needs it: pip install 'edp-sweeps[pretraining]'")
from examples import pretrain_encoder as example

STEPS = ["--steps", "40", "--batch-size", "16", "--learning-rate", "2e-3", "--warm-up", "5", "--slotless", "1"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public")
    write_corpora(folder)
    make_encoder("bert", folder / "encoder")
    return folder


def words(place: Path, output: Path, *names: str, start: Path | None = None) -> list[str]:
    corpora = [f"{name}={place / name}" for name in names or CORPORA]
    return [str(output), "--start", str(start or place / "encoder"), "--corpora", *corpora, *STEPS]


@pytest.fixture(scope="module")
def made(place: Path) -> Path:
    example.main(words(place, place / "made"))
    return place / "made"


@pytest.mark.slow
@pytest.mark.usefixtures("one_worker")
def test_the_loss_falls_the_embeddings_stay_and_private_heads_learn_on_it(place: Path, made: Path) -> None:
    about = json.loads((made / "pretraining.json").read_text())
    losses = [loss for _, loss in about["loss"]]
    assert losses[-1] < 0.85 * losses[0]
    assert [corpus["name"] for corpus in about["corpora"]] == list(CORPORA)
    assert str(place) not in (made / "pretraining.json").read_text()
    assert not list(place.glob(".made-*")), "nothing of the training is left"
    before, after = (Encoder.read(folder, "x").load().state_dict() for folder in (place / "encoder", made))
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == name.startswith("embeddings."), name

    spec = trial_spec(model_spec(made).model_copy(update={"name_prior": 0.5}))
    prepared = locate(spec, place / "cache")
    encode_missing(spec, prepared, read_missing(spec, prepared), lambda line: None)
    corpus = EncodedCorpus.open(prepared.corpus).for_model(spec.model)
    trainer = Trainer(new_model(spec, corpus, CPU), corpus, spec, CPU)
    losses = [trainer.run_epoch(epoch) for epoch in range(spec.training.epochs)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.slow
def test_what_a_second_training_starts_from_counts_as_seen(place: Path, made: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    example.main([*words(place, later, "both", start=made), "--objective", "masked", "--steps", "2"])
    model = model_spec(later)
    with pytest.raises(UserError, match="it was trained on slots without privacy"):
        check_corpus(model, CorpusSpec(name="slots", path=str(place / "slots")))
    with pytest.raises(UserError, match="100 of the 100 distinct utterances"):
        check_utterances(model, CorpusSpec(name="mine"), Splits(CORPORA["slots"], [], []))
    with pytest.raises(UserError, match="it is there already"):
        example.main(words(place, later))


@pytest.mark.stress
def test_a_training_that_was_cut_off_goes_on(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line, saved, seen = [*words(place, tmp_path / "made", "both"), "--steps", "210", "--batch-size", "4"], 200, []
    step = example.ByLength.training_step

    def counted(self: Any, *batch: Any, **options: Any) -> torch.Tensor:
        seen.append(self.state.global_step)
        if len(seen) == saved + 2:
            raise KeyboardInterrupt
        return step(self, *batch, **options)

    monkeypatch.setattr(example.ByLength, "training_step", counted)
    with pytest.raises(KeyboardInterrupt):
        example.main(line)
    assert not (tmp_path / "made").exists()
    example.main(line)
    assert seen[saved + 2 :] == [*range(saved, 210)]


@torch.no_grad()
def test_the_loss_is_that_of_a_softmax_a_corpus(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a literal one: utterance by utterance, among the labels of its corpus alone."""
    monkeypatch.setattr(example, "in_bfloat16", lambda *about: False)
    _, pieces, encoder = example.start_of(str(place / "encoder"), 0.0)
    labels = [Labels.of(one) for one in CORPORA.values()]
    torch.manual_seed(0)
    net = example.Supervised(encoder, pieces, labels, 0.0).eval()
    every = [(number, one) for number, utterances in enumerate(CORPORA.values()) for one in utterances]
    chosen = [every[row] for row in (0, 3, 161, 170, 265, 300)]
    found = net(**net.collate(chosen))["loss"]

    kinds = ["OBI".index(tag[0]) for _, tag in net.tag_of]
    tokens, slot_loss, intent_loss = 0, 0.0, 0.0
    for number, utterance in chosen:
        inputs: Any = net.collate([(number, utterance)])["batch"].inputs
        states = encoder(input_ids=inputs.piece_bs, attention_mask=inputs.piece_mask_bs.long()).last_hidden_state[0]
        tokens += len(utterance.tokens)
        own_tags = {tag: x for (corpus, tag), x in net.tag_of.items() if corpus == number}
        own_intents = {intent: x for (corpus, intent), x in net.intent_of.items() if corpus == number}
        assert bool(own_tags) == (number != 2)
        assert bool(own_intents) == (number != 1)
        for position, tag in enumerate(utterance.tags if own_tags else ()):
            state = states[inputs.first_bt[0, position]]
            for scores in (net.tags(state), net.kinds(state)[kinds] + net.tag_names(state[None])[0]):
                slot_loss -= float(scores[[*own_tags.values()]].log_softmax(0)[[*own_tags].index(tag)])
        if own_intents:
            for scores in (net.intents(states.mean(0)), net.intent_names(states.mean(0)[None])[0]):
                own = scores[[*own_intents.values()]].log_softmax(0)
                intent_loss -= 0.4 * float(own[[*own_intents].index(utterance.intent)])
    assert float(found) == pytest.approx(slot_loss / tokens + intent_loss / len(chosen), rel=1e-4)


def test_what_has_no_labels_or_no_mask_is_refused(place: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.jsonl"
    lines = [{"tokens": u.tokens, "tags": ["O"] * len(u.tokens), "intent": "none"} for u in CORPORA["both"]]
    bare.write_text("".join(json.dumps(line) + "\n" for line in lines))
    line = [str(tmp_path / "made"), "--start", str(place / "encoder"), "--corpora", f"bare={bare}"]
    with pytest.raises(UserError, match="allowed: --objective masked"):
        example.main(line)
    _, pieces, encoder = example.start_of(str(make_encoder("roberta", tmp_path / "roberta")), 0.0)
    with pytest.raises(UserError, match=r"--objective = masked: .* has no mask"):
        example.Masked(encoder, pieces, [], 0.0)
