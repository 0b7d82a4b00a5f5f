"""`orion simulate`: tries plans out without a GPU. Each command has a module in cli/simulating."""

import typer

from orion.cli.simulating.cluster import cluster
from orion.cli.simulating.serving import serving
from orion.cli.simulating.validate import validate

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Predict what plans give, without a GPU.")
app.command()(cluster)
app.command()(serving)
app.command()(validate)


@app.callback()
def simulate() -> None:
    """Predict what plans give, without a GPU."""
