"""`edp-sweep ui` and `report`. The table of commands (`sweeps.commands.app`) names this module, and imports it late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edp.spec import UserError
from sweeps.commands.console import busy, err, out
from sweeps.commands.options import FILE, RUNS, Name, Storage, TrackingUri, named
from sweeps.text.paths import is_printed
from sweeps.text.terminal import print_line
from trainables.config import TrialSpec
from trainables.records.job import TrialError


def ui_command(
    name: Name = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="port of the page; by default 8050, or a free one if it is taken"),
    ] = None,
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
) -> None:
    """Serve the Pareto page, Optuna's and MLflow's; also while the sweep runs."""
    with busy("loading the page"):
        from dashboards.serve import serve

    serve(
        named(storage, name),
        output=Path("picked.yaml").resolve(),
        port=port,
        tracking_uri=tracking_uri,
        browser=browser,
        out=out,
        err=err,
    )


def report_command(
    name: Name = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="file to write; - prints it", **FILE),
    ] = Path("report.html"),
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="measure clip and noise of the model's configuration; by default if it takes less than a minute",
        ),
    ] = None,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
) -> None:
    """Write a report for a privacy review: data, front, choice, guarantees, attacks."""
    with busy("loading the report's libraries"):
        from dashboards.report.page import write_report
        from sweeps.engine.jobs.verify import MINUTE, verify_with_bar

    sweep = named(storage, name)
    with busy(f"writing the report on {sweep.name}") as quiet:

        def measured(spec: TrialSpec) -> dict[str, Any] | None:
            quiet()  # it shows a progress bar of its own
            try:
                return verify_with_bar(spec, err, None if verify else MINUTE)
            except (UserError, TrialError) as error:
                if verify:
                    raise
                print_line(err, f"clip and noise were not measured: {error}")
                return None

        asked = None if verify is False else measured
        chosen = write_report(sweep, output, tracking_uri, asked, anew=bool(verify))
    if not is_printed(output):
        final = chosen.folder.name.startswith("train-")
        about = f"{chosen.folder.name}, a final training of" if final else ""
        print_line(out, f"wrote {output}, about {about}{' ' if final else ''}trial {chosen.name}")
