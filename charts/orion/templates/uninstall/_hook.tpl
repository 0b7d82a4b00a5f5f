{{/*
When the objects of the cleanup are there: from the deletion of everything else on, for then nobody has the right any more
to write anew what is taken away; and a failure there is told, while one before it would keep the release. Helm deletes
all of them behind the Job, done or failed. They stay where it cannot make one of them, or is cut off; so what gives rights
comes as late as it can (of one weight Helm makes roles and bindings last). docs/uninstalling.md says how they go then.
*/}}
{{- define "orion.cleanupHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: "-1" # before the Job, behind the policy
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}
