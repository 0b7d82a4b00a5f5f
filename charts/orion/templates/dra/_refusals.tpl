{{/*
Refuses an upgrade after which a pod would be without the program that gave it its slot. Without the device plugin its containers
could not restart; without the DRA driver it could not end. A pod that waits with a claim would wait for ever without the driver.
A change to by-node is always possible, as it has both. It reads the GPUs and claims of the cluster.
*/}}
{{- define "orion.refuseToChangeAllocation" -}}
{{- $full := include "orion.fullname" . -}}
{{- $new := .Values.allocation -}}
{{- $node := lookup "apps/v1" "DaemonSet" .Release.Namespace (printf "%s-node" $full) -}}
{{- if and .Release.IsUpgrade $node (ne $new "by-node") (.Capabilities.APIVersions.Has "orion.gpu/v1alpha1") -}}
{{- $before := "device-plugin" -}}
{{- if lookup "apps/v1" "DaemonSet" .Release.Namespace (printf "%s-dra-driver" $full) -}}
{{- $before = "dra" -}}
{{- range $node.spec.template.spec.containers -}}
{{- if eq .name "device-plugin" -}}{{- $before = "by-node" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne $before $new -}}
{{- range (lookup "orion.gpu/v1alpha1" "GPUDevice" "" "").items -}}
{{- $status := default dict .status -}}
{{- $giver := default $before $status.allocation -}}
{{- with $status.heldSlots -}}
{{- if ne $giver $new -}}
{{- $pod := default dict (first .).pod -}}
{{- include "orion.refuse" (printf "pods hold slots (%s/%s has %s), and allocation would change from %s to %s: their containers could not restart, or the pods not end. End these pods first, or choose allocation=by-node and move node by node; `kubectl get gpudevices` shows the pods." (default "?" $pod.namespace) (default "?" $pod.name) (first .).name $before $new) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $new "device-plugin" -}}
{{- range (lookup "resource.k8s.io/v1" "ResourceClaim" "" "").items -}}
{{- $claim := . -}}
{{- $pod := default dict (first (default list .metadata.ownerReferences)) -}}
{{- /* A claim whose pod has just gone follows it in a moment. */ -}}
{{- $follows := or .metadata.deletionTimestamp (and (eq (default "" $pod.kind) "Pod") (not (lookup "v1" "Pod" .metadata.namespace $pod.name))) -}}
{{- range default list (dig "spec" "devices" "requests" list .) -}}
{{- range default (list (default dict .exactly)) .firstAvailable -}}
{{- if and (not $follows) (has .deviceClassName (list "orion-hp" "orion-be")) -}}
{{- include "orion.refuse" (printf "ResourceClaim %s/%s asks for a GPU of Orion, and allocation would change from %s to device-plugin: the pods that have it or wait for it would stay as they are for ever. Delete these pods first, and claims that people wrote; `kubectl get resourceclaims -A` shows the claims." $claim.metadata.namespace $claim.metadata.name $before) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
