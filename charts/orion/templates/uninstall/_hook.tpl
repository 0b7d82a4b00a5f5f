{{/*
When the cleanup's objects exist. Helm creates them after it has deleted everything else: then no component can write again
what the Job removes. Helm also reports a failure at that point, while an earlier failure would keep the release. Helm deletes
these objects after the Job, whether it succeeds or fails. They remain if Helm cannot create one of them or is interrupted. So
the objects that give rights come as late as possible (within one weight Helm creates roles and bindings last).
docs/uninstalling.md says how to remove them.
*/}}
{{- define "orion.cleanupHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: "-1" # before the Job, behind the policy
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}
