"""The agent in a cluster: whose slots are whose, what their grants are, and what the API server is told.

running        starts all of this for one agent
pods           the pods of this node, kept current by a watch
pod_resources  the kubelet's word on which container has which device
contested      slots that the kubelet gives to two pods
identity       who holds each slot: the kubelet's word joined with the pods
grants         what the holders' annotations grant, brought to the pages; which share decides a GPU's policy
granted_policy a share's policy as the policy page has it
holding        identity and grants together: what the rest of the agent asks
state          the outcome as plain values, for whoever reports it
reporting      what the API server is told of it: GPUDevices, Events, with all that they are made from
strangers      processes on a GPU that are not under the hook
gpu_devices    one GPUDevice for each GPU: made, written, and its spec carried out
events         what people should hear of, each thing once
coexistence    GPUs that another plugin offers too

Nothing here is imported by an agent outside a cluster. The kubelet decides who holds a slot, the API server what that
pod may do; with either away, what was known last stands.
"""
