"""`orion explain pod` for files without a cluster, and its errors if the cluster does not answer."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SHARE = {
    "apiVersion": "orion.gpu/v1alpha1", "kind": "GPUShare", "metadata": {"name": "training"},
    "spec": {"priority": "be", "selector": {"matchLabels": {"app": "training"}}, "memory": {"limit": "8Gi"}},
}  # fmt: skip


def explain(*arguments: str | Path, kubeconfig: Path = Path("/nowhere")) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orion.cli", "explain", "pod", *map(str, arguments)]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": "/nowhere", "no_proxy": "127.0.0.1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def in_json(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    done = explain(*arguments, "--offline", "--json")
    return done.returncode, json.loads(done.stdout)


def written(folder: Path, *documents: Any) -> Path:
    path = folder / "given.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_a_pod_is_shown_as_a_diff_with_its_reasons() -> None:
    done = explain("-f", ROOT / "examples" / "pytorch" / "hp-pod.yaml", "--offline")
    assert done.returncode == 0, done.stderr
    assert "changed: Pod chat in namespace default" in done.stdout
    assert "container server asks for 1 slot orion.gpu/hp in place of 1 nvidia.com/gpu" in done.stdout
    assert 'its grant: {"containers":{"server":{"memoryWaitMs":30000,"slots":1}},' in done.stdout
    assert "-        nvidia.com/gpu: 1\n+        orion.gpu/hp: '1'\n" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("examples/gpushare.yaml",), "the files have no pod (or objects that make pods); they contain: none"),
        (("examples",), "several pods (or objects that make pods), so give the name of one as well; they contain: D"),
        (
            ("examples/train.yaml", "serve"),
            "no pod called 'serve' (or objects that make pods); they contain: Deployment t",
        ),
    ],
)
def test_files_without_the_pod_are_answered_with_what_they_have(arguments: tuple[str, ...], sentence: str) -> None:
    file, *name = arguments
    done = explain("-f", ROOT / file, *name, "--offline")
    assert done.returncode == 1
    assert sentence in done.stderr


def test_an_object_that_creates_pods_is_explained_by_its_template(tmp_path: Path) -> None:
    job = yaml.safe_load((ROOT / "examples" / "pytorch" / "be-job.yaml").read_text())
    cron = {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": "team"},
        "spec": {"jobTemplate": {"spec": job["spec"]}},
    }  # fmt: skip
    status, found = in_json("-f", written(tmp_path, SHARE, cron))
    assert status == 0
    assert (found["what"], found["namespace"], found["share"]) == ("CronJob nightly", "team", "training")
    assert found["grant"]["containers"]["trainer"]["memoryLimitBytes"] == 8 * 2**30


@pytest.mark.parametrize(
    ("kind", "metadata", "said"),
    [
        (
            "Deployment",
            {"annotations": {"orion/priority": "hp"}},
            "orion/priority is an annotation of the Deployment itself and has no effect there: Orion reads "
            "annotations of pods, so write it to spec.template.metadata.annotations",
        ),
        ("StatefulSet", {"labels": {"orion/share": "x"}}, "orion/share is a label of the StatefulSet itself"),
    ],
)
def test_a_misplaced_annotation_is_found_and_the_right_place_named(
    tmp_path: Path, kind: str, metadata: dict[str, Any], said: str
) -> None:
    given = {
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", **metadata},
        "spec": {"template": {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }  # fmt: skip
    done = explain("-f", written(tmp_path, given), "--offline")
    assert done.returncode == 0, done.stderr
    assert f"! {said}" in done.stdout
    assert in_json("-f", written(tmp_path, given))[1]["cautions"][0].startswith(said)


def test_a_priority_that_is_a_label_instead_of_an_annotation_is_found(tmp_path: Path) -> None:
    given = yaml.safe_load((ROOT / "examples" / "pytorch" / "hp-pod.yaml").read_text())
    given["metadata"]["labels"] = given["metadata"].pop("annotations")
    done = explain("-f", written(tmp_path, given), "--offline")
    assert "! orion/priority is a label and has no effect there" in done.stdout
    assert "write it to metadata.annotations" in done.stdout


def test_a_folder_is_read_as_kubectl_reads_it(tmp_path: Path) -> None:
    given = yaml.safe_load((ROOT / "examples" / "pytorch" / "hp-pod.yaml").read_text())
    written(tmp_path, given)
    (tmp_path / "notes.txt").write_text("no YAML: [")
    (tmp_path / "below").mkdir()
    done = explain("-f", tmp_path, "--offline")
    assert done.returncode == 0, done.stderr
    assert "changed: Pod chat" in done.stdout
    done = explain("-f", tmp_path / "below", "--offline")
    assert done.returncode == 1
    assert done.stderr == f"orion: {tmp_path / 'below'} has no .yaml, .yml or .json file: name a file with -f\n"


def test_a_pod_that_would_be_rejected_is_reported_with_exit_1(tmp_path: Path) -> None:
    given = yaml.safe_load((ROOT / "examples" / "pytorch" / "hp-pod.yaml").read_text())
    given["spec"]["hostPID"] = True
    done = explain("-f", written(tmp_path, given), "--offline")
    assert done.returncode == 1
    assert done.stdout.startswith("refused: Pod chat in namespace default\n  hostPID lets the pod reach")


def test_for_an_unmanaged_pod_the_missing_annotation_is_named(tmp_path: Path) -> None:
    given = yaml.safe_load((ROOT / "examples" / "pytorch" / "hp-pod.yaml").read_text())
    del given["metadata"]["annotations"]
    done = explain("-f", written(tmp_path, given), "--offline")
    assert done.returncode == 0
    assert "the pod has no annotation orion/priority" in done.stdout


def test_one_of_several_pods_is_chosen_by_name(tmp_path: Path) -> None:
    pods = [{"kind": "Pod", "metadata": {"name": n}, "spec": {"containers": [{"name": "c"}]}} for n in ("one", "two")]
    path = written(tmp_path, *pods)
    assert in_json("two", "-f", path)[1]["what"] == "Pod two"
    done = explain("-f", path, "--offline")
    assert done.returncode == 1
    assert "they contain: Pod one, Pod two" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence", "status"),
    [
        (("--offline",), "name a pod of the cluster, or give a file with -f", 2),
        (("-f", "/nowhere.yaml", "--offline"), "/nowhere.yaml cannot be read", 1),
        (("chat",), "configure one, or give --offline", 1),
    ],
)
def test_a_pod_that_cannot_be_explained_is_one_sentence(arguments: tuple[str, ...], sentence: str, status: int) -> None:
    done = explain(*arguments)
    assert done.returncode == status
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["kind: [", "just text", "", "kind: Pod\nspec: {containers: 7}\n"])
def test_a_file_without_a_pod_is_an_error_of_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(text)
    done = explain("-f", path, "--offline")
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("orion: ")
    assert done.stderr.count("\n") == 1


class _Proxy(BaseHTTPRequestHandler):
    """A proxy that answers instead of the API server."""

    def do_GET(self) -> None:
        self.send_response(502)
        self.end_headers()
        self.wfile.write(b"<html>\nno API server behind this\n</html>")

    def log_message(self, *_: object) -> None:
        """Log nothing, to keep the test's output clean."""


def test_an_answer_of_a_proxy_becomes_an_error_of_one_sentence(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        done = explain("some", kubeconfig=_kubeconfig(tmp_path, f"http://127.0.0.1:{proxy.server_port}"))
        proxy.shutdown()
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pod some in namespace default cannot be read: " in done.stderr
    assert "no API server behind this" in done.stderr


def _kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    entries = {"clusters": [{"name": "c", "cluster": {"server": server}}]}
    entries |= {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}
    path.write_text(json.dumps({**entries, "current-context": "c", "users": [{"name": "c", "user": {}}]}))
    return path


def test_a_webhook_without_cluster_or_certificate_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orion.cli", "webhook", "--certificates", str(tmp_path), "--kubeconfig"]
    done = subprocess.run([*command, "/nowhere"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no API server is known" in done.stderr
    done = subprocess.run(
        [*command, str(_kubeconfig(tmp_path, "http://127.0.0.1:9"))], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "tls.crt cannot be read" in done.stderr


def test_the_option_runtime_class_is_applied_and_checked(tmp_path: Path) -> None:
    example = ROOT / "examples" / "pytorch" / "hp-pod.yaml"
    done = explain("-f", example, "--offline", "--runtime-class", "nvidia")
    assert "+  runtimeClassName: nvidia" in done.stdout
    done = explain("-f", example, "--offline", "--runtime-class", "A B")
    assert done.returncode == 2
    assert "--runtime-class cannot be 'A B'" in done.stderr
