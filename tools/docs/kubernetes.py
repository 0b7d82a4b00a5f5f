"""Checks `kubectl` and `helm` on pages: verbs, flags, our kinds, files, keys of the chart's values.

The programs themselves are not run, because the machine may lack them. Instead, this file lists what pages use of them;
a word that is not listed is most likely misspelt.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orion.crds.generate import KINDS
from orion.crds.kinds import Kind
from orion.crds.schema import structural
from orion.errors import Unreadable
from tools.docs import values

_PLACEHOLDER = re.compile(r"<?[A-Z][A-Z0-9_.:/-]*>?")

# Flags, and whether each takes a value.
_KUBECTL_FLAGS = {
    "-n": True, "--namespace": True, "-A": False, "--all-namespaces": False, "-f": True, "--filename": True,
    "-o": True, "--output": True, "-w": False, "--watch": False, "-l": True, "--selector": True,
    "--field-selector": True, "--for": True, "--timeout": True, "--server-side": False, "--force-conflicts": False,
    "--tail": True, "-c": True, "--container": True, "--previous": False, "--follow": False, "--all": False,
    "--replicas": True, "--type": True, "-p": True, "--patch": True, "--overwrite": False, "--as": True, "-i": False,
    "-t": False, "-it": False, "--stdin": False, "--show-labels": False, "--sort-by": True, "--wait": True,
    "--ignore-not-found": False, "--dry-run": True, "--kubeconfig": True, "--context": True, "--raw": True,
    "--cascade": True, "--grace-period": True, "--force": False, "--since": True, "--subresource": True,
    "--prefix": False, "--all-containers": False, "--no-headers": False, "--recursive": False, "--restart": True,
    "--image": True, "--list": False, "--ignore-daemonsets": False, "--delete-emptydir-data": False,
}  # fmt: skip
_HELM_FLAGS = {
    "-n": True, "--namespace": True, "--create-namespace": False, "--wait": False, "--timeout": True, "--set": True,
    "--set-string": True, "--set-json": True, "--set-file": True, "-f": True, "--values": True, "--version": True,
    "--reuse-values": False, "--reset-then-reuse-values": False, "--reset-values": False, "--install": False,
    "--atomic": False, "--dry-run": False, "--keep-history": False, "--skip-crds": False, "--no-hooks": False,
    "--force": False,
    "--logs": False, "--show-only": True, "-s": True, "--strict": False, "--kubeconfig": True, "--kube-context": True,
    "--take-ownership": False, "--cascade": True, "--max": True, "-o": True, "--output": True, "--all": False,
    "-a": False, "--revision": True, "-A": False, "--devel": False, "--debug": False, "--cleanup-on-fail": False,
}  # fmt: skip

_TYPED = ("get", "describe", "delete", "label", "annotate", "patch", "wait", "edit", "explain", "scale")
_PODS = ("logs", "exec", "port-forward", "debug", "attach", "cp")
_OTHER = (
    "apply", "create", "replace", "rollout", "auth", "config", "version", "cluster-info", "api-resources", "cordon",
    "uncordon", "drain", "events", "run", "top", "taint", "diff",
)  # fmt: skip
_HELM_VERBS = ("install", "upgrade", "uninstall", "rollback", "test", "template", "lint", "status", "history", "get",
               "list", "show", "version", "package", "repo", "pull")  # fmt: skip
_BUILT_IN = {
    "po", "pod", "pods", "deploy", "deployment", "deployments", "ds", "daemonset", "daemonsets", "job", "jobs",
    "cm", "configmap", "configmaps", "secret", "secrets", "svc", "service", "services", "sa", "serviceaccount",
    "serviceaccounts", "ns", "namespace", "namespaces", "no", "node", "nodes", "event", "events", "ev", "crd", "crds",
    "customresourcedefinition", "customresourcedefinitions", "all", "quota", "resourcequota", "resourcequotas",
    "lease", "leases", "pdb", "poddisruptionbudget", "networkpolicy", "networkpolicies", "netpol",
    "mutatingwebhookconfiguration", "mutatingwebhookconfigurations", "validatingadmissionpolicy",
    "validatingadmissionpolicies", "validatingadmissionpolicybinding", "validatingadmissionpolicybindings",
    "clusterrole", "clusterroles", "clusterrolebinding", "clusterrolebindings", "role", "roles", "rolebinding",
    "rolebindings", "priorityclass", "priorityclasses", "runtimeclass", "runtimeclasses", "endpointslice",
    "endpointslices", "pvc", "pv", "statefulset", "statefulsets", "replicaset", "replicasets", "cronjob",
    "cronjobs", "servicemonitor", "servicemonitors", "orion",
    "resourceclaim", "resourceclaims", "resourceclaimtemplate", "resourceclaimtemplates", "resourceslice",
    "resourceslices", "deviceclass", "deviceclasses",
}  # fmt: skip


def faults(program: str, words: Sequence[str], root: Path) -> list[str]:
    """Return the faults of a command of `kubectl` or `helm`, given its words."""
    flags = _KUBECTL_FLAGS if program == "kubectl" else _HELM_FLAGS
    positional, given, unknown = _parsed(words, flags, program == "kubectl" and "logs" in words)
    found = [f"`{program}` has no flag {flag} that tools/docs/kubernetes.py lists" for flag in unknown]
    if positional:
        found += _kubectl(positional, given) if program == "kubectl" else _helm(positional, given, root)
    return found


def _parsed(
    words: Sequence[str], flags: Mapping[str, bool], follows: bool
) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Return positional words, flags with their values, and unknown flags; `-f` of `kubectl logs` takes no value."""
    positional, given, unknown = [], [], []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        flag, equals, value = word.partition("=")
        if flag not in flags:
            unknown.append(flag)
        elif flags[flag] and not equals and left and not (flag == "-f" and follows):
            value = left.pop(0)
        given.append((flag, value))
    return positional, given, unknown


# -- kubectl -----------------------------------------------------------------------------------------------------------


def kind_of(word: str) -> Kind | None:
    """Return which of our kinds a word on kubectl's command line names."""
    names = {each.full_name: each for each in KINDS}
    for each in KINDS:
        names |= dict.fromkeys((each.plural, each.singular, *each.short, each.name.lower()), each)
    return names.get(word.lower())


def _kubectl(positional: Sequence[str], given: Sequence[tuple[str, str]]) -> list[str]:
    verb, *rest = positional
    if verb == "rollout":
        rest = rest[1:]
    elif verb not in (*_TYPED, *_PODS, *_OTHER):
        return [f"`kubectl` has no verb {verb} that tools/docs/kubernetes.py lists"]
    if verb == "explain" and rest:
        return _explained(rest[0])
    found = []
    if verb in (*_TYPED, "rollout") and rest:
        found = [fault for each in rest[0].split(",") if (fault := _type_fault(each))]
    found += [fault for each in rest if (fault := _definition_fault(each))]
    if verb == "patch" and rest and (kind := kind_of(rest[0].partition("/")[0])):
        found += [fault for flag, value in given if flag in ("-p", "--patch") for fault in _patched(kind, value)]
    return found


def _type_fault(word: str) -> str:
    name = word.partition("/")[0]
    if _PLACEHOLDER.fullmatch(name) or name.lower() in _BUILT_IN or kind_of(name):
        return ""
    return f"`kubectl` has no kind {name} that tools/docs/kubernetes.py lists"


def _definition_fault(word: str) -> str:
    """Return the fault in the name of one of our CRDs, such as crd/gpushares.orion.gpu."""
    name = word.rpartition("/")[2]
    if name.endswith(".orion.gpu") and not kind_of(name):
        return f"there is no definition {name}"
    return ""


def _explained(path: str) -> list[str]:
    """Return the fault in the path of a field of `kubectl explain`."""
    name, *fields = path.split(".")
    kind = kind_of(name)
    if kind is None:
        return [fault] if (fault := _type_fault(name)) else []
    node = structural(kind.model)
    for field in fields:
        node = node.get("items", node)
        if field not in node.get("properties", {}):
            return [f"{kind.name} has no field {'.'.join(fields)}"]
        node = node["properties"][field]
    return []


def _patched(kind: Kind, text: str) -> list[str]:
    """Return the faults of a merge patch of an object's spec."""
    try:
        spec = json.loads(text).get("spec", {})
        model = kind.model.model_fields["spec"].annotation
        fields = {field.alias or name for name, field in model.model_fields.items()} if model else set()
        unknown = sorted(spec.keys() - fields)
        if not unknown and model and all(not each.is_required() for each in model.model_fields.values()):
            model.read_strictly(spec, "spec")
    except (ValueError, AttributeError, Unreadable) as error:
        return [f"the patch {text} cannot be read: {error}"]
    return [f"{kind.name} has no field spec.{name}" for name in unknown]


# -- helm --------------------------------------------------------------------------------------------------------------


def _helm(positional: Sequence[str], given: Sequence[tuple[str, str]], root: Path) -> list[str]:
    verb = positional[0]
    if verb not in _HELM_VERBS:
        return [f"`helm` has no verb {verb} that tools/docs/kubernetes.py lists"]
    found = []
    for flag, value in given:
        if flag in ("--set", "--set-string", "--set-json", "--set-file"):
            found += values.setting_faults(value, root)
    return found
