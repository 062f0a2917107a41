"""`edp-sweep bench`: measure what private training costs on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edp.spec import UserError
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import PATH, Json
from sweeps.text.paths import check_page
from sweeps.text.terminal import print_line

if TYPE_CHECKING:
    from sweeps.bench.step import Cell, Row
    from sweeps.bench.tables import Line

bench = typer.Typer(no_args_is_help=True, help="Benchmarks: what private training costs on this machine.")

Models = Annotated[str, typer.Option(help="comma-separated; clc, bert")]
Steps = Annotated[int, typer.Option(min=1, max=10_000, help="number of training steps of a method in each round")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--model-size", metavar="KEY=N", help="a size other than the paper's, such as hidden_size=12"),
]


@bench.command()
def step(
    models: Models = "clc,bert",
    methods: Annotated[
        str | None, typer.Option(help="comma-separated; sgd, edp, edp:noise=paper, dpsgd, …; by default all")
    ] = None,
    batch_sizes: Annotated[str, typer.Option(help="comma-separated; utterances a step, of all workers")] = "32,256",
    workers: Annotated[
        str, typer.Option(help="comma-separated; number of processes, each with one micro-batch")
    ] = "1,2",
    device: Annotated[str, typer.Option(help="comma-separated; cpu, cuda")] = "cpu",
    corpus: Annotated[str, typer.Option(help="atis, snips, nlu_eval, or a generated one")] = "communication",
    utterances: Annotated[int, typer.Option(min=200, max=1_000_000, help="size of a generated corpus")] = 5000,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="number of times that each method is measured")] = 9,
    steps: Steps = 2,
    model_size: Sizes = None,
    plot: Annotated[Path | None, typer.Option(help="also write a Plotly figure, as an HTML file", **PATH)] = None,
    as_json: Json = False,
) -> None:
    """Measure the time of a training step of each method, as a ratio to plain SGD's. Ray is not used."""
    from sweeps.bench import methods as known
    from sweeps.bench.machine import one_line
    from sweeps.bench.step import Cell
    from sweeps.bench.tables import PUBLIC, plot_rows, print_rows

    wanted = known.checked((methods or known.DEFAULT).split(","))
    cells = [
        (corpus, Cell(model, batch, count, where))
        for where in _among(device, "--device", ("cpu", "cuda"))
        for model in _among(models, "--models", known.MODELS)
        for batch in _numbers(batch_sizes, "--batch-sizes")
        for count in _numbers(workers, "--workers")
    ]
    check_page(plot)
    sizes = _sizes(model_size)
    rows = [
        row
        for _, _, found in _measured(cells, wanted, "--batch-sizes", utterances, rounds, steps, sizes)
        for row in found
    ]
    if plot is not None:
        plot_rows(rows, plot)
    if as_json:
        about = {"name": corpus} if corpus in PUBLIC else {"name": corpus, "utterances": utterances}
        clock = {"cpu": "process CPU time, all workers", "cuda": "wall time"}
        print_json(_document(rows, clock=clock, corpus=about, rounds=rounds, steps=steps))
    else:
        print_rows(rows, out)
        print_line(out, one_line())


@bench.command()
def table2(
    models: Models = "clc,bert",
    corpora: Annotated[
        str, typer.Option(help="comma-separated; of the paper's six")
    ] = "atis,snips,nlu_eval,health,communication,video",
    utterances: Annotated[int, typer.Option(min=200, max=1_000_000, help="size of each generated corpus")] = 20_000,
    batch_size: Annotated[int, typer.Option(min=1, max=1_000_000, help="utterances a step, of all workers")] = 64,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="number of processes, each with one micro-batch")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="number of times that each method is measured")] = 7,
    steps: Steps = 2,
    model_size: Sizes = None,
    as_json: Json = False,
) -> None:
    """Measure the paper's Table 2: the time of an epoch as a ratio to plain SGD's, beside the paper's figures."""
    from sweeps.bench import methods as known
    from sweeps.bench import tables as table
    from sweeps.bench.machine import one_line
    from sweeps.bench.step import Cell

    names = _among(corpora, "--corpora", table.PUBLIC + table.GENERATED)
    cells = [
        (name, Cell(model, batch_size, workers, _among(device, "--device", ("cpu", "cuda"))[0]))
        for model in _among(models, "--models", known.MODELS)
        for name in names
    ]
    sizes = _sizes(model_size)
    measured = _measured(cells, table.METHODS, "--batch-size", utterances, rounds, steps, sizes)
    lines = [table.line(name, examples, rows) for name, examples, rows in measured]
    if as_json:
        clock = "process CPU time, all workers" if device == "cpu" else "wall time"
        settings = {"batch_size": batch_size, "workers": workers, "device": device, "rounds": rounds, "steps": steps}
        print_json(_document(lines, clock=clock, **settings))
    else:
        table.print_table2(lines, out)
        print_line(out, one_line())


def _measured(
    cells: list[tuple[str, Cell]],
    methods: list[str],
    option: str,
    utterances: int,
    rounds: int,
    steps: int,
    sizes: dict[str, int],
) -> Iterator[tuple[str, int, list[Row]]]:
    """Measure each cell on its corpus, and show the progress.

    Args:
        option: the option that gives the batch size, for messages.
        utterances: size of a generated corpus.

    Yields:
        The corpus' name, the number of its training utterances, and the rows of the cell.
    """
    import torch

    from sweeps.bench.methods import bench_spec, encoded
    from sweeps.bench.step import measure
    from sweeps.bench.tables import PUBLIC

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
            spec = bench_spec(cell.model, about, batch_size=cell.batch_size, workers=cell.workers, **sizes)
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


def _document(rows: Sequence[Row | Line], **settings: Any) -> dict[str, Any]:
    """Return what `--json` prints: the machine, the settings and the rows."""
    from sweeps.bench import machine

    about = {"date": f"{date.today()}", "machine": machine.machine(), "versions": machine.versions()}
    return {**about, **settings, "rows": [asdict(row) for row in rows]}


def _note(method: str) -> str | None:
    """Return a remark on a method's row."""
    from sweeps.bench.peers import WITHOUT_CRF

    return WITHOUT_CRF if method.startswith("opacus") else None


def _among(text: str, option: str, allowed: tuple[str, ...]) -> list[str]:
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


def _sizes(settings: list[str] | None) -> dict[str, int]:
    """Parse the values of `--model-size`."""
    sizes = {}
    for setting in settings or []:
        key, _, value = setting.partition("=")
        if not value.isdecimal() or int(value) < 1:
            raise UserError(f"--model-size = {setting!r}: allowed: KEY=N, such as hidden_size=12")
        sizes[key] = int(value)
    return sizes
