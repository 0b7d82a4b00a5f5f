"""The descriptions of a model's fields: the string under each field, which the schemas and the reference show.

Only what writes these reads the sources. Rejected: pydantic's `use_attribute_docstrings`. It reads the sources whenever
a model is imported, which costs each program of the cluster 0.1 to 0.3 s of CPU at its start.
"""

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the descriptions of those fields that have one, by the fields' names."""
    found: dict[str, str | None] = {}
    for base in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        found |= _under_fields(base)
    found |= {name: info.description for name, info in model.model_fields.items() if info.description}
    return {name: text for name, text in found.items() if text and name in model.model_fields}


def _under_fields(model: type) -> dict[str, str | None]:
    """Return the string under each field that the class itself declares; None: there is none."""
    try:
        source = inspect.getsource(model)
    except OSError:  # made by `create_model`: its fields come with their descriptions
        return {}
    (written,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(written, ast.ClassDef)
    found: dict[str, str | None] = {}
    for statement, following in pairwise([*written.body, ast.Pass()]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = _string(following)
    return found


def _string(statement: ast.stmt) -> str | None:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return None
    value = statement.value.value
    return inspect.cleandoc(value) if isinstance(value, str) else None
