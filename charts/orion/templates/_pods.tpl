{{/*
Parts that the pods of all components share.
*/}}

{{/* Where a pod runs, and under which account; at the indentation of a pod's spec. Argument: (list root values component). */}}
{{- define "orion.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
automountServiceAccountToken: false # containers that need the token mount it explicitly
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Spreads a Deployment's replicas over nodes, unless the values say otherwise. Argument: (list root values component). */}}
{{- define "orion.spread" -}}
{{- $values := index . 1 -}}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "orion.selectorLabels" (list (index . 0) (index . 2)) | nindent 8 }}
{{- end }}
{{- end }}

{{/* Metadata of a pod template. Argument: (list root values component). */}}
{{- define "orion.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
labels:
  {{- mustMergeOverwrite (include "orion.podLabels" (list $root (index . 2)) | fromYaml) (default dict $values.podLabels) | toYaml | nindent 2 }}
{{- with mustMergeOverwrite (dict) (default dict $root.Values.commonAnnotations) (default dict $values.podAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The security context of pods that need nothing of the node: it meets the pod security standard `restricted`. */}}
{{- define "orion.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "orion.unprivilegedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/*
The token of a container that calls the API server. Only that container gets the token. It is bound to the pod, so that it
names the pod's node (files/agent-policy.yaml), and the kubelet renews it.
*/}}
{{- define "orion.tokenMount" -}}
- {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- define "orion.tokenVolume" -}}
- name: token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end }}
