"""The commands of services repeat the defaults of their settings, so that help needs no import of the service."""

import inspect
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from orion.cli import agent_options, parking_options
from orion.cli.added_options import Defaulting
from orion.cli.device_plugin import device_plugin
from orion.cli.dra_driver import dra_driver
from orion.device_plugin.settings import PluginSettings
from orion.dra_driver.settings import DriverSettings
from orion.node_agent.settings import AgentSettings


@pytest.mark.parametrize(("command", "settings"), [(device_plugin, PluginSettings), (dra_driver, DriverSettings)])
def test_a_command_has_the_defaults_of_its_settings(command: Callable[..., None], settings: type[BaseModel]) -> None:
    differing = {
        name: (parameter.default, settings.model_fields[name].default)
        for name, parameter in inspect.signature(command).parameters.items()
        if name in settings.model_fields and parameter.default != settings.model_fields[name].default
    }
    assert differing.keys() == {"metrics_address"}  # a person who runs the command wants metrics


@pytest.mark.parametrize(
    "options",
    [agent_options.OF_A_MACHINE, agent_options.OF_SHARING, agent_options.OF_A_CLUSTER, parking_options.OF_THE_AGENT],
)
def test_the_options_of_the_agent_have_the_names_and_defaults_of_its_settings(options: dict[str, object]) -> None:
    fields = AgentSettings.model_fields
    assert options.keys() <= fields.keys()
    given = {name: each.default for name, each in options.items() if isinstance(each, Defaulting)}
    assert given == {name: fields[name].default for name in given}
