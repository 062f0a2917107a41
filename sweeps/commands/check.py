"""`edp-sweep check`: a gate for pipelines, which fails if a model is over a limit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edp.spec import UserError
from sweeps.commands.console import busy, complain, out, print_json
from sweeps.commands.options import RUNS, Json, Storage, TrackingUri, named
from sweeps.commands.options import Point as PointName
from sweeps.results.headline import released_in_place_of
from sweeps.results.snapshot import Snapshot
from sweeps.store.storage import chosen_tracking_uri
from sweeps.text.figures import FIGURES
from sweeps.text.paths import short
from sweeps.text.terminal import print_line
from trainables.records.pareto import SelectionFigures

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


def check_command(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME|MODEL", help="a sweep, or a registered model, such as voice or voice@champion"),
    ],
    point: PointName = None,
    max_epsilon: Annotated[float | None, typer.Option(min=0, help="largest honest ε that is allowed")] = None,
    max_ser: Annotated[float | None, typer.Option(min=0, help="largest SER that is allowed, such as 0.1")] = None,
    max_mia_auc: Annotated[float | None, typer.Option(min=0, help="largest MIA AUC that is allowed, 0 to 1")] = None,
    max_mia_tpr: Annotated[
        float | None, typer.Option(min=0, help="largest MIA TPR at 1 % FPR that is allowed, such as 0.02")
    ] = None,
    max_noise_factor: Annotated[
        float | None,
        typer.Option(
            min=0, help="largest noise over the ledger's that the training's own audit may leave open, such as 1.05"
        ),
    ] = None,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Compare a model with limits; exit code 1 if it is over one.

    Of a sweep, it is the named point, or the recommended one. SER and MIA are of the validation split, if the model has
    figures of it, else of the test split. A figure that is unknown is over its limit.
    """
    given = {
        "epsilon": max_epsilon,
        "ser": max_ser,
        "mia_auc": max_mia_auc,
        "mia_tpr_at_1pct_fpr": max_mia_tpr,
        "noise_factor_at_most": max_noise_factor,
    }
    limits = {metric: most for metric, most in given.items() if most is not None}
    if not limits:
        raise UserError(
            "no limit is given; allowed: one or more of --max-epsilon, --max-ser, --max-mia-auc, --max-mia-tpr, "
            "--max-noise-factor"
        )
    what, figures = (
        _of_sweep(storage, name, point) if _is_sweep(storage, name) else _of_model(storage, name, tracking_uri)
    )
    over = [metric for metric, most in limits.items() if not figures.get(metric, math.inf) <= most]
    if as_json:
        shown = dict.fromkeys(limits) | {metric: figures[metric] for metric in limits if metric in figures}
        print_json({"model": what, "passed": not over, "limits": limits, "figures": shown, "over": over})
    else:
        for metric in limits if not over else ():
            print_line(out, f"{what}: {_compared(metric, figures, 'at most', limits)}")
    if over:
        lines = [_compared(metric, figures, "over", limits) for metric in over]
        complain(f"{what}: {'; '.join(lines)}")
        raise typer.Exit(1)


def _compared(metric: str, figures: SelectionFigures, how: str, limits: dict[str, float]) -> str:
    figure = FIGURES[metric]
    known = figure.text(figures[metric], sentence=True) if metric in figures else "unknown"
    return f"{figure.name} {known}, {how} {figure.text(limits[metric], sentence=True)}"


def _is_sweep(storage: Path, name: str) -> bool:
    return not name.startswith("models:/") and (storage / name / "sweep.json").is_file()


def _of_sweep(storage: Path, name: str, point: str | None) -> tuple[str, SelectionFigures]:
    """Return a point of a sweep in words, and its figures."""
    sweep = Snapshot(named(storage, name))
    chosen = sweep.choose()[0] if point is None else sweep.named(point)
    found = released_in_place_of(sweep, chosen)
    again = None if found == sweep.release else sweep.again.get(found.name)  # means on the proxy corpus
    return f"trial {found.name} of {name}", SelectionFigures(found.metrics, again)


def _of_model(storage: Path, name: str, tracking_uri: str | None) -> tuple[str, SelectionFigures]:
    """Return a registered version in words, and the figures in its tags."""
    _, version = registered_version(storage, name, tracking_uri)
    return f"{version.name}, version {version.version}", SelectionFigures(_numbers(version.tags))


def registered_version(storage: Path, name: str, tracking_uri: str | None) -> tuple[MlflowClient, ModelVersion]:
    """Return a version of a registered model, and the client of its store.

    Args:
        name: `NAME`, which is its champion or, without one, its newest version; `NAME@ALIAS`; or `NAME/VERSION`.

    Raises:
        UserError: for no such model.
    """
    with busy("loading MLflow"):
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        from sweeps.tracking.store import check_store

    client = MlflowClient(check_store(chosen_tracking_uri(tracking_uri, storage)))
    model, _, alias = name.removeprefix("models:/").partition("@")
    model, _, number = model.partition("/")
    try:
        if number:
            version = client.get_model_version(model, number)
        else:
            aliases = client.get_registered_model(model).aliases
            wanted = alias or ("champion" if "champion" in aliases else "")
            newest = list(client.search_model_versions(f"name = '{model}'", 1, order_by=["version_number DESC"]))
            version = client.get_model_version_by_alias(model, wanted) if wanted else newest[0]
    except (MlflowException, IndexError):
        raise UserError(
            f"name = {short(name)}: there is no sweep in {storage} and no registered model of this name; allowed: the "
            "name of one, with @ALIAS or /VERSION for a version of a model"
        ) from None
    return client, version


def _numbers(tags: dict[str, Any]) -> dict[str, float]:
    """Return the tags that are numbers."""
    found = {}
    for name, value in tags.items():
        try:
            found[name] = float(str(value).replace("∞", "inf"))
        except ValueError:
            continue
    return found
