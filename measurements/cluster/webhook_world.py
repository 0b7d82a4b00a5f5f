"""Data for the webhook's benchmarks: reviews as the API server sends them, and lists as the API server serves them.

`python -m measurements.cluster.webhook_world` serves the lists from a separate process, so that serving does not delay
the process that sends the reviews. Tests use a real API server instead. In the benchmark, a real API server would only
add load to the same two cores: the webhook does not contact the API server during a review.
"""

import argparse
import asyncio
import datetime
import ipaddress
import json
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUP = "/apis/orion.gpu/v1alpha1"
DEVICES = 100
VARIETY = 500
""" Number of different reviews; the load repeats them. """


@dataclass(frozen=True)
class Review:
    """A review and its expected answer.

    Args:
        body: an AdmissionReview as JSON.
        allowed: whether the webhook must admit the pod.
    """

    body: bytes
    allowed: bool


def namespace_of(number: int, namespaces: int) -> str:
    """Return the namespace of a share."""
    return f"team-{number % namespaces}"


def share(number: int, namespaces: int) -> dict[str, Any]:
    """Return a GPUShare as the API server lists it."""
    priority = "hp" if number % 4 == 0 else "be"
    spec: dict[str, Any] = {
        "priority": priority,
        "selector": {"matchLabels": {"app": f"app-{number}"}},
        "memory": {"limit": "16Gi"},
        "failClosed": False,
    }
    spec |= {"policy": "orion", "maxSlowdown": 1.3} if priority == "hp" else {"compute": {"request": 0.4}}
    metadata = {
        "name": f"share-{number}",
        "namespace": namespace_of(number, namespaces),
        "uid": str(uuid.UUID(int=number)),
        "generation": 1,
        "resourceVersion": str(number + 1),
    }
    return {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUShare", "metadata": metadata, "spec": spec}


def device(number: int) -> dict[str, Any]:
    """Return a GPUDevice as the API server lists it."""
    name = f"gpu-{uuid.UUID(int=number)}"
    return {
        "apiVersion": "orion.gpu/v1alpha1",
        "kind": "GPUDevice",
        "metadata": {"name": name, "uid": str(uuid.UUID(int=number)), "generation": 1, "resourceVersion": "1"},
        "status": {"memory": {"total": "141Gi"}, "health": "Healthy"},
    }


def reviews(shares: int, namespaces: int) -> list[Review]:
    """Return reviews of pods that different shares govern; one review in twenty must be rejected."""
    return [_review(number * shares // VARIETY, namespaces, number % 20 != 7) for number in range(VARIETY)]


def _review(number: int, namespaces: int, good: bool) -> Review:
    pod = example_pod(number, good)
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "",
        "namespace": namespace_of(number, namespaces),
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["a", "b"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return Review(json.dumps(review).encode(), good)


def example_pod(number: int, good: bool) -> dict[str, Any]:
    """Return a pod as a ReplicaSet makes it: with defaults, 20 variables, a sidecar, a service account's token."""
    priority = "hp" if number % 4 == 0 else "be"
    token = {
        "name": "kube-api-access-x",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    common = {
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [token],
    }
    main = common | {
        "name": "server",
        "image": "registry.example/team/server:1.2.3",
        "env": [{"name": f"SETTING_{each}", "value": "value of a setting " * 3} for each in range(20)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1", "cpu": "4"}},
        "securityContext": {"privileged": not good},
    }
    sidecar = common | {"name": "proxy", "image": "registry.example/proxy:9", "resources": {"limits": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"app-{number}-5d4f8c-",
            "labels": {"app": f"app-{number}", "pod-template-hash": "5d4f8c"},
            "annotations": {"orion/priority": priority, "team/contact": "someone@example"},
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
        },
        "spec": {
            "containers": [main, sidecar],
            "volumes": [{"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {}}]}}],
            "restartPolicy": "Always",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
    }


def certificates(folder: Path) -> Path:
    """Write tls.crt and tls.key of a server on loopback, self-signed; return the certificate for clients."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    now = datetime.datetime.now(datetime.UTC)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(2))
    made = builder.add_extension(hosts, critical=False).sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "tls.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return folder / "tls.crt"


async def serve(shares: int, namespaces: int) -> None:
    """Serve lists, and watches without events, until killed."""
    from aiohttp import web

    lists = {
        f"{GROUP}/gpushares": [share(number, namespaces) for number in range(shares)],
        f"{GROUP}/gpudevices": [device(number) for number in range(DEVICES)],
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "5000"}, "items": lists[request.path]})
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    application = web.Application()
    for path in lists:
        application.router.add_get(path, answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"serving on http://127.0.0.1:{runner.addresses[0][1]}", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve lists of shares and GPUs.")
    parser.add_argument("--shares", type=int, default=1_000)
    parser.add_argument("--namespaces", type=int, default=20)
    reported = parser.parse_args()
    asyncio.run(serve(reported.shares, reported.namespaces))
