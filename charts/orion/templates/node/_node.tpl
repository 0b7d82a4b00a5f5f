{{/*
What runs on nodes has in common.
*/}}

{{/* Which nodes. Simulated GPUs need no opt-in: there is nothing that could be taken from anybody. */}}
{{- define "orion.nodesWithGPUs" -}}
{{- $os := dict "kubernetes.io/os" "linux" -}}
{{- if or .Values.node.everywhere (gt (int .Values.simulatedGPUs) 0) }}
{{- toYaml $os }}
{{- else }}
{{- merge $os (default dict .Values.node.nodeSelector) | toYaml }}
{{- end }}
{{- end }}

{{- define "orion.nodeName" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}

{{/* Not empty where a node's device plugin hands over device nodes and libraries that it has to find by itself. */}}
{{- define "orion.seesHost" -}}
{{- $strategies := list .Values.nodeConfiguration.deviceListStrategy -}}
{{- range .Values.nodeConfiguration.nodes -}}
{{- $strategies = append $strategies (default "" .deviceListStrategy) -}}
{{- end -}}
{{- if has "device-nodes" $strategies }}true{{ end }}
{{- end }}

{{/* What has NVIDIA's runtime hand all GPUs to a container. Argument: (list root capabilities). */}}
{{- define "orion.visibleGPUs" -}}
{{- $mounts := eq (index . 0).Values.node.gpuAccess "volume-mounts" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: {{ ternary "/var/run/nvidia-container-devices" "all" $mounts }}}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: {{ index . 1 | quote }}}
{{- end }}

{{/* A volume whose mounts' names say to NVIDIA's toolkit which GPUs a container sees. */}}
{{- define "orion.noDevice" -}}
- name: no-device
  hostPath: {path: /dev/null}
{{- end }}
