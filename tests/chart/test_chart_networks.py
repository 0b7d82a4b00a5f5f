"""Network policies: which peers reach which port, and which addresses Orion's pods reach."""

from tests.chart import rendered_chart as chart
from tests.chart.rendered_chart import EVERYTHING, Object


def test_every_metrics_port_is_scraped_and_only_by_allowed_peers(everything: list[Object]) -> None:
    monitor = chart.one(everything, "ServiceMonitor", "orion")["spec"]
    scraped = {each["port"] for each in monitor["endpoints"]}
    service = chart.one(everything, "Service", "orion-metrics")
    assert scraped == {each["targetPort"] for each in service["spec"]["ports"]}
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    advertised = {port["name"] for _, each in chart.containers(everything) for port in each.get("ports", ())}
    assert advertised == scraped | {"https", "node-pods"}
    for policy in chart.of_kind(everything, "NetworkPolicy").values():
        for rule in policy["spec"].get("ingress", ()):
            ports = {each["port"] for each in rule["ports"]}
            assert ports == {"https"} or (ports <= scraped | {"node-pods"} and rule["from"])


def test_the_labels_of_a_metric_that_name_a_tenants_pod_stay(everything: list[Object]) -> None:
    """Without this, Prometheus puts the agent's own namespace, pod and container in their place."""
    assert all(each["honorLabels"] for each in chart.one(everything, "ServiceMonitor", "orion")["spec"]["endpoints"])


def test_only_named_peers_reach_metrics() -> None:
    policies = chart.of_kind(chart.objects(), "NetworkPolicy")
    assert set(policies) == {"orion-operator", "orion-webhook", "orion-node", "orion-cleanup"}
    for name, policy in policies.items():
        ports = [each["ports"] for each in policy["spec"].get("ingress", [])]
        open_ports = {"orion-webhook": [[{"port": "https"}]], "orion-operator": [[{"port": "node-pods"}]]}
        assert ports == open_ports.get(name, [])
        assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_only_named_peers_reach_the_webhook() -> None:
    server = {"ipBlock": {"cidr": "10.0.0.1/32"}}
    found = chart.objects({"networkPolicy": {"webhookFrom": [server]}})
    (rule,) = chart.one(found, "NetworkPolicy", "orion-webhook")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "https"}]
    assert rule["from"] == [server]


def test_only_node_agents_reach_the_operator_for_their_pods() -> None:
    found = chart.objects({"networkPolicy": {"apiServerCIDRs": ["10.0.0.1/32"]}})
    policies = {name: chart.one(found, "NetworkPolicy", f"orion-{name}")["spec"] for name in ("operator", "node")}
    (rule,) = policies["operator"]["ingress"]
    assert rule["from"] == [{"podSelector": chart.one(found, "DaemonSet", "orion-node")["spec"]["selector"]}]
    (way,) = [each for each in policies["node"]["egress"] if each["ports"] == [{"port": "node-pods"}]]
    assert way["to"] == [{"podSelector": chart.one(found, "Deployment", "orion-operator")["spec"]["selector"]}]
    service = chart.one(found, "Service", "orion-operator")["spec"]
    assert [each["targetPort"] for each in service["ports"]] == ["node-pods"]


def test_egress_is_limited_if_the_api_server_is_named(everything: list[Object]) -> None:
    for name, policy in chart.of_kind(everything, "NetworkPolicy").items():
        assert "Egress" in policy["spec"]["policyTypes"]
        assert ("egress" in policy["spec"]) is (name != "orion-mps")


def test_pods_may_have_equal_ports_but_the_service_may_not() -> None:
    monitored = {
        "operator": {"port": 9435},
        "monitoring": EVERYTHING["monitoring"],
        "networkPolicy": {"enabled": False},
    }
    ports = chart.one(chart.objects(monitored), "Service", "orion-metrics")["spec"]["ports"]
    assert len({each["port"] for each in ports}) == len(ports)


def test_the_address_of_an_api_server_may_be_ipv6() -> None:
    values = {"networkPolicy": {"apiServerCIDRs": ["::/0", "fd00::1/128"]}}
    rules = chart.one(chart.objects(values), "NetworkPolicy", "orion-operator")["spec"]["egress"]
    assert [each["ipBlock"]["cidr"] for each in rules[0]["to"]] == ["::/0", "fd00::1/128"]
