{{/*
When the objects of the cleanup are there: from the deletion of everything else on, for then nobody has the right any more
to write anew what is taken away; and a failure there is told, while one before it would keep the release. None stays.
*/}}
{{- define "orion.cleanupHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: "-1" # before the Job
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}
