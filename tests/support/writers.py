"""Writes utterances in every format that is read: the other half of the readers' conformance suite."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from edp.spec import UserError
from trainables.corpora import generate, read_corpus
from trainables.corpora.types import Utterance

AWKWARD = [
    Utterance(("to", "new", "york", "city"), ("O", "B-city", "I-city", "I-city"), "book_flight"),
    Utterance(("paris", "london"), ("B-city", "B-city"), "book_flight"),
    Utterance(("paris", "london"), ("B-city", "B-city"), "book_flight"),
    Utterance(
        ("añade", "clásicos", "日本", "zero\u2028width", "no\u00a0break"), ("O", "B-x.y", "O", "O", "O"), "add_song"
    ),
    Utterance(("number", "#", "five"), ("O", "O", "B-digit"), "dial_it"),
    Utterance(("stop",), ("O",), "music_stop_now"),
]
CORPUS = AWKWARD + generate("health", 200, seed=3)


def three_file(utterances: Sequence[Utterance], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seq.in").write_text("".join(" ".join(u.tokens) + "\n" for u in utterances), encoding="utf-8")
    (folder / "seq.out").write_text("".join(" ".join(u.tags) + "\n" for u in utterances), encoding="utf-8")
    (folder / "label").write_text("".join(u.intent + "\n" for u in utterances), encoding="utf-8")
    return folder


def three_file_published_splits(utterances: Sequence[Utterance], folder: Path) -> Path:
    third = len(utterances) // 3
    three_file(utterances[:third], folder / "test")
    three_file(utterances[third : 2 * third], folder / "train")
    three_file(utterances[2 * third :], folder / "valid")
    return folder


def jsonl(utterances: Sequence[Utterance], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "corpus.jsonl"
    path.write_text(
        "".join(json.dumps({k: v for k, v in u._asdict().items() if v}) + "\n" for u in utterances), encoding="utf-8"
    )
    return path


def jsonl_folder(utterances: Sequence[Utterance], folder: Path) -> Path:
    half = len(utterances) // 2
    jsonl(utterances[:half], folder / "a")
    jsonl(utterances[half:], folder / "b")
    (folder / "README.md").write_text("not a corpus", encoding="utf-8")
    return folder


def conll(utterances: Sequence[Utterance], folder: Path, comment: str = "# intent: {}") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    blocks = []
    for utterance in utterances:
        lines = [f"{token}\t_\t{tag}" for token, tag in zip(utterance.tokens, utterance.tags, strict=True)]
        blocks.append("\n".join([comment.format(utterance.intent), *lines]))
    path = folder / "corpus.conll"
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path


def conll_equals_sign(utterances: Sequence[Utterance], folder: Path) -> Path:
    return conll(utterances, folder, comment="# a remark\n#intent = {}")


def nlu_eval(utterances: Sequence[Utterance], folder: Path) -> Path:
    """Only for intents of the form scenario_intent, and tokens without brackets."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["answerid;scenario;intent;answer_annotation;answer_from_anno;answer_from_user"]
    for number, utterance in enumerate(utterances):
        scenario, intent = utterance.intent.split("_", 1)
        marked = annotation(utterance)
        identity = "null" if number % 3 == 0 else str(number)
        lines.append(f'{identity};{scenario};{intent};"{marked}";plain;"Plain."')
    path = folder / "annotated.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def annotation(utterance: Utterance) -> str:
    text = ""
    for token, tag in zip(utterance.tokens, utterance.tags, strict=True):
        if not tag.startswith("I-"):
            text = text.replace("\0", "]")
        if tag.startswith("B-"):
            text += f" [{tag[2:]} : {token}\0"
        elif tag.startswith("I-"):
            text = text.replace("\0", f" {token}\0")
        else:
            text += f" {token}"
    return text.replace("\0", "]").strip()


def csv_table(utterances: Sequence[Utterance], folder: Path) -> Path:
    """Words and tags with blanks between, in columns of the obvious names."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "text", "Intent", "tags"])
        for number, one in enumerate(utterances):
            writer.writerow([number, " ".join(one.tokens), one.intent, " ".join(one.tags)])
    return folder


def arrow_table(utterances: Sequence[Utterance]) -> pyarrow.Table:
    """As Hugging Face's `datasets` has it: labels as numbers, whose names stand in the schema's metadata."""
    intents = sorted({one.intent for one in utterances})
    tags = sorted({tag for one in utterances for tag in one.tags})
    table = pyarrow.table(
        {
            "tokens": [list(one.tokens) for one in utterances],
            "ner_tags": [[tags.index(tag) for tag in one.tags] for one in utterances],
            "label": [intents.index(one.intent) for one in utterances],
        }
    )
    features = {
        "tokens": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
        "ner_tags": {"feature": {"names": tags, "_type": "ClassLabel"}, "_type": "List"},
        "label": {"names": intents, "_type": "ClassLabel"},
    }
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def parquet(utterances: Sequence[Utterance], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(arrow_table(utterances), folder / "corpus.parquet")
    return folder / "corpus.parquet"


def datasets(utterances: Sequence[Utterance], folder: Path) -> Path:
    """What `save_to_disk` of `datasets` 5.2 leaves of two splits, and a file of its cache."""
    half = len(utterances) // 2
    whole = arrow_table(utterances)
    for split, part in (("a_train", whole.slice(0, half)), ("b_test", whole.slice(half))):
        place = folder / split
        place.mkdir(parents=True)
        for name in ("data-00000-of-00001.arrow", "cache-0.arrow"):
            with pyarrow.OSFile(str(place / name), "wb") as sink, pyarrow.ipc.new_stream(sink, part.schema) as stream:
                stream.write_table(part, max_chunksize=50)
        (place / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
        (place / "dataset_info.json").write_text("{}")
    (folder / "dataset_dict.json").write_text('{"splits": ["a_train", "b_test"]}')
    return folder


WRITERS: dict[str, tuple[str, Callable[[Sequence[Utterance], Path], Path]]] = {
    "three_file": ("three_file", three_file),
    "three_file with published splits": ("three_file", three_file_published_splits),
    "jsonl": ("jsonl", jsonl),
    "jsonl folder": ("jsonl", jsonl_folder),
    "conll": ("conll", conll),
    "conll with =": ("conll", conll_equals_sign),
    "nlu_eval": ("nlu_eval", nlu_eval),
    "csv": ("csv", csv_table),
}
BINARY: dict[str, tuple[str, Callable[[Sequence[Utterance], Path], Path]]] = {
    "parquet": ("parquet", parquet),
    "datasets": ("datasets", datasets),
}


def refusal(files: dict[str, bytes | str], format: str, folder: Path) -> str:
    """What is said of a corpus of these files, which cannot be read."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        read_corpus(folder, format)
    return str(caught.value)
