{{/*
Labels. The selector of an existing Deployment or DaemonSet cannot change, so selectors contain only the three labels that
never change.
*/}}

{{/* The labels in selectors. Argument: (list root component); an empty component selects the whole release. */}}
{{- define "orion.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "orion.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* Labels of pods. They contain no version, so that an upgrade which does not change a pod does not replace it. */}}
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
The annotations of an object as a map. The components of an uninstall get Helm's hook annotations here.
Argument: (list root component own).
*/}}
{{- define "orion.annotations" -}}
{{- $root := index . 0 -}}
{{- $hook := dict -}}
{{- $hooks := dict "cleanup" "orion.cleanupHook" "await-claims" "orion.awaitClaimsHook" -}}
{{- with get $hooks (index . 1) -}}{{- $hook = include . $root | fromYaml -}}{{- end -}}
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
