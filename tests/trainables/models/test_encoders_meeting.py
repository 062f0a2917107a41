"""No utterance changes another one's states or gradients in an encoder that a private trial takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedConfig

from edp.spec import UserError
from sweeps.engine.prepare import check_encoders
from tests.support.encoder_folders import ARCHITECTURES, make_encoder, tiny_config
from tests.support.models import spec_of
from tests.support.tiny import SPEC
from trainables.config import TrialSpec
from trainables.features.encoder import Encoder, empty_encoder, fills_gaps
from trainables.features.pretrained import pretrained_encoder
from trainables.models import bert
from trainables.models.bert import meeting_fault

STATES = "lets utterances of a batch change each other's states"
DRAWS = "draws random numbers that all utterances of a batch share"
FIRST = ("fnet", "convbert", "mobilebert", "xlm", "albert", "bert", "llama")


def tiny(kind: str) -> Encoder:
    return Encoder(kind, Path(kind), tiny_config(kind))


def faults(encoder: Encoder) -> dict[str, str | None]:
    """What is wrong with a frozen encoder, with adapters or all weights without dropout, and with dropout."""
    found = {"frozen": meeting_fault(encoder, trained=False)}
    ways = {"lora": "all", "all": None} if fills_gaps(encoder.config) else {"lora": "all"}
    for way, target in ways.items():
        found[way] = meeting_fault(encoder, trained=True, target=target)
        if fills_gaps(encoder.config):
            found[f"{way}, dropout"] = meeting_fault(encoder, trained=True, target=target, dropout=0.1)
    return found


@pytest.mark.parametrize(
    "kind", [kind if kind in FIRST else pytest.param(kind, marks=pytest.mark.slow) for kind in ARCHITECTURES]
)
def test_what_meets_in_an_architecture_is_found(kind: str) -> None:
    expected = ARCHITECTURES[kind]
    for way, fault in faults(tiny(kind)).items():
        if expected == "dropout":
            assert (fault is not None) == way.endswith("dropout"), (way, fault)
        else:
            assert fault == {"": None, "meets": STATES, "draws": DRAWS}[expected], way


def test_a_gradient_that_depends_on_the_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_batch(config: PreTrainedConfig) -> Any:
        encoder = empty_encoder(config)
        encoder.embeddings.LayerNorm.register_full_backward_hook(
            lambda _, gradient, __: (gradient[0] / len(gradient[0]),)
        )
        return encoder

    assert meeting_fault(tiny("bert"), trained=True) is None
    monkeypatch.setattr(bert, "empty_encoder", by_the_batch)
    assert meeting_fault(tiny("bert"), trained=True) == "lets utterances of a batch change each other's gradients"


def trial_of(folder: Path, method: str = "dpsgd", **model: Any) -> TrialSpec:
    training = SPEC["training"] | {"method": method, "workers": 1}
    return TrialSpec.model_validate({**SPEC, "model": spec_of(folder, **model).model_dump(), "training": training})


def test_an_encoder_is_refused_in_one_line_where_something_is_promised(tmp_path: Path) -> None:
    pretrained_encoder.cache_clear()
    folders = {}
    for kind in ("fnet", "esm"):
        folders[kind] = make_encoder("bert", tmp_path / kind)  # the check reads the architecture alone
        tiny_config(kind).save_pretrained(folders[kind])
    for changes in ({}, {"trainable": "heads"}, {"trainable": "lora", "lora_target": "all", "dropout": 0.0}):
        with pytest.raises(UserError) as caught:
            check_encoders([trial_of(folders["fnet"], **changes)])
        expected = f"model.pretrained = {folders['fnet']}: of type fnet, {STATES}; allowed: an encoder such as BERT"
        assert str(caught.value).startswith(expected)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=rf"of type esm, {DRAWS}; allowed: model\.dropout = 0, or an encoder such as"):
        check_encoders([trial_of(folders["esm"], dropout=0.2)])
    check_encoders(
        [trial_of(folders["esm"], trainable="lora", dropout=0.0), trial_of(folders["esm"], trainable="heads")]
    )
    check_encoders([trial_of(folders["fnet"], method="sgd"), trial_of(make_encoder("bert", tmp_path / "bert"))])


def test_the_trial_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    meeting_fault(tiny("bert"), trained=True, dropout=0.1)
    assert before.equal(torch.get_rng_state())
