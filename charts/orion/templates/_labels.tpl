{{/*
Labels. The selectors of Deployments and DaemonSets cannot be changed once they exist, so of all labels they hold the
three that never change.
*/}}

{{/* Argument: (list root component); an empty component: of the whole. */}}
{{- define "orion.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "orion.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* Of pods: without versions, so that a release that changes nothing of a pod does not replace it. */}}
{{- define "orion.podLabels" -}}
{{ include "orion.selectorLabels" . }}
app.kubernetes.io/part-of: orion
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "orion.labels" -}}
{{- $root := index . 0 -}}
{{ include "orion.podLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
The annotations of an object as a map; a component that is there for the time of an uninstall says so in them.
Argument: (list root component own).
*/}}
{{- define "orion.annotations" -}}
{{- $root := index . 0 -}}
{{- $hook := ternary (include "orion.cleanupHook" $root | fromYaml) dict (eq (index . 1) "cleanup") -}}
{{- mustMergeOverwrite (dict) (default dict $root.Values.commonAnnotations) $hook (default dict (index . 2)) | toYaml }}
{{- end }}

{{/* The metadata of an object of the release's namespace. Argument: (list root component name-behind-the-full-name). */}}
{{- define "orion.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "orion.fullname" $root }}{{ with index . 2 }}-{{ . }}{{ end }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "orion.labels" (list $root (index . 1)) | nindent 2 }}
{{- with include "orion.annotations" (list $root (index . 1) dict) | fromYaml }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
