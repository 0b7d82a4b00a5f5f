{{/*
Names of the release's objects and of images. The names of cluster-wide objects (roles, policies, the webhook configuration)
also begin with the release's name.
*/}}

{{- define "orion.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
The prefix of all names. At most 40 characters, so that names with a suffix fit into a label (63 characters). No dots, which a
Service's name must not have.
*/}}
{{- define "orion.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | replace "." "-" | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The release's name for an object that the files in files/ call `orion` or `orion-SOMETHING`. Argument: (list root name). */}}
{{- define "orion.renamed" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $full := include "orion.fullname" $root -}}
{{- if eq $name "orion" }}{{ $full }}{{ else }}{{ regexReplaceAllLiteral "^orion-" $name (printf "%s-" $full) }}{{ end }}
{{- end }}

{{/* The name of a component's service account. Argument: (list root component). */}}
{{- define "orion.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $given := default dict (default dict (index $root.Values $component)).serviceAccount -}}
{{- default (printf "%s-%s" (include "orion.fullname" $root) (ternary "agent" $component (eq $component "node"))) $given.name }}
{{- end }}

{{/* The Secret that the webhook mounts. */}}
{{- define "orion.webhookSecret" -}}
{{- if eq .Values.certificates.source "given" }}
{{- .Values.certificates.given.secretName }}
{{- else if eq .Values.certificates.source "cert-manager" }}
{{- include "orion.fullname" . }}-webhook-tls
{{- else }}
{{- include "orion.fullname" . }}-webhook-certificate
{{- end }}
{{- end }}

{{/* The host name by which node agents call the operator; its certificates are for this name. */}}
{{- define "orion.operatorHost" -}}
{{- include "orion.fullname" . }}-operator.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The image's reference: with the digest if there is one, else with the tag. */}}
{{- define "orion.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}
