"""The commands `orion simulate cluster`, `serving` and `validate`. `asked` turns the options of `cluster` into runs."""
