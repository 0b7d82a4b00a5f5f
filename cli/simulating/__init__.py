"""The parts of `orion simulate cluster`: `asked` turns its options into runs, and `progress` shows the progress."""
