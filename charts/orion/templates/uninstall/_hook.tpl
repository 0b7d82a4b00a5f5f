{{/*
Annotations of the cleanup's objects. Helm creates these objects after it has deleted everything else: then no component can
write again what the Job removes. If the Job fails then, Helm only reports it; a failure of an earlier hook would keep the
release. Helm deletes these objects after the Job, whether the Job succeeds or fails. They remain if Helm cannot create one of
them or is interrupted. So Helm creates the objects that give rights as late as possible (within one weight, roles and bindings
come last). docs/uninstalling.md says how to remove the objects that remain.
*/}}
{{- define "orion.cleanupHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: "-1" # before the Job, behind the policy
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{/* Annotations of the objects of the Job that runs before everything else. If it fails, Helm removes nothing. */}}
{{- define "orion.awaitClaimsHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: "-1" # before the Job
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}
