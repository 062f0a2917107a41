"""The time of a training step of each method, as a ratio to plain SGD's. Ray is not used. By hand:

    python -m tests.benchmarks.step --models clc,bert --batch-sizes 32,256 --workers 1,2

Prints one JSON document: the machine, the settings, and a row for each method in each cell.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from edp.spec import UserError
from sweeps.commands.app import main
from sweeps.commands.console import err, print_json
from tests.benchmarks.machine import machine, versions
from tests.benchmarks.methods import DEFAULT, MODELS, bench_spec, checked, encoded
from tests.benchmarks.peers import WITHOUT_CRF
from tests.benchmarks.timing import Cell, Row, measure

PUBLIC = ("atis", "snips", "nlu_eval")
CLOCK = {"cpu": "process CPU time, all workers", "cuda": "wall time"}

Models = Annotated[str, typer.Option(help="comma-separated; clc, bert")]
Utterances = Annotated[int, typer.Option(min=200, max=1_000_000, help="size of a generated corpus")]
Rounds = Annotated[int, typer.Option(min=1, max=10_000, help="number of times that each method is measured")]
Steps = Annotated[int, typer.Option(min=1, max=10_000, help="number of training steps of a method in each round")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--model-size", metavar="KEY=N", help="a size other than the paper's, such as hidden_size=12"),
]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def step(
    models: Models = "clc,bert",
    methods: Annotated[str, typer.Option(help="comma-separated; sgd, edp, edp:noise=paper, dpsgd, …")] = DEFAULT,
    batch_sizes: Annotated[str, typer.Option(help="comma-separated; utterances a step, of all workers")] = "32,256",
    workers: Annotated[
        str, typer.Option(help="comma-separated; number of processes, each with one micro-batch")
    ] = "1,2",
    device: Annotated[str, typer.Option(help="comma-separated; cpu, cuda")] = "cpu",
    corpus: Annotated[str, typer.Option(help="atis, snips, nlu_eval, or a generated one")] = "communication",
    utterances: Utterances = 5000,
    rounds: Rounds = 9,
    steps: Steps = 2,
    model_size: Sizes = None,
) -> None:
    """Measure the time of a training step of each method, as a ratio to plain SGD's."""
    cells = [
        (corpus, Cell(model, batch, count, where))
        for where in among(device, "--device", ("cpu", "cuda"))
        for model in among(models, "--models", MODELS)
        for batch in _numbers(batch_sizes, "--batch-sizes")
        for count in _numbers(workers, "--workers")
    ]
    wanted, given = checked(methods.split(",")), sizes(model_size)
    measured = timed(cells, wanted, "--batch-sizes", utterances, rounds, steps, given)
    rows = [asdict(row) for _, _, found in measured for row in found]
    about = {"name": corpus} if corpus in PUBLIC else {"name": corpus, "utterances": utterances}
    print_json({**header(), "clock": CLOCK, "corpus": about, "rounds": rounds, "steps": steps, "rows": rows})


def timed(
    cells: list[tuple[str, Cell]],
    methods: list[str],
    option: str,
    utterances: int,
    rounds: int,
    steps: int,
    model_sizes: dict[str, int],
) -> Iterator[tuple[str, int, list[Row]]]:
    """Measure each cell on its corpus, and show the progress.

    Args:
        option: the option that gives the batch size, for messages.
        utterances: size of a generated corpus.

    Yields:
        The corpus' name, the number of its training utterances, and the rows of the cell.
    """
    for _, cell in cells:
        if cell.batch_size % cell.workers:
            raise UserError(
                f"{option} = {cell.batch_size}: allowed: multiples of --workers = {cell.workers}, "
                "since each worker has one micro-batch"
            )
        if cell.device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device = 'cuda': there is no CUDA device here; allowed: cpu")
    with tempfile.TemporaryDirectory() as folder, err.status("starting") as status:
        for place, (corpus, cell) in enumerate(cells, 1):
            here = f"cell {place} of {len(cells)}: {corpus}, {cell.model}"
            status.update(f"{here}: encoding")
            about: dict[str, Any] = {"name": corpus} | ({} if corpus in PUBLIC else {"utterances": utterances})
            spec = bench_spec(cell.model, about, batch_size=cell.batch_size, workers=cell.workers, **model_sizes)
            data = encoded(spec, Path(folder) / f"{corpus}-{cell.model}")
            examples = data.size("train")
            if examples < cell.batch_size:
                raise UserError(
                    f"{option} = {cell.batch_size}: {corpus} has {examples} utterances to train on; "
                    "allowed: at most that many"
                )

            def say(line: str, here: str = here) -> None:
                status.update(f"{here}: {line} of {rounds} rounds")

            rows = measure(cell, methods, spec, data.folder, rounds=rounds, steps=steps, notes=_note, say=say)
            yield corpus, examples, rows


def header() -> dict[str, Any]:
    """Return date, machine and versions, with which each document begins."""
    return {"date": f"{date.today()}", "machine": machine(), "versions": versions()}


def _note(method: str) -> str | None:
    """Return a remark on a method's row."""
    return WITHOUT_CRF if method.startswith("opacus") else None


def among(text: str, option: str, allowed: tuple[str, ...]) -> list[str]:
    """Return the words of a comma-separated option, all of them allowed."""
    for word in text.split(","):
        if word not in allowed:
            raise UserError(f"{option} = {word!r}: allowed: {', '.join(allowed)}, comma-separated")
    return text.split(",")


def _numbers(text: str, option: str) -> list[int]:
    """Return the positive whole numbers of a comma-separated option."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise UserError(f"{option} = {text!r}: allowed: whole numbers from 1, comma-separated")
    return numbers


def sizes(settings: list[str] | None) -> dict[str, int]:
    """Parse the values of `--model-size`."""
    found = {}
    for setting in settings or []:
        key, _, value = setting.partition("=")
        if not value.isdecimal() or int(value) < 1:
            raise UserError(f"--model-size = {setting!r}: allowed: KEY=N, such as hidden_size=12")
        found[key] = int(value)
    return found


if __name__ == "__main__":
    main(app)
