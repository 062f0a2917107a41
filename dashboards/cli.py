"""`edp-sweep` as it is installed: the commands of `sweeps`, and `ui` and `report`, which need the dashboards.

Those two are registered here, because imports point one way: from `dashboards` to `sweeps`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.commands.app import CHOOSING, app, main
from sweeps.commands.console import busy, out
from sweeps.commands.options import FILE, PATH, RUNS, Name, Storage, TrackingUri, named
from sweeps.text.paths import is_printed
from sweeps.text.terminal import print_line

__all__ = ["app", "main"]


@app.command(rich_help_panel=CHOOSING)
def ui(
    name: Name = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="port of the page; by default 8050, or a free one if it is taken"),
    ] = None,
    host: Annotated[str, typer.Option(help="address that the page listens on")] = "127.0.0.1",
    password_file: Annotated[
        Path | None,
        typer.Option(
            help="file with the page's password in its first line; by default a new one if other machines reach --host",
            **PATH,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
) -> None:
    """Serve the Pareto page, where a configuration is picked, and the MLflow UI; also while the sweep runs."""
    with busy("loading the page"):
        from dashboards.serve import serve

    serve(
        named(storage, name),
        output=Path("picked.yaml").resolve(),
        host=host,
        password_file=password_file,
        port=port,
        tracking_uri=tracking_uri,
        browser=browser,
    )


@app.command(rich_help_panel=CHOOSING)
def report(
    name: Name = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="file to write; - prints it", **FILE),
    ] = Path("report.html"),
    verify: Annotated[
        bool,
        typer.Option("--verify", help="also measure clip and noise of the chosen configuration, which takes minutes"),
    ] = False,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
) -> None:
    """Write a report for a privacy review: question, data, front, choice, guarantees, attacks and costs."""
    with busy("loading the report's libraries"):
        from dashboards.report.page import write_report
        from sweeps.commands.verify import verify_with_bar

    sweep = named(storage, name)
    if verify:  # it shows a progress bar of its own
        chosen = write_report(sweep, output, tracking_uri, verify_with_bar)
    else:
        with busy(f"writing the report on {sweep.name}"):
            chosen = write_report(sweep, output, tracking_uri)
    if not is_printed(output):
        print_line(out, f"wrote {output}, about trial {chosen.name}")


if __name__ == "__main__":
    main()
