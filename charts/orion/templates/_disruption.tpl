{{/* Limits how many replicas of a Deployment a drain may evict at once. Argument: (list root component). */}}
{{- define "orion.disruptionBudget" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
{{- $budget := default dict $values.podDisruptionBudget -}}
{{- if and $budget.enabled (gt (int $values.replicas) 1) }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "orion.metadata" (list (index . 0) (index . 1) (index . 1)) | nindent 2 }}
spec:
  maxUnavailable: {{ $budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow # a pod that does not run must not stop a drain
  selector:
    matchLabels:
      {{- include "orion.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end }}
