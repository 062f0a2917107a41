"""The KubeRay file: what `kubectl apply` does not see."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = ROOT / "ray_cluster.yaml"
KUBERAY = ROOT / "sweeps" / "cluster" / "kuberay.yaml"
RAY_VERSION = importlib.metadata.version("ray")


@pytest.fixture
def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(KUBERAY.read_text()))


@pytest.fixture
def spec(documents: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (d for d in documents if d["kind"] == "RayCluster")
    assert found["apiVersion"] == "ray.io/v1"
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", found["metadata"]["name"])
    inner: dict[str, Any] = found["spec"]
    return inner


def test_ray_is_the_pinned_one_everywhere(spec: dict[str, Any], documents: list[dict[str, Any]]) -> None:
    assert spec["rayVersion"] == RAY_VERSION
    images = re.findall(r"image: (?:&\w+ )?([^\s*#]+)", KUBERAY.read_text())
    assert len(images) == 2
    assert {image.rpartition(":ray-")[2] for image in images} == {RAY_VERSION}
    # The Dockerfile, the tag that it builds and the tag that it pushes.
    named = re.findall(r"(?:ray:|ray-)(\d+\.\d+\.\d+)", KUBERAY.read_text())
    assert set(named) == {RAY_VERSION}
    assert f"FROM rayproject/ray:{RAY_VERSION}-py311" in KUBERAY.read_text()


def test_tokens_are_on_and_nothing_is_reachable_from_outside(
    spec: dict[str, Any], documents: list[dict[str, Any]]
) -> None:
    assert spec["authOptions"]["mode"] == "token"
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    (service,) = (d for d in documents if d["kind"] == "Service")
    assert service["spec"]["type"] == "ClusterIP"
    assert "Ingress" not in {d["kind"] for d in documents}
    assert not re.search(r"LoadBalancer|NodePort|hostPort|hostNetwork", KUBERAY.read_text())


def test_only_the_cluster_may_talk_to_mlflow(documents: list[dict[str, Any]]) -> None:
    (deployment,) = (d for d in documents if d["kind"] == "Deployment")
    (policy,) = (d for d in documents if d["kind"] == "NetworkPolicy")
    (service,) = (d for d in documents if d["kind"] == "Service")
    (cluster,) = (d for d in documents if d["kind"] == "RayCluster")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    (rule,) = policy["spec"]["ingress"]
    name = cluster["metadata"]["name"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"ray.io/cluster": name}}}]
    # SQLite bears one server.
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert "--workers=1" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_every_pod_mounts_volumes_that_there_are(spec: dict[str, Any], documents: list[dict[str, Any]]) -> None:
    claims = {
        d["metadata"]["name"]: d["spec"]["accessModes"] for d in documents if d["kind"] == "PersistentVolumeClaim"
    }
    (deployment,) = (d for d in documents if d["kind"] == "Deployment")
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"], deployment["spec"]]
    for pod in (group["template"]["spec"] for group in groups):
        volumes = {v["name"]: v for v in pod["volumes"]}
        mounts = {m["name"]: m["mountPath"] for c in pod["containers"] for m in c["volumeMounts"]}
        assert set(mounts) == set(volumes)
        assert mounts["sweeps"] == "/mnt/sweeps"
        used = {v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "emptyDir" not in v}
        assert used <= set(claims)
    assert claims["sweeps"] == ["ReadWriteMany"]
