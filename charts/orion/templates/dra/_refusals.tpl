{{/*
Refuses an upgrade that changes how pods get slots while pods hold slots. Without the device plugin no container of theirs could
restart; without the DRA driver they could not end. It reads the GPUs of the cluster.
*/}}
{{- define "orion.refuseToChangeAllocation" -}}
{{- $full := include "orion.fullname" . -}}
{{- if and .Release.IsUpgrade (lookup "apps/v1" "DaemonSet" .Release.Namespace (printf "%s-node" $full)) (.Capabilities.APIVersions.Has "orion.gpu/v1alpha1") -}}
{{- $before := ternary "dra" "device-plugin" (not (empty (lookup "apps/v1" "DaemonSet" .Release.Namespace (printf "%s-dra-driver" $full)))) -}}
{{- if ne $before .Values.allocation -}}
{{- range (lookup "orion.gpu/v1alpha1" "GPUDevice" "" "").items -}}
{{- with (default dict .status).heldSlots -}}
{{- $pod := default dict (first .).pod -}}
{{- include "orion.refuse" (printf "pods hold slots (%s/%s has %s), and allocation would change from %s to %s: their containers could not restart, or the pods not end. End these pods first; `kubectl get gpudevices` shows them." (default "?" $pod.namespace) (default "?" $pod.name) (first .).name $before $.Values.allocation) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
