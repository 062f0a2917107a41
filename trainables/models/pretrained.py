"""Pretrained BERT weights and vocabulary: a local folder, the Hugging Face cache, or the hub; never a long
wait for it.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path

from tokenizers import Tokenizer

from trainables.tokens import WordPieces

_log = logging.getLogger(__name__)
_HUB_SECONDS = 3.0
_FILES = ["config.json", "tokenizer*", "vocab.txt", "*.safetensors", "pytorch_model.bin"]


@functools.cache
def pretrained_folder(name: str) -> tuple[Path | None, str]:
    """The local folder of a pretrained model, and why there is none. A warning says so, once a process."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder, ""
    if folder.is_absolute() or name.startswith("."):
        return _none(name, "no config.json there")
    from huggingface_hub import snapshot_download

    reason = ""
    for local_files_only in (True, False):
        try:
            found = snapshot_download(
                name, allow_patterns=_FILES, etag_timeout=_HUB_SECONDS, local_files_only=local_files_only
            )
        except (OSError, ValueError) as error:  # no network, no such repository, not a repository's name
            reason = str(error).splitlines()[0]
            continue
        if (Path(found) / "config.json").is_file():
            return Path(found), ""
        reason = "no config.json in it"
    return _none(name, reason)


def pretrained_pieces(name: str | None) -> WordPieces | None:
    """The vocabulary of a pretrained model, None where it has none or cannot be had."""
    folder = pretrained_folder(name)[0] if name is not None else None
    if folder is None:
        return None
    if (folder / "tokenizer.json").is_file():
        return WordPieces(Tokenizer.from_file(str(folder / "tokenizer.json")), str(name))
    if (folder / "vocab.txt").is_file():
        from transformers import BertTokenizer

        return WordPieces(BertTokenizer.from_pretrained(str(folder)).backend_tokenizer, str(name))
    _log.warning("model.pretrained = %s has no vocabulary; one is trained on the public corpus", name)
    return None


def _none(name: str, reason: str) -> tuple[None, str]:
    _log.warning("model.pretrained = %s cannot be had (%s): the start is random", name, reason)
    return None, reason
