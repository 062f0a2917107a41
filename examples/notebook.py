"""A sweep from Python: start it, read it as pandas DataFrames, and pick a configuration.

    python examples/notebook.py          # eight trials of quickstart_paper: minutes on two cores

In a notebook, import the functions or paste their lines. The second run reads the sweep of the first.
"""

from pathlib import Path

from sweeps import Point, Sweep, epochs_frame, front_frame, pick, start_sweep, trials_frame
from sweeps.text.figures import epsilon_text


def start(recipe: str, name: str, storage: Path, trials: int) -> Sweep:
    """Run a sweep to its end, as `edp-sweep run RECIPE --name NAME --trials N` does."""
    return start_sweep(recipe, [f"search.trials={trials}"], name=name, storage=storage)


def look(sweep: Sweep) -> None:
    """Print the trials, epochs and front of a sweep. They are DataFrames to plot, group and join."""
    trials, epochs, front = trials_frame(sweep), epochs_frame(sweep), front_frame(sweep)
    figures = ["valid_ser", "ser", "valid_mia_auc", "epsilon"]
    print(trials[["state", "edp.C", "edp.z0", *figures, "worker_seconds"]].to_string())
    print(epochs["valid_ser"].unstack("epoch").to_string())  # a trial a row, an epoch a column
    print(front[[*figures, "epsilon_paper", "tied_with"]].to_string())


def choose(sweep: Sweep, output: Path) -> Point:
    """Pick the recommended point of the better half of the front in SER; `edp-sweep train` takes `output`."""
    return pick(sweep, {"ser": float(front_frame(sweep)["valid_ser"].median())}, output)


def main(name: str = "notebook", storage: Path = Path("runs")) -> None:
    """Start a sweep, or open the one that exists; look at it, and pick a configuration."""
    there = (storage / name / "sweep.json").is_file()
    sweep = Sweep.existing(storage, name) if there else start("quickstart_paper", name, storage, trials=8)
    look(sweep)
    point = choose(sweep, Path("picked.yaml"))
    print(f"picked {point.name}: test SER {point.metrics['ser']:.1%}, epsilon {epsilon_text(point.metrics['epsilon'])}")


if __name__ == "__main__":
    main()
