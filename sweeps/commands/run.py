"""`edp-sweep run`, `resume` and `stop`: a sweep, run to its front or, with a plan, to a released model."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edp.spec import UserError
from sweeps.commands.console import LIBRARIES, busy, err, out, print_json
from sweeps.commands.data import write_skeleton
from sweeps.commands.options import (
    FILE,
    PATH,
    RUNS,
    Json,
    Name,
    Set,
    Shared,
    Storage,
    TrackingUri,
    Trials,
    named,
    with_trials,
)
from sweeps.config.loading import load_recipe, read_yaml, recipe_names, recipe_text
from sweeps.config.recipe import Recipe
from sweeps.engine.progress import Progress
from sweeps.store.lock import STOP, is_free, is_held
from sweeps.store.storage import share_storage, train_line
from sweeps.text.figures import epsilon_digits
from sweeps.text.paths import folder_name, output
from sweeps.text.terminal import command_line, print_line
from trainables.corpora import Splits

if TYPE_CHECKING:
    from sweeps.results.snapshot import Snapshot
    from sweeps.store.sweep import Sweep


def run_command(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|CORPUS",
            help="a recipe, as the path of a YAML file or one of these names, or a file or folder of your utterances, "
            f"for which the recipe private is fitted: {', '.join(recipe_names())}",
            autocompletion=recipe_names,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            help="name of the sweep; by default the recipe's name and the time, with a plan the recipe's name alone, "
            "and with a corpus its name"
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(help="with a corpus: the reviewed file of its labels; without one it is written, for a review"),
    ] = None,
    labels_are_public: Annotated[
        bool, typer.Option("--labels-are-public", help="with a corpus: take its labels as they are, for public")
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="with a corpus: the ε of search and release; by default 8")
    ] = None,
    encoder: Annotated[
        Path | None, typer.Option(help="with a corpus: the folder of a public encoder; by default MiniLM", **PATH)
    ] = None,
    write_recipe: Annotated[
        Path | None,
        typer.Option(help="with a corpus: write the fitted recipe to this new file, to start from, and end", **FILE),
    ] = None,
    trials: Trials = None,
    settings: Set = None,
    earlier: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SWEEP",
            help="begin at the good points of an earlier sweep, which may be of another corpus; what they cost is said",
        ),
    ] = None,
    storage: Storage = RUNS,
    shared: Shared = False,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Run a sweep to its front, or make a private model of a file of utterances.

    With a plan, a sweep ends with a released model.
    """
    overrides = with_trials(settings, trials)
    own = {"schema": schema, "labels_are_public": labels_are_public, "epsilon": epsilon, "encoder": encoder}
    if write_recipe is not None and earlier is not None:
        raise UserError("--from: --write-recipe is given too, and runs nothing; allowed: one of them")
    if is_corpus(recipe):
        fitted = _fitted(recipe, overrides, own, name, write_recipe, storage, tracking_uri)
        if fitted is None:
            return
        recipe, overrides, name = fitted
    else:
        for option, value in {**own, "write_recipe": write_recipe}.items():
            if value is not None and value is not False:
                raise UserError(f"--{option.replace('_', '-')}: {recipe} is no corpus; allowed: --set KEY=VALUE")
    plan = load_recipe(recipe, overrides)[1].search.plan  # a wrong recipe is refused before the slow imports
    with busy(LIBRARIES):
        from sweeps.engine.jobs.release import run_proxy
        from sweeps.engine.jobs.search import start_sweep
        from sweeps.store.sweep import Sweep

    if shared:
        share_storage(storage)
    if earlier is not None:
        from sweeps.results.earlier import begun_from

        overrides = begun_from(storage, earlier, recipe, overrides)
        began = load_recipe(recipe, overrides)[1].search
        print_line(err, f"the search begins at {len(began.points_to_evaluate or ())} points of {began.points_from}")
    where: dict[str, Any] = {"name": name, "storage": storage, "tracking_uri": tracking_uri, "progress": Progress(err)}
    if plan is None:
        _show(start_sweep(recipe, overrides, **where), as_json)
        return
    found = run_proxy(recipe, overrides, **where)
    if as_json:
        print_json(found)
    else:
        _show(Sweep.existing(storage, found["sweep"]), as_json)


def is_corpus(text: str) -> bool:
    """Return True for a file or folder that is no recipe. A YAML file is one, unless it has the keys of a schema."""
    if text in recipe_names() or not os.path.exists(text):
        return False
    is_yaml = os.path.isfile(text) and text.endswith((".yaml", ".yml"))
    return not is_yaml or bool({"intents", "slots", "nlu"} & read_yaml(Path(text)).keys())


def _fitted(
    corpus: str,
    overrides: list[str],
    own: dict[str, Any],
    name: str | None,
    write_recipe: Path | None,
    storage: Path,
    tracking_uri: str | None,
) -> tuple[str, list[str], str] | None:
    """Return recipe, settings and sweep's name for a corpus; None if the recipe was only to be written."""
    if own["schema"] is not None and own["labels_are_public"]:
        raise UserError("--labels-are-public: --schema is given too; allowed: one of them")
    if write_recipe is not None and write_recipe.exists():
        raise UserError(f"--write-recipe = {str(write_recipe)!r}: it exists; allowed: a new file")
    with busy(LIBRARIES):
        from sweeps.config.own_corpus import PRIVATE, Unreviewed, settings_for

    try:
        with busy("reading the corpus"):
            chosen, recipe, units = settings_for(corpus, overrides, say=lambda line: print_line(err, line), **own)
    except Unreviewed as found:
        raise _unreviewed(corpus, found.splits, found.name) from None
    if write_recipe is not None:
        with output(write_recipe, "--write-recipe") as file:
            file.write(recipe_text(recipe))
        print_line(out, f"wrote {write_recipe}; run it with: {command_line('run', write_recipe, storage=storage)}")
        return None
    name = name or folder_name(recipe.corpus.name)
    if is_free(storage / name):
        with busy("reading the corpus' account"):
            _say_account(recipe, units, storage)
    return PRIVATE, chosen, name


def _unreviewed(corpus: str, splits: Splits, name: str) -> UserError:
    """Write the schema of a corpus, unless it is there, and return the error that says what to do with it."""
    path = Path(f"{name}.schema.yaml")
    there = path.exists()
    if not there:
        write_skeleton(splits, name, path)
    done = "is there, and stays as it is" if there else "was written"
    print_line(
        err,
        f"{path} {done}: the names of the labels of {corpus}. Every model shows them, and no ε covers them. Review it: "
        "remove each name that tells something about a person.",
    )
    line = shlex.join(["edp-sweep", *sys.argv[1:], "--schema", str(path)])
    return UserError(
        f"--schema: missing; after the review, type: {line}   (allowed, too, if all names are public: "
        "--labels-are-public)"
    )


def _say_account(recipe: Recipe, units: int, storage: Path) -> None:
    """Say the ε of all trainings on a corpus with a run of this recipe, if there were any in the storage folder."""
    from sweeps.config.spending import of_training, of_trials
    from sweeps.config.target_epsilon import at_target
    from sweeps.results.account import accounts

    if not storage.is_dir():
        return
    (account,) = accounts(storage, recipe.corpus)
    if account.rows or account.uncounted:
        if recipe.search.plan is not None:
            planned = [of_training(at_target(recipe, units), units)]
        else:
            planned = of_trials(recipe, units, recipe.search.trials) or []
        after = account.everything(recipe.edp.delta, planned)
        least = "" if planned and not account.uncounted else "at least "
        print_line(
            err,
            f"{recipe.corpus.name} was trained on before (edp-sweep account): with this run, ε of all trainings "
            f"together is {least}{epsilon_digits(after, 4)}",
        )


def resume_command(
    name: Name = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="run so many trials more, also of a sweep that has finished")
    ] = None,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Go on with a sweep that was stopped, and with the release that follows."""
    with busy(LIBRARIES):
        from sweeps.engine.jobs.release import release_chosen
        from sweeps.engine.jobs.search import resume_sweep
        from sweeps.store.plans import plan_of

    progress = Progress(err)
    sweep = resume_sweep(named(storage, name, with_end=False), progress, tracking_uri, more=trials or 0)
    if (plan := plan_of(sweep)) is not None:
        release_chosen(sweep, plan, tracking_uri, progress)
    _show(sweep, as_json)


def _show(sweep: Sweep, as_json: bool) -> None:
    from sweeps.commands.status import show_sweep  # with Optuna and SciPy, which have been imported by now

    found = show_sweep(sweep, as_json)
    if not as_json:
        print_line(out, next_steps(found))


_TAKEN_S = 30
"""Seconds in which a driver takes a request. It looks every second, and once more at its end."""


def stop_command(name: Name = None, storage: Storage = RUNS) -> None:
    """End a sweep after its running epochs, as Ctrl-C does; twice: at once."""
    sweep = named(storage, name, with_end=False)
    running = [folder for folder in (sweep.folder, storage / f"train-{sweep.name}-release") if is_held(folder)]
    if not running:
        raise UserError(f"name = {sweep.name!r} is not running; allowed: a sweep that runs")
    request, patience = running[-1] / STOP, time.monotonic() + _TAKEN_S
    request.touch()
    with busy("waiting for the sweep's driver"):  # so that a second request counts
        while request.exists() and is_held(request.parent) and time.monotonic() < patience:
            time.sleep(0.1)
    if request.exists():
        request.unlink(missing_ok=True)
        why = "its driver is gone"
        if is_held(request.parent):
            why = f"its driver has not taken the request in {_TAKEN_S} s: it runs in a thread of a program, or hangs"
        raise UserError(f"name = {sweep.name!r}: {why}; allowed: a sweep that runs in a process of its own")
    print_line(out, f"{sweep.name} stops as by Ctrl-C, at once if asked again; what was stopped says how to go on")


def next_steps(found: Snapshot) -> str:
    """Return the commands that may follow a sweep, each with its purpose."""
    sweep, storage, uri = found.sweep, found.sweep.folder.parent, found.record.tracking_uri
    best = "the recommended configuration"
    if found.plan is None and not found.recommended().point:
        best = "the best configuration; it has no guarantee"
    steps = [
        (sweep.command("ui"), "opens a page with the released model's guarantee and the trials"),
        (sweep.command("report"), "writes report.html, for a privacy review of the released model"),
        (
            sweep.command("pick", "--register", "voice"),
            "registers the released model as voice, to be served; it costs no more ε",
        ),
        (sweep.command("status"), "shows this again, with trials and costs"),
    ]
    if found.plan is None:
        train = train_line("picked.yaml", "--on", "train+valid", storage=storage, tracking_uri=uri)
        steps = [
            (sweep.command("pick"), f"writes {best} to picked.yaml; --max-ser and other options limit it"),
            (sweep.command("report"), "writes report.html, for a privacy review"),
            (sweep.command("confirm"), "trains the front again with new seeds, to tell configurations from luck"),
            (train, "trains the final model"),
            (command_line("status", sweep.name, storage=storage), "shows trials, front and the sweep's own ε"),
            (sweep.command("ui"), "opens a page to compare and pick configurations, and the MLflow UI"),
            (str(sweep.folder / "front.svg"), "is a picture of the front, for a browser"),
        ]
    return "\n".join(["", "What to do next:", *(f"  {command}\n      {what}" for command, what in steps)])
