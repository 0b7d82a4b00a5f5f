{{/*
How pods get slots. Not empty if some pods get them by ResourceClaims, or as resources of a device plugin; with by-node, both.
*/}}
{{- define "orion.byClaims" -}}
{{- if ne .Values.allocation "device-plugin" }}true{{ end }}
{{- end }}

{{- define "orion.byPlugin" -}}
{{- if ne .Values.allocation "dra" }}true{{ end }}
{{- end }}
