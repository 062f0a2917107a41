"""The sub-words that make an utterance's state, as the folder of an embedding model names them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from edp.spec import UserError
from tests.support.encoder_folders import UTTERANCES, frozen_spec, make_encoder
from trainables.features.compute_states import frozen_encoder, hidden_states, load_frozen, take_encoder
from trainables.features.pretrained import check_pretrained, pretrained_pieces
from trainables.features.token_features import encode_utterances

FLAGS = {
    f"pooling_mode_{way}": False
    for way in ("cls_token", "mean_tokens", "max_tokens", "weightedmean_tokens", "lasttoken")
}
POOLED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3", FLAGS | {"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
    ("qwen3", {"word_embedding_dimension": 16, "pooling_mode": "lasttoken"}, "last"),
    ("gemma3", FLAGS | {"pooling_mode_mean_tokens": True}, "mean"),
    ("bert", FLAGS | {"pooling_mode_cls_token": True}, "first"),
    ("bert", {"pooling_mode": "cls"}, "first"),
]


def pooled(folder: Path, place: Path, found: Any) -> Path:
    """A copy of a model's folder that says how it makes vectors of utterances."""
    shutil.copytree(folder, place)
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(found if isinstance(found, str) else json.dumps(found))
    return place


@pytest.mark.parametrize(("kind", "found", "expected"), POOLED)
def test_an_embedding_models_own_pooling_is_read_from_its_folder(
    kind: str, found: dict[str, Any], expected: str, frozen: dict[str, Path], tmp_path: Path
) -> None:
    plain = frozen[kind] if kind in frozen else make_encoder(kind, tmp_path / "made")
    folder = pooled(plain, tmp_path / "pooled", found)
    own, named = (frozen_spec(folder, sentence=sentence) for sentence in ("own", expected))
    pieces = pretrained_pieces(str(folder))
    assert pieces is not None
    batch = encode_utterances(UTTERANCES, pieces)
    names = ["sentence_own_last", f"sentence_{expected}_last"]
    one, other = hidden_states(load_frozen(own), batch, names)
    assert torch.equal(one, other)
    assert check_pretrained(own) == [f"sentence {expected}", *check_pretrained(named)], "no other key changes"
    assert check_pretrained(named)[::3] == check_pretrained(frozen_spec(plain))[::3]
    frozen_encoder.cache_clear()
    take_encoder(own, tmp_path / "taken")  # without 1_Pooling: what it said goes along
    assert torch.equal(hidden_states(load_frozen(own, tmp_path / "taken"), batch, names[:1])[0], one)
    frozen_encoder.cache_clear()


@pytest.mark.parametrize(
    ("kind", "found", "says"),
    [
        ("qwen3", None, r"own: model\.pretrained = .* has no 1_Pooling/config\.json; allowed: mean, first, last"),
        ("qwen3", FLAGS, r"has nothing in its 1_Pooling/config\.json; allowed: mean"),
        ("qwen3", FLAGS | {"pooling_mode_weightedmean_tokens": True}, "has weightedmean_tokens in its 1_Pooling"),
        (
            "llama",
            FLAGS | {"pooling_mode_max_tokens": True, "pooling_mode_lasttoken": True},
            r"has max_tokens \+ lasttoken in its",
        ),
        (
            "llama",
            FLAGS | {"pooling_mode_cls_token": True},
            "sentence = own: .* has read only what is before the first",
        ),
        ("llama", "{", r"its 1_Pooling/config\.json cannot be read \("),
        ("llama", "[]", r"its 1_Pooling/config\.json cannot be read \("),
    ],
)
def test_a_pooling_that_is_not_there_or_has_no_value_is_refused(
    kind: str, found: Any, says: str, frozen: dict[str, Path], tmp_path: Path
) -> None:
    folder = frozen[kind] if found is None else pooled(frozen[kind], tmp_path / "pooled", found)
    with pytest.raises(UserError, match=says) as caught:
        check_pretrained(frozen_spec(folder, sentence="own"))
    assert "\n" not in str(caught.value)
