{{/*
Parts that DaemonSet `node` and DaemonSet `mps` share.
*/}}

{{/* The node selector. Simulated GPUs need no opt-in label, because nobody else uses them. */}}
{{- define "orion.nodesWithGPUs" -}}
{{- $os := dict "kubernetes.io/os" "linux" -}}
{{- if or .Values.node.everywhere (gt (int .Values.simulatedGPUs) 0) }}
{{- toYaml $os }}
{{- else }}
{{- merge $os (default dict .Values.node.nodeSelector) | toYaml }}
{{- end }}
{{- end }}

{{/*
Where a DaemonSet's pods run. They also run on nodes with the startup taint: the operator removes that taint once these pods have
brought the slots (docs/autoscaling.md). Argument: (list root values).
*/}}
{{- define "orion.nodePlacement" -}}
{{- $values := index . 1 -}}
{{- $taint := dict "key" "startup-taint.cluster-autoscaler.kubernetes.io/orion" "operator" "Exists" -}}
{{- $tolerations := prepend (default list $values.tolerations) $taint -}}
{{- include "orion.placement" (list (index . 0) (mustMergeOverwrite (dict) $values (dict "tolerations" $tolerations))) }}
{{- end }}

{{- define "orion.nodeName" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}

{{/* Not empty if a node's device plugin must find device nodes and libraries itself (device-nodes). */}}
{{- define "orion.seesHost" -}}
{{- $strategies := list .Values.nodeConfiguration.deviceListStrategy -}}
{{- range .Values.nodeConfiguration.nodes -}}
{{- $strategies = append $strategies (default "" .deviceListStrategy) -}}
{{- end -}}
{{- if has "device-nodes" $strategies }}true{{ end }}
{{- end }}

{{/* Environment that makes NVIDIA's runtime give a container all GPUs. Argument: (list root capabilities). */}}
{{- define "orion.visibleGPUs" -}}
{{- $mounts := eq (index . 0).Values.node.gpuAccess "volume-mounts" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: {{ ternary "/var/run/nvidia-container-devices" "all" $mounts }}}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: {{ index . 1 | quote }}}
{{- end }}

{{/* A volume. The names of its mounts select the GPUs that NVIDIA's toolkit gives a container. */}}
{{- define "orion.noDevice" -}}
- name: no-device
  hostPath: {path: /dev/null}
{{- end }}
