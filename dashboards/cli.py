"""`edp-sweep` as it is installed: the command line of `sweeps`, with the commands that show something to look at.

They are registered here, rather than there, so that imports go on pointing one way: dashboards -> sweeps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.commands.app import app, main
from sweeps.commands.console import busy, out
from sweeps.commands.options import FILE, PATH, RUNS, Name, Storage, TrackingUri, named
from sweeps.text.paths import is_printed
from sweeps.text.terminal import print_line

__all__ = ["app", "main"]


@app.command()
def ui(
    name: Name = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="of the page; by default 8050, or a free one")
    ] = None,
    host: Annotated[str, typer.Option(help="address that the page listens on")] = "127.0.0.1",
    password_file: Annotated[
        Path | None,
        typer.Option(
            help="its first line is the page's password; without it, a --host that others reach gets a new one",
            **PATH,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
) -> None:
    """The Pareto page, where a configuration is picked, and the MLflow UI; also while the sweep runs."""
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


@app.command()
def report(
    name: Name = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="where to write it; - prints it", **FILE),
    ] = Path("report.html"),
    verify: Annotated[
        bool, typer.Option("--verify", help="measure clip and noise of the chosen configuration too, in minutes")
    ] = False,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
) -> None:
    """One file for a privacy review: question, data, front, choice, guarantees, attacks, costs. It prints well."""
    with busy("loading what draws the report"):
        from dashboards.report.page import write_report
        from sweeps.commands.verify import verify_with_bar

    sweep = named(storage, name)
    if verify:  # which has a bar of its own
        chosen = write_report(sweep, output, tracking_uri, verify_with_bar)
    else:
        with busy(f"writing the report on {sweep.name}"):
            chosen = write_report(sweep, output, tracking_uri)
    if not is_printed(output):
        print_line(out, f"wrote {output}, about trial {chosen.name}")


if __name__ == "__main__":
    main()
