"""What the documentation says, checked against what there is: links, commands, names, YAML; without a cluster.

pages      a Markdown page taken apart: headings, links, code; and which pages there are
findings   what is wrong, and where
links      links and anchors lead somewhere, and every guide can be reached
shell      from a block of text to the commands in it
commands   `orion`, `make`, `python` and the programs around them
kubernetes `kubectl` and `helm`
manifests  YAML: our kinds, pods that the webhook admits, the chart's values, files of nodes' settings
tables     rows have as many cells as their head
names      annotations, labels, resources and metrics of ours that a page names
runnable   blocks that are run on a cluster, and how their output is compared

Refused: to run commands here. What a page shows as run is fenced ```console run, and tests on a cluster do.
"""
