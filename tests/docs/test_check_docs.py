"""tools.check_docs finds each kind of mistake at its line. `make check` runs it on the pages themselves."""

from pathlib import Path

import pytest

from tools.docs import commands, links, manifests, names, pages, runnable, tables
from tools.docs.findings import Finding
from tools.docs.pages import ROOT, Page


def findings(page: Page, *others: Page) -> list[Finding]:
    """Return the findings in one page."""
    found = links.check([page, *others]) + names.check([page]) + tables.check([page])
    return found + commands.check([page])[0] + manifests.check([page])[0]


def page_of(text: str, name: str = "docs/page.md") -> Page:
    return Page(Path(name), text)


SHARE = """```yaml
apiVersion: orion.gpu/v1alpha1
kind: GPUShare
metadata: {name: serve}
spec: {priority: hp, selector: {matchLabels: {app: serve}}}
```
"""
POD = """```yaml
apiVersion: v1
kind: Pod
metadata: {name: serve, annotations: {orion/priority: hp}}
spec:
  containers: [{name: server, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]
```
"""
QUOTA = """```yaml
apiVersion: v1
kind: ResourceQuota
metadata: {name: no-hp}
spec: {hard: {requests.orion.gpu/hp: "0"}}
```
"""
SETTINGS = """```yaml
version: v1
slots: {hp: 1, be: 8}
```
"""
VALUES = """```yaml values
nodeConfiguration:
  slots: {hp: 1, be: 4}
  slotsByGPU: [{gpu: "7", be: 2}]
webhook: {replicas: 3, podLabels: {team: ml}}
```
"""
GOOD = f"""# Title

See [the code](../crds/share.py), [below](#a-b), `orion top --once` and `make check`.

`orion/priority`, `orion_gpu_clients`.

## A: `b`

| a | b |
|---|---|
| 1 | 2 \\| 3 |

    orion run --priority hp --memory 8GiB -- python serve.py      # a comment
    kubectl get gpus -A -o wide | sort && kubectl patch gpu NAME --type merge -p '{{"spec":{{"cordon":true}}}}'
    kubectl explain gpushare.spec.tuning.window
    orion explain pod -f examples/pytorch/hp-pod.yaml --offline
    helm install orion charts/orion -n orion-system --wait --set simulatedGPUs=2,image.tag=dev -f values.yaml

```console
$ kubectl get gpushares,pods \\
    -n team
NAME   PRIORITY
orion is printed here, and is no command
```
{SHARE}
{POD}
{QUOTA}
{SETTINGS}
{VALUES}
"""


def test_a_good_page_passes() -> None:
    assert findings(page_of(GOOD)) == []
    assert commands.check([page_of(GOOD)])[1] == 10
    assert manifests.check([page_of(GOOD)])[1] == 5


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "../crds/share.py",
            "../crds/shares.py",
            "../crds/shares.py leads nowhere: there is no crds/shares.py",
        ),
        ("#a-b", "#a-c", "docs/page.md has no heading #a-c"),
        ("../crds/share.py", "../../elsewhere", "leads out of the checkout"),
        ("orion top --once", "orion tip --once", "`orion` has no command tip"),
        ("orion top --once", "orion top --twice", "`orion top`: No such option: --twice"),
        ("orion top --once", "orion policy shew", "`orion policy` has no command shew"),
        ("--priority hp", "--priority urgent", "`orion run`: "),
        ("--memory 8GiB", "--memory", "`orion run`"),
        ("make check", "make chick", "the Makefile has no target chick"),
        ("orion top --once", "python -m orion.crds.generat", "there is no module orion.crds.generat"),
        ("orion top --once", "pytest tests/nowhere", "there is no tests/nowhere"),
        ("get gpus", "gets gpus", "`kubectl` has no verb gets"),
        ("get gpus", "get gpuz", "has no kind gpuz"),
        ("gpushares,pods", "gpushares,gpupods", "has no kind gpupods"),
        ("-o wide", "--outputs wide", "has no flag --outputs"),
        ('"cordon"', '"cordoned"', "GPUDevice has no field spec.cordoned"),
        ('"cordon":true', '"cordon":"yes"', "cordon"),
        ("tuning.window", "tuning.windows", "GPUShare has no field spec.tuning.windows"),
        ("examples/pytorch/hp-pod.yaml", "examples/pytorch/pod.yaml", "there is no examples/pytorch/pod.yaml"),
        ("orion/priority`", "orion/prioritys`", "contains orion/prioritys"),
        ("orion_gpu_clients", "orion_gpu_cliente", "contains orion_gpu_cliente"),
        ("spec: {priority: hp,", "spec: {priority: high,", "spec.priority"),
        (
            "spec: {priority: hp,",
            "spec: {priority: hp, compute: {request: 0.2},",
            "spec.compute.request of priority hp is at least",
        ),
        ("spec: {priority: hp,", "spec: {priority: hp, maxSlowdwn: 2,", "maxSlowdwn"),
        ("kind: GPUShare", "kind: GPUShares", "there is no kind GPUShares"),
        ("orion/priority: hp", "orion/priority: high", "must be hp or be"),
        ("image: x,", "image: x, securityContext: {privileged: true},", "privileged"),
        ("requests.orion.gpu/hp", "limits.orion.gpu/hp", "a quota cannot count limits.orion.gpu/hp"),
        ("helm install", "helm instal", "`helm` has no verb instal"),
        ("charts/orion -n", "charts/orions -n", "there is no charts/orions"),
        ("--wait", "--await", "has no flag --await"),
        ("simulatedGPUs=2", "simulatedGpus=2", "the chart has no value simulatedGpus"),
        ("simulatedGPUs=2", "simulatedGPUs=two", 'simulatedGPUs is "two", and the chart wants integer'),
        ("image.tag=dev", "image.tags=dev", "the chart has no value image.tags"),
        ("hp: 1, be: 4", "hp: 1, bee: 4", "the chart has no value nodeConfiguration.slots.bee"),
        ('gpu: "7"', "gpu: 7", "nodeConfiguration.slotsByGPU[0].gpu is 7, and the chart wants string"),
        ("replicas: 3", "replicas: three", 'webhook.replicas is "three"'),
        ("slots: {hp: 1, be: 8}", "slots: {hp: 1, bes: 8}", "bes"),
        ("version: v1\n", "versions: v1\n", "unknown kind of YAML"),
        ("metadata: {name: no-hp}", "metadata: {name: no-hp", "invalid YAML"),
        ("2 \\| 3", "2 | 3", "this row has 3 cells, and the table's head 2"),
        ("# a comment", "'# not closed", "cannot be parsed"),
    ],
)
def test_a_mistake_is_found(before: str, after: str, sentence: str) -> None:
    assert before in GOOD
    found = findings(page_of(GOOD.replace(before, after, 1)))
    assert len(found) == 1
    assert sentence in found[0].sentence


def test_a_finding_has_its_line() -> None:
    text = "# Title\n\nText\nand `orion tip`.\n\n```console\n$ ls\nx\n$ orion tip\n```\n"
    assert [finding.line for finding in sorted(findings(page_of(text)))] == [4, 9]


def test_a_mistake_in_a_real_page_is_found() -> None:
    page = pages.read(ROOT / "docs" / "admission.md")
    everything = pages.all_pages()
    before, right, _ = page.text.partition("explain pod chat -n team")
    assert right
    line = len(before.split("\n"))
    wrong = Page(page.path, page.text.replace(right, "explain pod chat --namespaces team"))
    found = findings(wrong, *(each for each in everything if each.path != page.path))
    assert [str(each) for each in found if each.page == page.name] == [
        f"docs/admission.md:{line}: `orion explain pod`: No such option: --namespaces (Possible options: --namespace)"
    ]


def test_a_page_without_links_to_it_is_found() -> None:
    index = page_of("[here](admission.md)", links.INDEX)
    lost, found = page_of("# Lost", "docs/lost.md"), page_of("# Found", "docs/admission.md")
    assert [finding.page for finding in links.check([index, lost, found])] == ["docs/lost.md"]


REFUSED = POD.replace("```yaml", "```yaml refused").replace("spec:\n", "spec:\n  hostPID: true\n")


def test_a_block_marked_as_refused_must_be_refused_with_the_sentence_below() -> None:
    (found,) = findings(page_of(f"{REFUSED}\n```\nError: something else\n```\n"))
    _, _, sentence = found.sentence.partition("the block below does not say why it is refused: ")
    assert "hostPID" in sentence
    assert findings(page_of(f"{REFUSED}\n```\nError from server: {sentence}\n```\n")) == []
    (found,) = findings(page_of(POD.replace("```yaml", "```yaml refused")))
    assert found.sentence == "this YAML is marked as refused, but it is accepted"


# -- Blocks that tests run on a cluster --------------------------------------------------------------------------------

TRANSCRIPT = """
```console run
$ kubectl get pods \\
    -A
NAME                     READY   AGE
train-55cdd8494d-6cjw4   1/1     13s
...
$ kubectl get gpus
NAME                                       HP
gpu-5d750df9-5a7d-4572-a9d3-f5bf4fc3c0ee   1
```

```console
$ kubectl get nodes
```
"""


def test_only_blocks_marked_with_run_have_steps() -> None:
    first, second = runnable.steps(page_of(TRANSCRIPT))
    assert (first.command, first.line) == ("kubectl get pods  -A", 3)
    assert first.output.splitlines()[1:] == ["train-55cdd8494d-6cjw4   1/1     13s", "..."]
    assert second.command == "kubectl get gpus"


def test_output_is_compared_by_its_form() -> None:
    page = "NAME  HP\ngpu-5d750df9-5a7d-4572-a9d3-f5bf4fc3c0ee   1\n...\npod/train-55cdd8494d-6cjw4 Running 13s"
    run = (
        "NAME   HP\ngpu-1fc206cc-4f49-49fb-a3c9-b5afa3dc2ace 0\nmore\npod/train-7d4b9c8f6d-x2x9z   Running   2m5s\nmore"
    )
    assert runnable.differs(page, run) == ""
    assert "Running" in runnable.differs(page, run.replace("Running", "Pending"))
    assert runnable.differs(page, "") == "no line is like 'NAME  HP'"
