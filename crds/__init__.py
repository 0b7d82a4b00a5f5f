"""The API types of `orion.gpu/v1alpha1`, one file for each kind; README.md says what this package may import.

share       GPUShare: how a set of pods shares GPUs (rules between its fields: share_rules; its status: share_status)
device      GPUDevice: one physical GPU
profile     GPUProfile: measurements of a workload's kernels (as a file: profile_file)
annotations names of annotations, labels and resources; parses a pod's annotations
grant       what a pod's containers may do, as JSON in an annotation
policy_fields  fields of the policy, made from hook/policy_table.py
generate    writes the CustomResourceDefinitions
reference   writes the tables of fields in docs/

node_configuration defines the configuration of nodes, which is a file and not an API object; configuration_file
rereads that file.
"""
