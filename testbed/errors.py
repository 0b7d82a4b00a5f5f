"""The errors of the testbed and of what `tools` builds. The testbed imports nothing of Orion, not even `orion.errors`.

Missing   this machine lacks a program, a package or a right; the text says what to do
Failed    a program or a component of the cluster ended, or was not ready in time; the text is the end of its output, or
          names its logs
"""


class Missing(Exception):
    """This machine lacks what a control plane, a node or an image needs."""


class Failed(Exception):
    """A program or a component of the cluster ended, or was not ready in time."""
