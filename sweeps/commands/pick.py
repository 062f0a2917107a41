"""`edp-sweep pick`: write one configuration of a sweep, the recommended one within limits or a named one."""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edp.spec import UserError
from sweeps.commands.console import ask_to_register, busy, err, load, out, print_json
from sweeps.commands.options import (
    FILE,
    RUNS,
    Alias,
    AliasOption,
    Json,
    Name,
    Register,
    Storage,
    TrackingUri,
    WithEncoder,
    name_and_point,
    named,
    registered_alias,
)
from sweeps.commands.options import Point as PointName
from sweeps.config.loading import as_yaml
from sweeps.store.storage import train_line
from sweeps.text.figures import (
    epsilon_text,
    epsilon_words,
    labels_field,
    labels_remark,
    metrics_line,
    params_text,
    users_remark,
)
from sweeps.text.paths import check_model_name, check_output, is_printed, output
from sweeps.text.terminal import print_line
from sweeps.tracking.run_tags import person

if TYPE_CHECKING:
    from sweeps.registry.register import Registered
    from sweeps.store.picks import Pick
    from sweeps.store.records import Point
    from sweeps.store.sweep import Sweep


def pick_command(
    name: Name = None,
    point: PointName = None,
    max_epsilon: Annotated[float | None, typer.Option(help="largest honest ε that is allowed")] = None,
    max_ser: Annotated[float | None, typer.Option(help="largest validation SER that is allowed, such as 0.2")] = None,
    max_mia_auc: Annotated[float | None, typer.Option(help="largest MIA AUC that is allowed, 0 to 1")] = None,
    require_guarantee: Annotated[
        bool,
        typer.Option(
            "--require-guarantee",
            help="refuse a point without a guarantee: with an ε above 10, or above the recipe's target",
        ),
    ] = False,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="file to write the configuration to; - prints it", **FILE),
    ] = Path("picked.yaml"),
    force: Annotated[bool, typer.Option("--force", help="replace FILE if it is there")] = False,
    model_name: Register = None,
    alias: AliasOption = None,
    with_encoder: WithEncoder = False,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Write one configuration, the recommended or a named one, as a file for `train`, and record who picked it."""
    printed = is_printed(output)
    if printed and as_json:
        raise UserError(f"--output = {str(output)!r}: --json prints there, too; allowed: a file")
    if max_mia_auc is not None and not 0 <= max_mia_auc <= 1:
        raise UserError(f"--max-mia-auc = {max_mia_auc:g}: allowed: 0 to 1, such as 0.6")
    called = registered_alias(model_name, alias, with_encoder)
    name, point = name_and_point(storage, name, point)
    limits = {"epsilon": max_epsilon, "ser": max_ser, "mia_auc": max_mia_auc}
    wanted = Wanted(output, model_name, called, with_encoder, force, require_guarantee, tracking_uri)
    load("sweeps.tracking.tracker")
    from sweeps.results.confirmed import new_seeds, seeds_words
    from sweeps.results.cost import choice_of
    from sweeps.store.plans import released

    sweep = named(storage, name)
    given = {k: v for k, v in limits.items() if v is not None}
    with busy("registering the model" if model_name else "writing the configuration") as quiet:
        picked, why, model = pick_point(sweep, given, wanted, point, functools.partial(ask_to_register, quiet=quiet))
    choice = choice_of(sweep, given)
    again = new_seeds(sweep, picked)
    if as_json:
        about = {
            "why": why,
            "new_seeds": again,
            "choice": choice,
            "output": str(output),
            "model": model.document() if model else None,
        }
        print_json(picked.public() | labels_field(picked.spec.corpus) | about)
        return
    says = err if printed else out
    configuration = f"trial {picked.trial}, epoch {picked.epoch} ({params_text(picked.params)})"
    print_line(says, f"picked {configuration}: {metrics_line(picked.metrics, picked.spec.corpus)}; {choice}")
    print_line(says, why)
    if words := seeds_words(again):
        print_line(says, words)
    if not printed:
        uri = tracking_uri or sweep.record.tracking_uri
        go_on = f"train it with: {train_line(output, storage=storage, tracking_uri=uri)}"
        if picked == released(sweep):
            go_on = f"its model is in {picked.folder}"  # another training would cost more ε
        print_line(says, f"wrote {output}; {go_on}")
    if model is not None:
        print_line(says, model.line(tracking_uri or sweep.record.tracking_uri))


@dataclass(frozen=True)
class Wanted:
    """What to do with the picked configuration."""

    output: Path
    model_name: str | None = None
    """Name in the registry to register the model under; None: the model is not registered."""
    alias: Alias = "candidate"
    """Alias of the registered version."""
    with_encoder: bool = False
    force: bool = False
    """True to replace a file at `output`, whatever its content."""
    require_guarantee: bool = False
    tracking_uri: str | None = None
    """Store that holds the runs, if it has moved since the sweep."""

    def __post_init__(self) -> None:
        if self.model_name is not None:
            check_model_name(self.model_name)


def pick(sweep: Sweep, limits: dict[str, float], path: Path, tracking_uri: str | None = None) -> Point:
    """Choose a configuration within limits, and write it to `path`.

    Raises:
        UserError: as `pick_point`.
    """
    return pick_point(sweep, limits, Wanted(path, tracking_uri=tracking_uri))[0]


def pick_point(
    sweep: Sweep,
    limits: dict[str, float],
    wanted: Wanted,
    named: str | None = None,
    ask: Callable[[str], bool] = lambda question: True,
) -> tuple[Point, str, Registered | None]:
    """Choose a configuration within limits, or take the named one. Write it and, if wanted, register its model.

    Args:
        ask: called before a model is registered that `objection` speaks against; returns True to go on.

    Returns:
        The point, the reason for it, and the registered version.

    Raises:
        UserError: if no point fits, if a guarantee is required and missing, or as `keep`.
    """
    from sweeps.results.headline import released_in_place_of
    from sweeps.results.recommendation import choose, named_point
    from sweeps.store.plans import released

    for name, value in limits.items():
        if not 0 <= value < math.inf:
            raise UserError(f"--max-{name.replace('_', '-')} = {value}: allowed: a number of at least 0")
    if named is not None and limits:
        raise UserError(f"point = {named!r}: limits choose a point, too; allowed: either a point or limits")
    if named is not None:
        point, why = named_point(sweep, named), "A person named it."
    elif not limits and (release := released(sweep)) is not None:
        point, why = release, "It is the released model, chosen on the proxy corpus by the lowest SER."
    else:
        point, why = choose(sweep, limits)
    point = released_in_place_of(sweep, point)
    if wanted.require_guarantee and (lacks := without_guarantee(sweep, point)) is not None:
        raise UserError(f"--require-guarantee: {lacks}; allowed: another point, wider limits, or without it")
    if wanted.model_name is not None and (against := objection(sweep, point)) is not None and not ask(against):
        raise UserError(f"--register = {wanted.model_name!r}: {against}; it was not registered")
    model = keep(sweep, point, why, wanted, limits)
    return point, why, model


def without_guarantee(sweep: Sweep, point: Point) -> str | None:
    """Return what a point lacks of a guarantee, in words; None for a point with a guarantee."""
    from sweeps.results.recommendation import largest_epsilon

    most, found = largest_epsilon(sweep.recipe.edp.epsilon), point.metrics["epsilon"]
    if found <= most:
        return None
    return f"trial {point.name} has no guarantee: its ε is {epsilon_text(found)}, not <= {most:g}"


def objection(sweep: Sweep, point: Point) -> str | None:
    """Return what speaks against the registration of a point's model, in words; None for nothing."""
    lacks = without_guarantee(sweep, point)
    return None if lacks is None else f"{lacks} (--require-guarantee would refuse it)"


def keep(
    sweep: Sweep, point: Point, why: str, wanted: Wanted, limits: dict[str, float] | None = None
) -> Registered | None:
    """Write a chosen configuration as a file for `edp-sweep train`, and register its model if a name is wanted.

    Record in MLflow and in the sweep's folder who chose it, when and why.

    Raises:
        UserError: if the file is there already or cannot be written, if the store cannot be opened, or if the model
            cannot be registered. Nothing was written then, unless the registration itself failed.
    """
    from sweeps.results.headline import released_in_place_of
    from sweeps.store.picks import Pick, now, read_picks, write_pick
    from sweeps.tracking.tracker import Tracker

    point = released_in_place_of(sweep, point)
    check_output(wanted.output)
    record = sweep.record
    if not os.access(sweep.folder, os.W_OK):
        raise UserError(
            f"name = {sweep.name!r}: {sweep.folder}, where picks are recorded, cannot be written; "
            "allowed: a sweep of yours, or a copy of it"
        )
    text = _configuration(sweep, point, wanted)
    _check_there(wanted, text)
    # All checks come before the first file is written, so that a refusal leaves nothing behind.
    if wanted.model_name is not None:
        from sweeps.registry.register import check_point, register_point

        check_point(sweep, point, wanted.model_name)
    read_picks(sweep)
    uri = wanted.tracking_uri or record.tracking_uri
    tracker = Tracker(uri, record.recipe, sweep.folder.parent / "mlflow-artifacts", new=False)
    is_new = not is_printed(wanted.output) and not wanted.output.exists()
    with output(wanted.output) as file:
        file.write(text)
    made = Pick(
        trial=point.trial,
        epoch=point.epoch,
        by=person(),
        at=now(),
        limits=limits or {},
        why=why,
        wrote=None if is_printed(wanted.output) else hashlib.sha256(text.encode()).hexdigest(),
    )
    try:
        write_pick(sweep, made)
    except OSError:
        if is_new:
            wanted.output.unlink(missing_ok=True)  # a file without a recorded pick must not pass for one
        raise
    if point.run_id is not None:
        for earlier in tracker.marked(record.run_id, "picked") - {point.run_id}:
            tracker.tag(earlier, {"picked": "false"})
        tracker.tag(point.run_id, _tags(made))
    if wanted.model_name is None:
        return None
    try:
        model = register_point(
            sweep, point, wanted.model_name, uri, with_encoder=wanted.with_encoder, alias=wanted.alias, picked=made
        )
    except UserError as error:
        raise UserError(f"{error}; trial {point.name} is picked, and its configuration written") from None
    write_pick(sweep, made.model_copy(update={"model": model.uri}), instead_of=made)
    return model


def _configuration(sweep: Sweep, point: Point, wanted: Wanted) -> str:
    """Return the text of the configuration's file."""
    from sweeps.results.confirmed import new_seeds, seeds_words
    from sweeps.results.cost import choice_of
    from sweeps.results.headline import configuration_of
    from sweeps.store.picks import heading_of

    metrics, storage = point.metrics, sweep.folder.parent
    spec = configuration_of(sweep, point)
    remarks = [*users_remark(metrics), *labels_remark(spec.corpus), seeds_words(new_seeds(sweep, point))]
    seen = f"validation SER {metrics['valid_ser']:.1%}, " if "valid_ser" in metrics else ""
    uri = wanted.tracking_uri or sweep.record.tracking_uri
    file = "FILE" if is_printed(wanted.output) else wanted.output
    measured_on = "" if point.spec.corpus == spec.corpus else f"On {point.spec.corpus.name}, which is public: "
    heading = (
        f"{heading_of(sweep.name, point.trial, point.epoch, point.run_id)}\n"
        f"{measured_on}{seen}test SER {metrics['ser']:.1%}, MIA AUC {point.deciding['mia_auc']:.3f}.\n"
        f"{', '.join(epsilon_words(metrics))}, at δ = {metrics['delta']:g}.\n"
        f"The configuration was {choice_of(sweep)}.\n"
        f"{''.join(f'{words[0].upper()}{words[1:]}.{chr(10)}' for words in filter(None, remarks))}"
        f"Train it again with: {train_line(file, storage=storage, tracking_uri=uri)}"
    )
    return as_yaml(spec, heading)


def is_pick(sweep: Sweep, path: Path) -> bool:
    """Return True if an earlier pick of the sweep wrote the file, and it has not changed since."""
    from sweeps.store.picks import read_picks

    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False
    return digest in {pick.wrote for pick in read_picks(sweep)}


def _check_there(wanted: Wanted, text: str) -> None:
    """Raise if another file would be overwritten without `--force`."""
    path = wanted.output
    if wanted.force or is_printed(path) or not path.is_file():
        return
    try:
        same = path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        raise UserError(f"--output = {str(path)!r}: it is there already; allowed: another file, or --force")


def _tags(pick: Pick) -> dict[str, str]:
    """Return the tags of a picked run."""
    limits = ", ".join(f"{name} <= {most:g}" for name, most in pick.limits.items())
    return {
        "picked": "true",
        "picked_epoch": str(pick.epoch),
        "picked_at": pick.at,
        "picked_by": pick.by,
        "picked_limits": limits or "none",
        "picked_rule": pick.why,
    }
