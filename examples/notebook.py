"""A sweep from Python: start it, read it as pandas DataFrames, and pick a configuration.

    python examples/notebook.py NAME     # reads the sweep runs/NAME; trains nothing and writes nothing
    python examples/notebook.py          # reads the sweep runs/notebook, and first runs it: eight trials, minutes

In a notebook, import the functions or paste their lines.
"""

import sys
from pathlib import Path

from edp.spec import UserError
from sweeps import Point, Sweep, epochs_frame, front_frame, pick, start_sweep, trials_frame
from sweeps.text.figures import epsilon_text

FIGURES = ["valid_ser", "ser", "valid_mia_auc", "epsilon"]


def start(recipe: str, name: str, storage: Path, trials: int) -> Sweep:
    """Run a sweep to its end, as `edp-sweep run RECIPE --name NAME --trials N` does."""
    return start_sweep(recipe, [f"search.trials={trials}"], name=name, storage=storage)


def look(sweep: Sweep) -> None:
    """Print the trials, epochs and front of a sweep. They are DataFrames to plot, group and join."""
    print(sweep)
    trials, epochs, front = trials_frame(sweep), epochs_frame(sweep), front_frame(sweep)
    # `filter` leaves out what a sweep did not search or measure.
    print(trials.filter(["state", "edp.C", "edp.z0", *FIGURES, "worker_seconds"]).to_string())
    if "valid_ser" in epochs:
        print(epochs["valid_ser"].unstack("epoch").to_string())  # a trial a row, an epoch a column
    confirmed = ["confirmed_seeds", "confirmed_ser", "confirmed_ser_lower", "confirmed_ser_upper"]
    print(front.filter([*FIGURES, "epsilon_paper", "tied_with", "recommended", *confirmed]).to_string())


def choose(sweep: Sweep, output: Path) -> Point:
    """Pick the recommended point of the better half of the front in SER; `edp-sweep train` takes `output`."""
    return pick(sweep, {"ser": float(front_frame(sweep)["valid_ser"].median())}, output)


def main(name: str | None = None, storage: Path = Path("runs")) -> None:
    """Look at the sweep `name`. Without a name, look at the sweep `notebook`, which is run first, and pick from it."""
    own = "notebook"
    if name is None and not (storage / own).exists():
        start("quickstart_paper", own, storage, trials=8)
    sweep = Sweep.existing(storage, name or own)
    look(sweep)
    if name is None:
        point = choose(sweep, Path("picked.yaml"))
        print(f"picked {point.name}: test SER {point.metrics['ser']:.1%}, ε {epsilon_text(point.metrics['epsilon'])}")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
    except UserError as error:
        sys.exit(str(error))
