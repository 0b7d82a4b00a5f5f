"""Checks what the documentation says against the code: links, commands, names, YAML; without a cluster.

pages      parses a Markdown page into headings, links and code; lists the pages
findings   one fault of a page, with its position
links      links and anchors have a target, and every guide can be reached
shell      extracts the commands from a block of text
commands   checks `orion`, `make`, `python` and the programs around them
kubernetes checks `kubectl` and `helm`
manifests  checks YAML: our kinds, pods that the webhook admits, the chart's values, configuration files of nodes
tables     rows have as many cells as their head
names      checks our annotations, labels, resources and metrics
runnable   blocks that tests run on a cluster, and how they compare the output

Running commands here was rejected. A block whose output is shown is fenced ```console run, and tests on a cluster run
it.
"""
