"""Every component starts from the image as an unprivileged user, with a read-only root file system."""

import pytest

from tests.image.containers import Container

pytestmark = pytest.mark.node


def test_the_image_prints_its_version(container: Container) -> None:
    done = container.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("orion ")


@pytest.mark.parametrize("user", ["", "0:0", "12345:0"])
@pytest.mark.parametrize(
    "command", ["agent", "device-plugin", "dra-driver", "operator", "webhook", "mps-daemon", "doctor"]
)
def test_a_component_is_a_command(container: Container, command: str, user: str) -> None:
    done = container.run(command, "--help", user=user)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: orion" in done.stdout


# The modules that each component imports when it starts, but not for --help.
IMPORTS = {
    "agent": "orion.node_agent.agent, orion.node_agent.gpus.nvml, orion.api_server.requests, pynvml",
    "device plugin": "orion.device_plugin.starting",
    "DRA driver": "orion.dra_driver.serving",
    "operator": "orion.operator.reconciler, orion.operator.certificates.issuing, kopf",
    "webhook": "orion.operator.webhook, aiohttp.web",
}


@pytest.mark.parametrize("component", IMPORTS)
def test_a_component_can_import_all_it_needs(container: Container, component: str) -> None:
    done = container.execute("python3", "-c", f"import {IMPORTS[component]}")
    assert (done.returncode, done.stderr) == (0, "")


def test_orion_explain_works_in_the_image(container: Container) -> None:
    done = container.run("explain", "pod", "web")
    assert done.returncode == 1
    assert "no API server is known" in done.stderr  # its dependencies are present; only the API server is missing


def test_an_unknown_command_is_reported_with_its_exit_status(container: Container) -> None:
    done = container.run("no-such-component")
    assert done.returncode == 2
    assert "no-such-component" in done.stderr


def test_every_python_file_is_compiled(container: Container) -> None:
    missing = [
        str(source) for source in (container.root / "opt/orion/lib").rglob("*.py")
        if not any((source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc"))
    ]  # fmt: skip
    assert missing == []


def test_the_hook_is_where_the_plugin_expects_it(container: Container) -> None:
    done = container.execute("python3", "-c", "import orion.hook as h; print(h.library(), h.simulated_driver())")
    assert done.returncode == 0, done.stderr
    for path in done.stdout.split():
        assert (container.root / path.lstrip("/")).is_file()
