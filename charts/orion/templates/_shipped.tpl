{{/*
Renders the objects in files/. Tests and `make cluster` apply these files unchanged; the templates add the release's names and
labels and change nothing else.
*/}}

{{/* All objects of a file, as a YAML list. Argument: (list root path). */}}
{{- define "orion.objects" -}}
{{- range regexSplit "(?m)^---$" ((index . 0).Files.Get (index . 1)) -1 }}
- {{ fromYaml . | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}

{{/* One object under this release's name and labels. Argument: (list root object component). */}}
{{- define "orion.shipped" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $metadata := $object.metadata -}}
{{- $_ := set $metadata "name" (include "orion.renamed" (list $root $metadata.name)) -}}
{{- $_ := set $metadata "labels" (mustMergeOverwrite $metadata.labels (include "orion.labels" (list $root (index . 2)) | fromYaml)) -}}
{{- with include "orion.annotations" (list $root (index . 2) $metadata.annotations) | fromYaml -}}
{{- $_ := set $metadata "annotations" . -}}
{{- end -}}
{{- if eq $object.kind "Role" -}}
{{- $_ := set $metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- range $rule := concat (default list $object.rules) (default list (dig "spec" "matchConstraints" "resourceRules" list $object)) -}}
{{- if $rule.resourceNames -}}
{{- $names := list -}}
{{- range $rule.resourceNames -}}{{- $names = append $names (include "orion.renamed" (list $root .)) -}}{{- end -}}
{{- $_ := set $rule "resourceNames" $names -}}
{{- end -}}
{{- end -}}
{{- if and $object.spec $object.spec.policyName -}}
{{- $_ := set $object.spec "policyName" (include "orion.renamed" (list $root $object.spec.policyName)) -}}
{{- end -}}
{{ toYaml $object }}
{{- end }}

{{/* The roles of a file, and their bindings to a component's service account. Argument: (list root path component). */}}
{{- define "orion.roles" -}}
{{- $root := index . 0 -}}
{{- $component := index . 2 -}}
{{- range include "orion.objects" (list $root (index . 1)) | fromYamlArray }}
---
{{ include "orion.shipped" (list $root . $component) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .metadata.name }}
  {{- if eq .kind "Role" }}
  namespace: {{ $root.Release.Namespace | quote }}
  {{- end }}
  labels:
    {{- include "orion.labels" (list $root $component) | nindent 4 }}
  {{- with include "orion.annotations" (list $root $component dict) | fromYaml }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .metadata.name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "orion.serviceAccount" (list $root $component) | quote }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
{{- end }}

{{/* A component's service account. Argument: (list root component). */}}
{{- define "orion.account" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "orion.serviceAccount" . | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "orion.labels" . | nindent 4 }}
  {{- $own := (default dict (default dict (index $root.Values $component)).serviceAccount).annotations }}
  {{- with include "orion.annotations" (list $root $component $own) | fromYaml }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false # the pods that need a token mount it explicitly
{{- end }}
