"""`edp-sweep cluster init`: what it writes is whole, and the image is made of what the cluster's files name."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.conftest import Command

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "sweeps" / "cluster" / "Dockerfile"


def copied(dockerfile: str) -> set[str]:
    """What `COPY` takes from the build's folder."""
    lines = re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", dockerfile, re.MULTILINE)
    return {name for line in lines for name in line.split()}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("aws", "ray_cluster.yaml"), ("kuberay", "kuberay.yaml")])
def test_the_folder_holds_all_that_its_files_name(kind: str, name: str, tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "new" / "edp-cluster"
    code, out, err = command("cluster", "init", kind, "--output", str(folder))
    assert code == 0, err
    assert str(folder / name) in out
    assert not list(folder.rglob("__pycache__"))
    documents = list(yaml.safe_load_all((folder / name).read_text()))
    if kind == "aws":
        wanted = {path for path in documents[0]["file_mounts"].values() if not path.startswith("~")}
        assert (folder / name).read_text() == (ROOT / "ray_cluster.yaml").read_text()
    else:
        wanted = copied((folder / "Dockerfile").read_text())
    assert len(wanted) >= 7
    assert all((folder / path).exists() for path in wanted), wanted
    assert (folder / "edp-sweeps.json").is_file()
    code, _, err = command("cluster", "init", kind, "--output", str(folder))
    assert code == 2
    assert "it is there already; allowed: a new folder" in err


def test_the_image_has_the_ray_that_is_installed_and_is_the_one_that_kubernetes_runs() -> None:
    text = DOCKERFILE.read_text()
    (base,) = re.findall(r"^FROM (\S+)$", text, re.MULTILINE)
    assert base == f"rayproject/ray:{importlib.metadata.version('ray')}-py311"
    (tag,) = re.findall(r"docker build --tag (\S+) ", text)
    kuberay = (ROOT / "sweeps" / "cluster" / "kuberay.yaml").read_text()
    assert set(re.findall(r"image: (?:&image )?(\S+/\S+)", kuberay)) == {tag}
    assert kuberay.count(f"docker build --tag {tag} .") == 1
    assert copied(text) == {
        *("pyproject.toml", "requirements.lock", "README.md", "LICENSE"),
        *("edp", "trainables", "sweeps", "dashboards"),
    }


@pytest.mark.slow
def test_a_wheel_brings_them_along(tmp_path: Path) -> None:
    build = "import sys, setuptools.build_meta as b; print(b.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=_copy(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        launcher = archive.read("sweeps/cluster/project/ray_cluster.yaml").decode()
    assert launcher == (ROOT / "ray_cluster.yaml").read_text(), "no link that leads nowhere"
    for name in ("kuberay.yaml", "Dockerfile", "project/pyproject.toml", "project/requirements.lock"):
        assert f"sweeps/cluster/{name}" in names
    assert "dashboards/grafana/edp-sweeps.json" in names


def _copy(folder: Path) -> Path:
    """The project as git has it: a build leaves folders beside what it builds."""
    place = folder / "project"
    place.mkdir()
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--null", "-T", "-", "-cf", str(folder / "p.tar")], cwd=ROOT, input=files, check=True)
    subprocess.run(["tar", "-xf", str(folder / "p.tar"), "-C", str(place)], check=True)
    return place
