"""Examples on the pages that the tests of a package run."""

import re

from tools.docs import pages


def yaml_blocks(*beginnings: str) -> list[str]:
    """Return the blocks of YAML on all pages that have a line with one of these beginnings.

    Pages without these words are not parsed: each worker that collects tests would need seconds to parse all.
    """
    pattern = re.compile("^(" + "|".join(map(re.escape, beginnings)) + ")", re.MULTILINE)
    found = [page for page in pages.all_pages() if any(each in page.text for each in beginnings)]
    blocks = [block for page in found for block in page.blocks if block.info[:1] == ("yaml",)]
    return [block.text for block in blocks if pattern.search(block.text)]
