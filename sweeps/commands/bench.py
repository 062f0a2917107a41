"""`edp-sweep bench`: measure what private training costs on this machine."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from edp.spec import UserError
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import PATH, Json
from sweeps.text.paths import check_page
from sweeps.text.terminal import print_line

bench = typer.Typer(no_args_is_help=True, help="Benchmarks: what private training costs on this machine.")

Sizes = Annotated[
    list[str] | None, typer.Option("--model-size", metavar="KEY=N", help="not the paper's sizes: hidden_size=12, …")
]


@bench.command()
def step(
    models: Annotated[str, typer.Option(help="clc, bert")] = "clc,bert",
    methods: Annotated[str | None, typer.Option(help="comma-separated; sgd, edp, edp:noise=paper, dpsgd, …")] = None,
    batch_sizes: Annotated[str, typer.Option(help="utterances a step, all workers together")] = "32,256",
    workers: Annotated[str, typer.Option(help="processes; one micro-batch each")] = "1,2",
    device: Annotated[str, typer.Option(help="cpu, cuda")] = "cpu",
    corpus: Annotated[str, typer.Option(help="atis, snips, nlu_eval, or a generated one")] = "communication",
    utterances: Annotated[int, typer.Option(min=200, max=1_000_000, help="how many to generate")] = 5000,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="turns of each method")] = 9,
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="training steps a turn")] = 2,
    model_size: Sizes = None,
    plot: Annotated[Path | None, typer.Option(help="also write a Plotly figure, as an HTML file", **PATH)] = None,
    as_json: Json = False,
) -> None:
    """Time of a training step of each method, as a ratio to plain SGD's; without Ray."""
    from sweeps.bench import machine
    from sweeps.bench import methods as known
    from sweeps.bench.step import Cell, Row, measure
    from sweeps.bench.tables import plot_rows, print_rows

    wanted = known.checked((methods or known.DEFAULT).split(","))
    cells = [
        Cell(model, batch, count, where)
        for where in _among(device, "--device", ("cpu", "cuda"))
        for model in _among(models, "--models", known.MODELS)
        for batch in _numbers(batch_sizes, "--batch-sizes")
        for count in _numbers(workers, "--workers")
    ]
    check_page(plot)
    _check(cells, "--batch-sizes")
    sizes = _sizes(model_size)
    about: dict[str, Any] = {"name": corpus}
    if corpus not in ("atis", "snips", "nlu_eval"):
        about["utterances"] = utterances
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, err.status("starting") as status:
        for done, cell in enumerate(cells):

            def say(line: str, done: int = done) -> None:
                status.update(f"cell {done + 1} of {len(cells)}: {line} of {rounds} rounds")

            spec = known.bench_spec(cell.model, about, batch_size=cell.batch_size, workers=cell.workers, **sizes)
            status.update(f"cell {done + 1} of {len(cells)}: encoding {corpus} for {cell.model}")
            data = known.encoded(spec, Path(folder) / cell.model)
            _check_size("--batch-sizes", cell, corpus, data.size("train"))
            rows += measure(cell, wanted, spec, data.folder, rounds=rounds, steps=steps, notes=_note, say=say)
    document = {
        "date": f"{date.today()}",
        "machine": machine.machine(),
        "versions": machine.versions(),
        "clock": {"cpu": "process CPU time, all workers", "cuda": "wall time"},
        "corpus": about,
        "rounds": rounds,
        "steps": steps,
        "rows": [asdict(row) for row in rows],
    }
    if plot is not None:
        plot_rows(rows, plot)
    if as_json:
        print_json(document)
    else:
        print_rows(rows, out)
        print_line(out, machine.one_line())


@bench.command()
def table2(
    models: Annotated[str, typer.Option(help="clc, bert")] = "clc,bert",
    corpora: Annotated[str, typer.Option(help="of the paper's six")] = "atis,snips,nlu_eval,health,communication,video",
    utterances: Annotated[int, typer.Option(min=200, max=1_000_000, help="how many of each generated corpus")] = 20_000,
    batch_size: Annotated[int, typer.Option(min=1, max=1_000_000, help="utterances a step, all workers together")] = 64,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="processes; one micro-batch each")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="turns of each method")] = 7,
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="training steps a turn")] = 2,
    model_size: Sizes = None,
    as_json: Json = False,
) -> None:
    """The paper's Table 2 on the corpora at hand: time an epoch over SGD's, beside the paper's figures."""
    from sweeps.bench import machine
    from sweeps.bench import methods as known
    from sweeps.bench import tables as table
    from sweeps.bench.step import Cell, measure

    names = _among(corpora, "--corpora", table.PUBLIC + table.GENERATED)
    cells = [
        (name, Cell(model, batch_size, workers, _among(device, "--device", ("cpu", "cuda"))[0]))
        for model in _among(models, "--models", known.MODELS)
        for name in names
    ]
    _check([cell for _, cell in cells], "--batch-size")
    sizes = _sizes(model_size)
    lines = []
    with tempfile.TemporaryDirectory() as folder, err.status("starting") as status:
        for done, (name, cell) in enumerate(cells):
            here = f"cell {done + 1} of {len(cells)}: {name}, {cell.model}"

            def say(line: str, here: str = here) -> None:
                status.update(f"{here}: round {line.rpartition(' ')[2]} of {rounds}")

            status.update(f"{here}: encoding")
            about: dict[str, Any] = {"name": name} | ({} if name in table.PUBLIC else {"utterances": utterances})
            spec = known.bench_spec(cell.model, about, batch_size=batch_size, workers=workers, **sizes)
            data = known.encoded(spec, Path(folder) / f"{name}-{cell.model}")
            _check_size("--batch-size", cell, name, data.size("train"))
            rows = measure(
                cell, table.METHODS, spec, data.folder, rounds=rounds, steps=steps, notes=lambda _: None, say=say
            )
            lines.append(table.line(name, data.size("train"), rows))
    if as_json:
        print_json(
            {
                "date": f"{date.today()}",
                "machine": machine.machine(),
                "versions": machine.versions(),
                "clock": "process CPU time, all workers" if device == "cpu" else "wall time",
                "batch_size": batch_size,
                "workers": workers,
                "device": device,
                "rounds": rounds,
                "steps": steps,
                "rows": [asdict(line) for line in lines],
            }
        )
    else:
        table.print_table2(lines, out)
        print_line(out, machine.one_line())


def _note(method: str) -> str | None:
    from sweeps.bench.peers import WITHOUT_CRF

    return WITHOUT_CRF if method.startswith("opacus") else None


def _among(text: str, option: str, allowed: tuple[str, ...]) -> list[str]:
    for word in text.split(","):
        if word not in allowed:
            raise UserError(f"{option} = {word!r}: allowed: {', '.join(allowed)}, comma-separated")
    return text.split(",")


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise UserError(f"{option} = {text!r}: allowed: whole numbers from 1, comma-separated")
    return numbers


def _sizes(settings: list[str] | None) -> dict[str, int]:
    sizes = {}
    for setting in settings or []:
        key, _, value = setting.partition("=")
        if not value.isdecimal() or int(value) < 1:
            raise UserError(f"--model-size = {setting!r}: allowed: KEY=N, such as hidden_size=12")
        sizes[key] = int(value)
    return sizes


def _check_size(option: str, cell: Any, corpus: str, examples: int) -> None:
    if examples < cell.batch_size:
        raise UserError(
            f"{option} = {cell.batch_size}: {corpus} has {examples} utterances to train on; allowed: at most that many"
        )


def _check(cells: list[Any], option: str) -> None:
    import torch

    for cell in cells:
        if cell.batch_size % cell.workers:
            raise UserError(
                f"{option} = {cell.batch_size}: allowed: multiples of --workers = {cell.workers}, "
                "since each worker has one micro-batch"
            )
        if cell.device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device = 'cuda': there is no CUDA device here; allowed: cpu")
