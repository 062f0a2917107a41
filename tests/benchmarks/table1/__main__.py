"""The paper's Table 1, a row at a time.

python -m tests.benchmarks.table1 --row clc_atis --report
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from edp.spec import UserError
from sweeps.commands.app import main
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import RUNS, Storage
from sweeps.text.paths import check_output, output
from sweeps.text.secrets import redacted
from sweeps.text.terminal import print_line

COMMAND = "python -m tests.benchmarks.table1"
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def table1(
    row: Annotated[str | None, typer.Option(help="such as clc_atis; or --corpus and --model")] = None,
    corpus: Annotated[str | None, typer.Option(help="of the paper's six: ATIS, SNIPS, NLU-eval, Health, …")] = None,
    model: Annotated[str | None, typer.Option(help="CLC, BERT")] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=100_000,
            help="of each search; by default 6; of the paper's mechanism 2 with BERT, and on NLU-eval",
        ),
    ] = None,
    utterances: Annotated[int, typer.Option(min=200, max=1_000_000, help="of a generated corpus")] = 20_000,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="trainings of each private point")] = 3,
    part: Annotated[str, typer.Option(help="all; private; schema: private with its samples; mechanism")] = "all",
    epsilons: Annotated[str, typer.Option(help="of the private points, such as 3,1")] = "8,3,1",
    encoder: Annotated[str, typer.Option(help="model.pretrained of the private points")] = "minilm",
    report: Annotated[
        bool, typer.Option("--report", help="write table1.md and table1.svg of what was measured")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--output", help="folder of table1.json; by default the storage folder")
    ] = None,
    storage: Storage = RUNS,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow tracking store")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """The paper's Table 1: its points at the ε that they have, beside SGD, its mechanism and private recipes here."""
    from tests.benchmarks.table1.points import PARTS, Result, is_generated, merged, named_row, read_result
    from tests.benchmarks.table1.report import as_markdown, figure

    place = folder if folder is not None else storage
    if part != "all" and part not in PARTS:
        raise UserError(f"--part = {part!r}: allowed: all, {', '.join(PARTS)}")
    name = None if report and row is corpus is model is None else named_row(row, corpus, model)
    known = read_result(place / "table1.json")
    if name is None and known is None:
        raise UserError(
            f"--output = {str(place)!r}: no table1.json is there yet; allowed: a folder with a measured row"
        )
    known = known or Result([], [])
    if name is not None:
        from sweeps.engine.progress import Progress
        from tests.benchmarks.table1.row import Run, check, measure

        words = ["--row", name]
        words += ["--trials", str(trials)] if trials is not None else []
        words += ["--seeds", str(seeds)]
        words += ["--utterances", str(utterances)] if is_generated(name) else []
        words += ["--part", part] if part != "all" else []
        words += ["--epsilons", epsilons] if epsilons != "8,3,1" and part != "mechanism" else []
        words += ["--encoder", encoder] if encoder != "minilm" and part != "mechanism" else []
        command = f"{COMMAND} {shlex.join(words)}"
        words += ["--output", str(folder.resolve())] if folder is not None else []
        words += [option for option, given in (("--report", report), ("--json", as_json)) if given]
        words += ["--storage", str(storage.resolve())] if storage.resolve() != RUNS.resolve() else []
        words += ["--tracking-uri", redacted(tracking_uri)] if tracking_uri is not None else []
        again = f"{COMMAND} {shlex.join(words)}"
        parts = tuple(PARTS) if part == "all" else (part,)
        wanted = tuple(int(word) for word in epsilons.split(","))
        run = Run(name, trials, utterances, seeds, encoder, storage, tracking_uri, command, again, parts, wanted)
        check(run)
        place.mkdir(parents=True, exist_ok=True)
        check_output(place / "table1.json")
        for entries, about in measure(run, Progress(err)):
            # Read again: another row may have been measured at the same time.
            known = merged(read_result(place / "table1.json") or Result([], []), entries, about)
            with output(place / "table1.json") as file:
                file.write(json.dumps(known.document(), indent=1, allow_nan=False) + "\n")
    if report:
        for ending, text in (("md", as_markdown(known)), ("svg", figure(known))):
            with output(place / f"table1.{ending}") as file:
                file.write(text)
    if as_json:
        print_json(known.document())
    else:
        print_line(out, as_markdown(known))


if __name__ == "__main__":
    main(app)
