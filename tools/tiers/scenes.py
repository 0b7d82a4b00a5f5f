"""Which tests depend on each other: those of one file, or of all files in a folder named on_cluster."""


def scene(test: str) -> str:
    """Return the file or folder whose tests share state with the test of this node id, and run in order."""
    file = test.partition("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder.endswith("/on_cluster") else file
