"""What is no encoder that a recipe can start from, or lacks something, ends in one line before anything is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, processors
from transformers import BartConfig, BartModel, ViTConfig, ViTModel

from edp.spec import UserError
from tests.support.encoder_folders import make_encoder
from tests.support.models import built, spec_of
from trainables.config import BERTSpec, CorpusSpec
from trainables.features.pretrained import check_pretrained, pretrained_encoder, pretrained_pieces
from trainables.features.word_pieces import WordPieces


def test_a_tokenizer_without_its_special_tokens_is_refused() -> None:
    tokenizer = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "<s>": 2, "a": 3}, unk_token="[UNK]"))
    with pytest.raises(UserError, match=r"the vocabulary of mine lacks \[SEP\] and </s>; allowed: one with either"):
        WordPieces(tokenizer, "mine")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> <s> $A", special_tokens=[("<s>", 2)])
    with pytest.raises(UserError, match="puts 2 special tokens before and 0 after an utterance; allowed: at most one"):
        WordPieces(tokenizer, "mine")


def refusal(folder: Path) -> str:
    pretrained_encoder.cache_clear()
    with pytest.raises(UserError) as caught:
        built(spec_of(folder), folder.parent)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"model.pretrained = {folder}: ")
    return str(caught.value)


def test_what_reads_no_text_alone_is_refused_in_one_line(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    ViTModel(ViTConfig(**sizes)).save_pretrained(tmp_path / "pictures")
    assert "type vit is no text model; allowed: a text model such as BERT or Llama" in refusal(tmp_path / "pictures")
    halves: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    both = BartConfig(vocab_size=20, d_model=8, encoder_attention_heads=2, decoder_attention_heads=2, **halves)
    BartModel(both).save_pretrained(tmp_path / "both")
    assert "type bart has a decoder too, from which transformers does not part the encoder" in refusal(
        tmp_path / "both"
    )
    causal = make_encoder("bert", tmp_path / "causal", is_decoder=True)
    assert "type bert is made a decoder by is_decoder = true" in refusal(causal)


@pytest.mark.slow
def test_a_folder_that_lacks_something_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = make_encoder("distilbert", tmp_path / "made")
    tokenizer, config = (folder / "tokenizer.json").read_bytes(), (folder / "config.json").read_text()
    weights = (folder / "model.safetensors").read_bytes()

    (folder / "config.json").unlink()
    assert "no config.json there; allowed: minilm, a folder of an encoder, or a Hugging Face name" in refusal(folder)
    (folder / "config.json").write_text('{"model_type": "something-new", "auto_map": {"AutoConfig": "theirs.Config"}}')
    assert "its config.json cannot be read" in refusal(folder)
    (folder / "config.json").write_text(config.replace('"vocab_size"', '"vocab_size": 9, "was"'))
    assert "its weights 9 rows; allowed: a tokenizer that belongs to the weights" in refusal(folder)
    (folder / "config.json").write_text(config)

    (folder / "model.safetensors").unlink()
    assert "no weights there; allowed: a folder with model.safetensors or" in refusal(folder)
    (folder / "model.safetensors").write_bytes(weights[:1000])
    assert "its weights cannot be read" in refusal(folder)
    (folder / "model.safetensors").write_bytes(
        (make_encoder("electra", tmp_path / "e") / "model.safetensors").read_bytes()
    )
    assert "of its weights embeddings.LayerNorm.bias is missing or of another shape, and" in refusal(folder)
    (folder / "model.safetensors").write_bytes(weights)

    damaged = load_file(folder / "model.safetensors")
    damaged["transformer.layer.0.ffn.lin1.weight"][0, 0] = torch.nan
    save_file(damaged, folder / "model.safetensors", {"format": "pt"})
    assert "of its weights transformer.layer.0.ffn.lin1.weight is not finite" in refusal(folder)
    (folder / "model.safetensors").write_bytes(weights)

    (folder / "tokenizer.json").write_text("{")
    assert "it has no tokenizer that can be read (EOF while parsing" in refusal(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    for key, value in (("n_heads", "7"), ("activation", '"nope"')):
        (folder / "config.json").write_text(re.sub(rf'("{key}": )[^,]*', rf"\g<1>{value}", config))
        pretrained_encoder.cache_clear()
        with pytest.raises(UserError, match=r"the encoder of its config\.json cannot be built"):
            check_pretrained(BERTSpec(pretrained=str(folder), vocabulary=CorpusSpec(name="snips")))
    (folder / "config.json").write_text(config)

    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert "it has no tokenizer that can be read (no vocabulary there)" in refusal(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    pretrained_encoder.cache_clear()
    assert pretrained_pieces(str(folder)) is not None


def test_a_path_that_is_not_there_is_no_name_of_a_hub(tmp_path: Path) -> None:
    assert "no config.json there" in refusal(tmp_path / "nowhere")
    assert "no config.json there" in refusal(Path("runs/encoders/nowhere"))
