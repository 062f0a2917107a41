"""`edp-sweep data`: download, generate and check corpora."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic import ValidationError
from rich.progress import track

from edp.spec import UserError
from sweeps.commands.console import BAR, busy, err, out, print_json
from sweeps.commands.options import FILE, PATH, Json
from sweeps.text.errors import one_line, suggestion
from sweeps.text.paths import as_path, is_printed, output
from sweeps.text.terminal import print_line
from trainables import corpora
from trainables.config import ColumnsSpec, CorpusSpec, Quoting
from trainables.corpora import SCHEMAS
from trainables.corpora.labels import FEW, TASKS, LabelCounts, labels_of, utterances_of_labels
from trainables.corpora.load import check_private
from trainables.corpora.schema import find_schema, skeleton
from trainables.corpora.schema_text import UTTERANCES, make_text, marked
from trainables.corpora.splits import TextOverlap, near_words

if TYPE_CHECKING:
    from trainables.features.word_pieces import Readable

data_command = typer.Typer(no_args_is_help=True, add_completion=False, help="Download, generate and check corpora.")

_SHOWN = 8
"""Utterances that `data text` shows."""
FORMATS = get_args(get_args(CorpusSpec.model_fields["format"].annotation)[0])[1:]


@data_command.command()
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="atis, snips, nlu_eval: downloaded, all three by default; sgd, clinc150, banking77, restaurant8k, "
            "mit_restaurant, mit_movie, mit_movie_trivia, fb_multilingual: converted files, see --from"
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="converted file of the corpus that is named; it is checked and copied to the corpora", **PATH
        ),
    ] = None,
) -> None:
    """Download public corpora, with pinned digests, unless they are here already.

    Corpora that are read as converted files are not downloaded: --from takes such a file, and without it a message says
    where it comes from.
    """
    for name in names or corpora.DOWNLOADED:
        if name not in corpora.PUBLIC:
            raise UserError(f"corpus = {name!r}: allowed: {', '.join(corpora.PUBLIC)}")
    if source is not None and len(names or ()) != 1:
        raise UserError(
            f"--from = {str(source)!r}: it is the file of one corpus; allowed: together with exactly one name"
        )
    for name in names or corpora.DOWNLOADED:
        found = corpora.find_corpus(CorpusSpec(name=name)) if source is None else corpora.keep(name, source)
        print_line(out, f"{name}: {found}")


@data_command.command()
def make(
    name: Annotated[str, typer.Argument(help="the corpus: communication, health or video")],
    utterances: Annotated[
        int, typer.Option(min=20, max=10_000_000, help="number of utterances, all distinct")
    ] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="seed of the generator")] = 0,
    path: Annotated[
        Path | None,
        typer.Option("--output", help="file to write, or - to print; by default NAME.jsonl", **FILE),
    ] = None,
) -> None:
    """Generate a corpus, and write it as JSON lines of tokens, tags and intent."""
    if name not in corpora.GENERATED:
        raise UserError(f"corpus = {name!r}: allowed: {', '.join(corpora.GENERATED)}")
    path = path or Path(f"{name}.jsonl")
    source = islice(corpora.stream(name, seed), utterances)
    with output(path) as file:
        for one in track(source, f"making {name}", utterances, **BAR):
            file.write(_json_line(one))
    if not is_printed(path):
        print_line(out, f"wrote {utterances:,} utterances to {path}")


def _json_line(one: corpora.Utterance) -> str:
    """Return an utterance as a line of JSON, without its user, and without an intent if it has none."""
    kept = {k: v for k, v in one._asdict().items() if k != "user" and v}
    return json.dumps(kept, ensure_ascii=False) + "\n"


Corpus = Annotated[str, typer.Argument(help="a corpus' name, or the path of a file or folder")]
Format = Annotated[str, typer.Option(help=f"{', '.join(FORMATS)}; auto: as the files suggest")]
Column = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND=NAME",
        help="a table's column, as text=NAME, intent=NAME, tags=NAME or user=NAME; may be repeated",
    ),
]


@data_command.command()
def check(
    corpus: Corpus,
    format: Format = "auto",
    column: Column = None,
    schema: Annotated[
        str | None, typer.Option(help=f"file of the corpus' labels (corpus.schema), or one of {', '.join(SCHEMAS)}")
    ] = None,
    quoting: Annotated[
        str, typer.Option(help=f"quotes in CSV: {', '.join(get_args(Quoting))}; see corpus.quoting")
    ] = "auto",
    encoder: Annotated[
        str | None, typer.Option(help="pretrained encoder, as model.pretrained, whose unknown words are counted")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a whole corpus, check it as training does, and count its utterances, labels and users.

    With a schema that has samples, also count how much of its text is in the corpus.
    """
    spec = _spec(corpus, format, column, schema, quoting)
    found = corpora.check_corpus(spec)
    words = _readable(spec, encoder) if encoder is not None else None
    if as_json:
        print_json(dataclasses.asdict(found) | ({"encoder": dataclasses.asdict(words)} if words is not None else {}))
        return
    users = "not known; a person with several utterances is protected less than ε says"
    if found.train_users:
        users = f"{found.train_users:,} in train, at most {found.most_of_a_user:,} of its utterances each"
    lines = [
        f"{found.name}: {TASKS[found.task]} to learn; {found.utterances:,} utterances ({found.distinct:,} distinct), "
        f"{found.intents} intents, {found.slot_types} slot types; "
        f"split {found.train:,} : {found.valid:,} : {found.test:,}",
        f"labels: {LabelCounts(**found.label_counts).words()}",
        f"users: {users}",
    ]
    if found.near_copies:
        lines.append(near_words(found.near_copies, users=bool(found.train_users)))
    if found.contradictions:
        count = f"contradictions: {found.contradictions:,} utterances occur with different intents or tags"
        lines.append(f"{count}, the first in {found.contradiction}")
    if found.unread:
        lines.append(f"not read: {', '.join(found.unread)}")
    if found.schema_unread:
        lines.append(f"not read of the schema: {', '.join(found.schema_unread)}")
    if found.schema_text:
        lines.append(f"schema: {TextOverlap(**found.schema_text).words()}")
    if words is not None:
        lines.append(words.line())
    for line in lines:
        print_line(out, line)


def _readable(spec: CorpusSpec, encoder: str) -> Readable | None:
    """Return how much of a corpus an encoder can read; None if the encoder is not available.

    Raises:
        UserError: if it cannot read most of it.
    """
    with busy("loading PyTorch"):
        from trainables.features.pretrained import pretrained_pieces
        from trainables.features.word_pieces import readable

    pieces = pretrained_pieces(encoder)
    if pieces is None:
        return None
    counts = readable(corpora.load_corpus(spec).utterances, pieces)
    counts.check()
    return counts


@data_command.command("schema")
def write_schema(
    corpus: Corpus,
    format: Format = "auto",
    column: Column = None,
    path: Annotated[
        Path, typer.Option("--output", help="file to write, which must not exist, or - to print", **FILE)
    ] = Path("schema.yaml"),
) -> None:
    """Write the labels of a corpus as a schema file, which a person must review before corpus.schema names it."""
    spec = _spec(corpus, format, column)
    if not is_printed(path) and path.exists():
        raise UserError(f"--output = {str(path)!r}: it exists, and may have been reviewed; allowed: a new file")
    check_private(spec)
    write_skeleton(corpora.load_corpus(spec), spec.name, path)
    if not is_printed(path):
        print_line(out, f"wrote {path}: review it, then set corpus.schema={path}")


def write_skeleton(splits: corpora.Splits, name: str, path: Path) -> None:
    """Write the labels of a corpus as a schema file, and say which of them stand in few utterances.

    Raises:
        UserError: for labels that leave nothing to learn, or too many.
    """
    labels = labels_of(splits)
    _ = labels.task
    with output(path) as file:
        file.write(skeleton(labels, name))
    few = sorted(label for label, count in utterances_of_labels(splits.utterances).items() if count < FEW)
    if few:
        print_line(err, f"in fewer than {FEW} utterances: {', '.join(few)}")


@data_command.command()
def text(
    schema: Annotated[
        str,
        typer.Argument(
            help=f"schema with samples: a file, folder or zip (docs/corpora.md#schemas), or one of {', '.join(SCHEMAS)}"
        ),
    ],
    utterances: Annotated[
        int | None, typer.Option(min=1, help="most utterances to make; by default all variants of the samples")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of the values, and of words before and after a sample")] = 0,
    path: Annotated[
        Path | None,
        typer.Option("--output", help="file to write as JSON lines, which must not exist, or - to print", **FILE),
    ] = None,
) -> None:
    """Show the public text that is made from a schema's samples, or write it as JSON lines of tokens, tags and intent.

    The text is public only if its samples and values are: those that were copied from users' utterances, or edited
    after a look at private ones, are private data.
    """
    if path is not None and not is_printed(path) and path.exists():
        raise UserError(f"--output = {str(path)!r}: it exists; allowed: a new file")
    found, unread = find_schema(schema, f"schema = {schema}")
    made = make_text(found.text, most=utterances or UTTERANCES, seed=seed)
    if not made:
        raise UserError(f"schema = {schema}: it has no samples to make text of; allowed: one with samples")
    if path is not None:
        with output(path) as file:
            file.writelines(map(_json_line, made))
        if is_printed(path):
            return
    intents = Counter(one.intent for one in made if one.intent)
    slots = {tag[2:] for one in made for tag in one.tags if tag != "O"}
    lacking = {
        "intents": [name for name in found.names.intents if not intents[name]],
        "slots": [name for name in found.names.slots if name not in slots],
    }
    by_intent = f", {min(intents.values()):,} to {max(intents.values()):,} an intent" if intents else ""
    counts = f"{found.text.count:,} samples, {found.text.distinct_values:,} values, {len(made):,} utterances"
    print_line(out, counts + by_intent)
    for kind, names in lacking.items():
        if names:
            print_line(out, f"{kind} without text: {', '.join(names)}")
    if unread:
        print_line(out, f"not read: {', '.join(unread)}")
    for one in random.Random(seed).sample(made, min(len(made), _SHOWN)):
        print_line(out, f"  {one.intent + ': ' if one.intent else ''}{marked(one)}")
    if path is not None:
        print_line(out, f"wrote {len(made):,} utterances to {path}")


def _spec(
    corpus: str, format: str, column: list[str] | None, schema: str | None = None, quoting: str = "auto"
) -> CorpusSpec:
    """Return the spec of the corpus that a user names on the command line."""
    try:
        here = as_path(corpus).exists()
    except UserError as error:
        raise UserError(f"corpus = {error}") from None
    known = (*corpora.PUBLIC, *corpora.GENERATED)
    if not here and corpus not in known:
        raise UserError(f"corpus = {corpus!r}: no such corpus, file or folder; {suggestion(corpus, known)}")
    name = re.sub(r"\W+", "-", Path(corpus).stem, flags=re.ASCII).strip("-_")[:100] or "corpus"
    about: dict[str, Any] = {"name": name, "path": corpus, "format": format} if here else {"name": corpus}
    if quoting != "auto":
        about["quoting"] = quoting
    if column:
        about["columns"] = dict(_kind_and_name(one) for one in column)
    try:
        return CorpusSpec.model_validate(about | {"schema": schema})
    except ValidationError as error:
        raise UserError(one_line(error)) from None


def _kind_and_name(column: str) -> tuple[str, str]:
    """Return the two parts of a `--column`."""
    kind, equals, name = column.partition("=")
    if not equals or kind not in ColumnsSpec.model_fields or not name:
        raise UserError(
            f"--column = {column!r}: allowed: {', '.join(f'{kind}=NAME' for kind in ColumnsSpec.model_fields)}"
        )
    return kind, name
