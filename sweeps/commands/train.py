"""`edp-sweep train`: train one configuration as a trial does, and measure it; also for the final model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sweeps.commands.console import LIBRARIES, busy, err, out, print_json
from sweeps.commands.options import (
    PATH,
    RUNS,
    AliasOption,
    Json,
    Register,
    Set,
    Shared,
    Storage,
    TrackingUri,
    WithEncoder,
    registered_alias,
)
from sweeps.config.loading import load_config
from sweeps.engine.progress import Progress
from sweeps.store.storage import share_storage
from sweeps.text.figures import metrics_line
from sweeps.text.terminal import print_line


def train_command(
    config: Annotated[Path, typer.Argument(help="a configuration file, as `pick` writes it", **PATH)],
    settings: Set = None,
    on: Annotated[
        Literal["train", "train+valid"], typer.Option(help="splits to train on; train+valid is for the final model")
    ] = "train",
    model_name: Register = None,
    alias: AliasOption = None,
    with_encoder: WithEncoder = False,
    storage: Storage = RUNS,
    shared: Shared = False,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Train one configuration as a trial does, and measure it."""
    called = registered_alias(model_name, alias, with_encoder)
    spec = load_config(config, settings or [])  # so that a wrong configuration is refused before the slow imports
    with busy(LIBRARIES):
        from sweeps.engine.jobs.train import train

    if shared:
        share_storage(storage)
    progress = Progress(err)
    with progress.doing("reading the corpora"):
        result = train(
            config,
            settings or [],
            storage=storage,
            tracking_uri=tracking_uri,
            progress=progress,
            with_valid=on == "train+valid",
            model_name=model_name,
            with_encoder=with_encoder,
            alias=called,
        )
    if as_json:
        print_json(result)
        return
    figures = metrics_line(result["metrics"], spec.corpus)
    print_line(out, f"{figures}; the configuration was {result['choice']}")
    print_line(out, f"model and ledger in {result['output']}; MLflow run {result['run_id']}")
    if result["model"] is not None:
        print_line(out, f"registered as {result['model']['uri']}")
