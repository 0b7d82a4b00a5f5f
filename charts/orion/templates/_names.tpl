{{/*
Names: of the release's objects, and of images. What the API server sees once in a cluster (roles, policies, the webhook
configuration) is named by the release too.
*/}}

{{- define "orion.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 40 characters, so that what is put behind it still fits a label's 63; without dots, which no Service has. */}}
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

{{/* The name here of what the shipped files call `orion` or `orion-SOMETHING`. Argument: (list root name). */}}
{{- define "orion.renamed" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $full := include "orion.fullname" $root -}}
{{- if eq $name "orion" }}{{ $full }}{{ else }}{{ regexReplaceAllLiteral "^orion-" $name (printf "%s-" $full) }}{{ end }}
{{- end }}

{{/* The account of a component. Argument: (list root component). */}}
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

{{/* A digest says all, so a tag beside it is left out. */}}
{{- define "orion.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}
