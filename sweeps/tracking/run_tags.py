"""Tags of runs, and settings and metrics in the form that MLflow's tables and charts need."""

from __future__ import annotations

import functools
import getpass
import importlib.metadata
import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.config import TrialSpec

WEIGHTS = "weights_sha256"
"""The tag of a registered version that holds the SHA-256 of its `model.safetensors`."""
NOTE = "mlflow.note.content"
"""The tag that MLflow shows as a run's description."""

_PACKAGES = ("ray", "torch", "transformers", "optuna", "mlflow")


@functools.cache
def environment_tags() -> dict[str, str]:
    """Return the Git commit, if there is one, and the versions of the packages that results depend on."""
    tags = {f"version.{name}": importlib.metadata.version(name) for name in _PACKAGES}
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False)
    return tags | ({"git_commit": commit.stdout.strip()} if commit.returncode == 0 else {})


def trial_tags(sweep: str, spec: TrialSpec) -> dict[str, str]:
    """Return the tags of every run that trains."""
    return {
        **environment_tags(),
        "sweep": sweep,
        "corpus": spec.corpus.name,
        "model": spec.model.kind,
        "method": spec.training.method,
        "state": "running",
    }


def person() -> str:
    """Return the user's name on the tracking server, or else on the machine."""
    try:
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names, without those that are None."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = value
    return found


def charted(metrics: Mapping[str, float]) -> dict[str, float]:
    """Add the logarithm of each finite ε, since MLflow's charts that compare runs have no logarithmic axis."""
    logs = {
        f"log10_{key}": math.log10(metrics[key])
        for key in ("epsilon", "epsilon_executed", "epsilon_user", "epsilon_paper")
        if 0 < metrics.get(key, math.inf) < math.inf
    }
    return {**metrics, **logs}


def infinite(metrics: Mapping[str, float]) -> dict[str, str]:
    """Return a run's infinite metrics as tags, such as the ε of plain SGD."""
    return {key: "infinite" for key, value in metrics.items() if math.isinf(value)}


def source_tags() -> dict[str, str]:
    """Return the tags that MLflow shows as a run's source."""
    tags = {"mlflow.source.name": "edp-sweep", "mlflow.source.type": "LOCAL"}
    commit = environment_tags().get("git_commit")
    return tags | ({"mlflow.source.git.commit": commit} if commit else {})
