{{/*
Refuses an upgrade that removes the MPS daemon of GPUs in mode mps, because their clients would end. It reads the GPUs and nodes
of the cluster. It does not check node.affinity, and does not see when somebody removes a node's label. It ignores GPUs whose
node is gone or has no daemon any more.
*/}}
{{- define "orion.refuseToEndClients" -}}
{{- $daemons := lookup "apps/v1" "DaemonSet" .Release.Namespace (printf "%s-mps" (include "orion.fullname" .)) -}}
{{- if and .Release.IsUpgrade $daemons (.Capabilities.APIVersions.Has "orion.gpu/v1alpha1") -}}
{{- $before := default dict $daemons.spec.template.spec.nodeSelector -}}
{{- $after := include "orion.nodesWithGPUs" . | fromYaml -}}
{{- range (lookup "orion.gpu/v1alpha1" "GPUDevice" "" "").items -}}
{{- $status := default dict .status -}}
{{- $node := dict -}}
{{- if and (eq (dig "mode" "" $status) "mps") $status.node -}}
{{- $node = lookup "v1" "Node" "" $status.node -}}
{{- end -}}
{{- if and $node (include "orion.chooses" (list $before $node)) -}}
{{- $end := "" -}}
{{- if not $.Values.mps.enabled -}}
{{- $end = "mps.enabled=false ends" -}}
{{- else if not (include "orion.chooses" (list $after $node)) -}}
{{- $end = printf "node.nodeSelector no longer chooses node %s, which ends" $node.metadata.name -}}
{{- end -}}
{{- if $end -}}
{{- include "orion.refuse" (printf "GPU %s is in the mode mps, and %s its MPS daemon and all clients of the GPU. Set the GPU back first: kubectl patch gpudevice %s --type merge -p '{\"spec\":{\"mode\":\"timeslice\"}}', and wait until its mode has changed." .metadata.name $end .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Not empty if a node has all labels of a selector. Argument: (list selector node). */}}
{{- define "orion.chooses" -}}
{{- $labels := default dict (index . 1).metadata.labels -}}
{{- $all := true -}}
{{- range $key, $value := index . 0 -}}
{{- if ne (dig $key "" $labels) $value }}{{ $all = false }}{{ end -}}
{{- end -}}
{{- if $all }}true{{ end -}}
{{- end }}

{{/* Not empty if a node's driver lies outside the node's root folder. */}}
{{- define "orion.driverIsElsewhere" -}}
{{- $roots := list .Values.nodeConfiguration.driverRoot -}}
{{- range .Values.nodeConfiguration.nodes -}}
{{- $roots = append $roots (default "/" .driverRoot) -}}
{{- end -}}
{{- if without $roots "/" }}true{{ end }}
{{- end }}
