"""Other libraries open what is exported by themselves, and score utterances as the released model does."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from edp.spec import UserError
from sweeps.registry.card import readme
from sweeps.registry.export import Format, export_model
from tests.conftest import Command
from tests.support.encoder_folders import KINDS, TEXTS, make_encoder, make_frozen, tiny_config, word_pieces
from tests.support.registering import METRICS, MODELS, PUBLIC, Kept, frozen, trial_spec
from trainables.config import BERTSpec, HeadSpec, ModelSpec
from trainables.corpora import load_corpus
from trainables.corpora.types import split_blanks
from trainables.features.encoded_corpus import encode
from trainables.features.pretrained import hub_name
from trainables.features.token_features import PieceInputs, encode_utterances
from trainables.measure.measuring import contents
from trainables.models import build_model
from trainables.models.released import ReleasedModel, load_model, write_model

UTTERANCES = [*TEXTS[:6], "Zyxwv unheard-of", "remind me"]
SOFTMAX = HeadSpec(slots="softmax")


def released(place: Path, model: ModelSpec) -> ReleasedModel:
    """Return a released model with random weights, also of its adapters."""
    spec = trial_spec(model)
    corpus = encode(load_corpus(spec.corpus), spec.model, place / "corpus")
    made = build_model(spec.model, corpus.labels, seed=3, vocabulary_size=corpus.vocabulary_size)
    for parameter in made.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)) * 0.2)
    torch.save(contents(made, corpus), place / "model.pt")
    shutil.copytree(corpus.folder / "features", place / "released" / "features")
    write_model(place / "released", spec.model, place / "model.pt")
    card = readme("voice", spec, METRICS, "- Privacy: some.")
    (place / "released" / "README.md").write_text(card)
    return load_model(place / "released")


def pretrained(kind: str, place: Path) -> Path:
    if kind in KINDS:
        return make_encoder(kind, place)
    if kind in ("llama", "t5"):
        return make_frozen(kind, place)
    config, tokenizer = tiny_config(kind), word_pieces()
    config.vocab_size = tokenizer.get_vocab_size()
    AutoModel.from_config(config).save_pretrained(place)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(place)
    return place


def expected(model: ReleasedModel, text: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the released model makes of an utterance: states of its sub-words, scores of tags and intents."""
    batch = encode_utterances([split_blanks(text)], model.features)
    assert isinstance(batch.inputs, PieceInputs)
    with torch.inference_mode():
        output = model.model.outputs(batch)
        states = model.model.encoder(input_ids=batch.inputs.piece_bs).last_hidden_state
    return states[0], output.emissions_btk[0], output.intent_logits_bi[0]


def by_the_other_library(other: Any, folder: Path, text: str, read: str) -> tuple[Tensor, Tensor]:
    """Return the output of a model of transformers, and its rows at the words of an utterance."""
    other.eval()  # PEFT's models load in evaluation mode too
    inputs = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", return_token_type_ids=False)
    with torch.inference_mode():
        output = other(**inputs)
    rows = (output.last_hidden_state if "last_hidden_state" in output else output.logits)[0]
    words = split_blanks(text)
    last = [inputs.char_to_token(len(" ".join(words[: i + 1])) - 1) for i in range(len(words))]
    begin = next(place for place, word in enumerate(inputs.word_ids()) if word is not None)
    at = last if read == "last" else [begin, *(place + 1 for place in last[:-1])]
    return rows, rows[at] if len(rows.shape) > 1 else rows


def check_slots(model: ReleasedModel, other: Any, folder: Path) -> None:
    for text in UTTERANCES:
        scores = expected(model, text)[1]
        found = by_the_other_library(other, folder, text, model.model.word)[1]
        assert found.argmax(1).tolist() == scores.argmax(1).tolist()
        assert torch.allclose(found, scores, atol=1e-4)
        (answer,) = model.predict([text])
        tags = [other.config.id2label[tag] for tag in found.argmax(1).tolist()]
        for slot in answer.slots:
            assert tags[slot.start].endswith(f"-{slot.name}")
        assert {tag[2:] for tag in tags} - {""} == {slot.name for slot in answer.slots}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "electra", "mpnet", "deberta-v2", "xlm-roberta"])
def test_transformers_reads_encoder_and_slots_and_scores_as_the_model_does(kind: str, tmp_path: Path) -> None:
    head = HeadSpec(slots="softmax", shared_types=True, shared_parts=kind == "bert")
    model = released(tmp_path, BERTSpec(pretrained=str(pretrained(kind, tmp_path / "p")), vocabulary=PUBLIC, head=head))
    lines = export_model(model, tmp_path / "out", "transformers")
    encoder, slots = tmp_path / "out" / "encoder", tmp_path / "out" / "slots"
    for text in UTTERANCES:
        rows, _ = by_the_other_library(AutoModel.from_pretrained(encoder), encoder, text, "first")
        assert torch.allclose(rows, expected(model, text)[0], atol=1e-4)
    check_slots(model, AutoModelForTokenClassification.from_pretrained(slots), slots)
    assert lines[0].startswith(f"wrote {encoder} (")
    assert "a word's tag is that of its first sub-word" in lines[1]
    assert lines[2].startswith("left out intents: the head of ")
    assert lines[2].endswith("is not a single linear layer with a bias")
    assert not (tmp_path / "out" / "intents").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ultrabert", "xlm"])
def test_transformers_reads_intents_where_its_own_head_is_linear(kind: str, tmp_path: Path) -> None:
    folder = pretrained(kind, tmp_path / "p")
    spec = BERTSpec(pretrained=str(folder), vocabulary=PUBLIC, sentence="first", dropout=0.0)
    model = released(tmp_path, spec)
    lines = export_model(model, tmp_path / "out", "transformers")
    assert "a CRF chooses the tags of an utterance together" in lines[1]
    intents = tmp_path / "out" / "intents"
    other = AutoModelForSequenceClassification.from_pretrained(intents)
    for text in UTTERANCES:
        rows, _ = by_the_other_library(other, intents, text, "first")
        assert torch.allclose(rows, expected(model, text)[2], atol=1e-4)
        assert other.config.id2label[int(rows.argmax())] == model.predict([text])[0].intent
    mean = released(tmp_path / "mean", spec.model_copy(update={"sentence": "mean"}))
    assert "reads another sub-word than the mean one" in export_model(mean, tmp_path / "other", "transformers")[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # PEFT asks transformers for it
@pytest.mark.parametrize(("kind", "target"), [("bert", "query_value"), ("bert", "all"), ("llama", "all"), ("t5", None)])
def test_peft_reads_adapters_and_slots_and_scores_as_the_model_does(kind: str, target: Any, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = pretrained(kind, tmp_path / "p")
    spec = BERTSpec(
        pretrained=str(base),
        vocabulary=PUBLIC,
        head=SOFTMAX,
        trainable="lora",
        lora_target=target,
        lora_rank=3,
        layers=2,
    )
    model = released(tmp_path, spec)
    lines = export_model(model, tmp_path / "out", "peft")
    slots = tmp_path / "out" / "slots"
    assert {file.name for file in slots.iterdir()} >= {"adapter_model.safetensors", "adapter_config.json"}
    assert str(tmp_path) not in (slots / "adapter_config.json").read_text(), "a path of this machine"
    config = AutoConfig.from_pretrained(slots)
    bare = AutoModelForTokenClassification.from_pretrained(base, config=config)
    check_slots(model, peft.PeftModel.from_pretrained(bare, slots), slots)
    assert lines[2].startswith("left out intents: ")


CANNOT = [
    (MODELS["clc"], "transformers", "CLC is no architecture of transformers; allowed: the folder itself"),
    (MODELS["clc"], "peft", "CLC is no architecture of transformers; allowed: the folder itself"),
    (MODELS["bert"], "peft", "model.trainable = all has none; allowed: transformers"),
    ("lora", "transformers", "model.trainable = lora has adapters; allowed: --format peft"),
    ("heads", "transformers", r"its heads read whitened states of layers 1\+2, which no head of transformers does"),
]


@pytest.mark.parametrize(("model", "format", "says"), CANNOT)
def test_what_a_format_cannot_hold_is_one_line(model: Any, format: Format, says: str, tmp_path: Path) -> None:
    if model == "lora":
        model = BERTSpec(pretrained=None, vocabulary=PUBLIC, hidden_size=24, layers=1, heads=2, trainable="lora")
    if model == "heads":
        found: Any = type("Heads", (), {"spec": frozen(tmp_path)})
    else:
        found = released(tmp_path, model)
    with pytest.raises(UserError, match=f"--format = {format}: .*{says}"):
        export_model(found, tmp_path / "out", format)
    assert not (tmp_path / "out").exists()


def test_bio_chooses_tags_together(tmp_path: Path) -> None:
    head = HeadSpec(slots="softmax", bio=True)
    model = released(
        tmp_path, BERTSpec(pretrained=None, vocabulary=PUBLIC, hidden_size=24, layers=1, heads=2, head=head)
    )
    assert "left out slots: model.head.bio chooses" in export_model(model, tmp_path / "out", "transformers")[1]


@pytest.mark.slow
def test_the_folder_of_a_registered_model_opens_without_a_sweep_ray_or_mlflow(
    kept: Kept, tmp_path: Path, command: Command
) -> None:
    version = kept.register(f"to be opened {kept.kind}")
    where = ("--tracking-uri", kept.tracker.uri)
    code, out, err = command("export", version.name, str(tmp_path / "out"), *where)
    assert (code, err) == (0, "")
    assert out.startswith(f"wrote {tmp_path / 'out'}")
    text = "call my mother tomorrow"
    program = (
        "import json, sys; from trainables import load_model; "
        f"(answer,) = load_model({str(tmp_path / 'out')!r}).predict([{text!r}]); "
        "print(answer.model_dump_json()); "
        "print(json.dumps([name for name in ('ray', 'mlflow', 'optuna', 'sweeps') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    answer, imported = done.stdout.splitlines()
    assert json.loads(imported) == []
    (served,) = kept.load(version).predict([text])
    assert json.loads(answer)["intent"] == served.intent
    assert [slot["name"] for slot in json.loads(answer)["slots"]] == [slot.name for slot in served.slots]
    assert command("export", version.name, str(tmp_path / "out"), *where)[::2] == (
        2,
        f"edp-sweep: folder = {str(tmp_path / 'out')!r}: it is there already; allowed: a new folder\n",
    )
    code, _, err = command("export", "nobody", str(tmp_path / "other"), *where)
    assert (code, len(err.splitlines())) == (2, 1)
    assert not (tmp_path / "other").exists()
    with pytest.raises(UserError, match=r"no model\.safetensors and config\.json of ours there"):
        load_model(tmp_path)


def test_an_export_that_fails_leaves_no_half_of_a_model(tmp_path: Path, command: Command) -> None:
    model = released(tmp_path, MODELS["clc"])
    sizes = sorted(file.stat().st_size for file in model.folder.rglob("*") if file.is_file())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[-1] - 1, before[1]))
    try:
        code, _, err = command("export", str(model.folder), str(tmp_path / "out"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (code, err) == (1, "edp-sweep: the disk is full: file too large\n")
    assert not (tmp_path / "out").exists()
    own = tmp_path / "own"
    own.mkdir()
    (model.folder / "lost").symlink_to("nowhere")
    code, _, err = command("export", str(model.folder), str(own))
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith(f"edp-sweep: model = {str(model.folder)!r}: lost: ")
    assert list(own.iterdir()) == [], "the user's folder stays, empty"


def test_the_head_of_the_card_is_what_the_hub_reads(kept: Kept) -> None:
    metrics = METRICS | {"intent_accuracy": 0.91, "slot_f1": 0.85}
    card = ModelCard(readme("voice", kept.spec, metrics, "- Privacy: (8, 1e-5)-DP."))
    head = card.data
    assert (head.license, head.language, head.pipeline_tag) == ("unknown", "en", "token-classification")
    assert head.metrics == ["accuracy", "f1", "ser"]
    assert head.base_model is None, "CLC has none, and a folder of this machine is no name"
    assert {"differential-privacy", kept.spec.model.kind, "edp"} <= set(head.tags)
    results = {one.metric_type: one.metric_value for one in head.eval_results}
    assert results == {"accuracy": 0.91, "f1": 0.85, "ser": 0.25}
    assert "(8, 1e-5)-DP" in card.text
    own = kept.spec.model_copy(update={"corpus": kept.spec.corpus.model_copy(update={"path": "mine", "name": "mine"})})
    assert ModelCard(readme("voice", own, METRICS, "")).data.language is None


def test_an_encoder_has_its_name_on_the_hub() -> None:
    assert hub_name("minilm") == "sentence-transformers/all-MiniLM-L6-v2"
    assert hub_name("huawei-noah/TinyBERT_General_4L_312D") == "huawei-noah/TinyBERT_General_4L_312D"
    assert hub_name("models/qwen3") == "models/qwen3"
    assert hub_name("./models/qwen3") is hub_name(None) is None
