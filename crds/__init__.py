"""The API types of `orion.gpu/v1alpha1`, one file a kind; README.md says what this room must not know.

share       GPUShare: how a set of pods shares GPUs (its rules: share_rules; what is said of it: share_status)
device      GPUDevice: one physical GPU
profile     GPUProfile: what was measured of a workload (as a file: profile_file)
annotations names of annotations, labels and resources; what a pod's annotations say
grant       what a pod's containers may do, as an annotation carries it
policy_fields  fields of the policy, made from hook/policy_table.py
generate    the definitions for the API server, made from all of these
reference   the tables of their fields in docs/

Beside them the configuration of nodes, a file and no object: node_configuration, which configuration_file follows.
"""
