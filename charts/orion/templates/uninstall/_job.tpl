{{/*
A Job of an uninstall. It runs on the operator's nodes, and always ends in time, even if no node can run it or pull its image.
Argument: a dict with root, component (the name of Job, account and container), seconds, tries and args.
*/}}
{{- define "orion.uninstallJob" -}}
{{- $root := .root }}
{{- $operator := $root.Values.operator }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "orion.fullname" $root }}-{{ .component }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "orion.labels" (list $root .component) | nindent 4 }}
  annotations:
    {{- $own := dict "helm.sh/hook-weight" "0" "helm.sh/hook-output-log-policy" "hook-failed" }}
    {{- include "orion.annotations" (list $root .component $own) | nindent 4 }}
spec:
  activeDeadlineSeconds: {{ .seconds }}
  backoffLimit: {{ .tries }}
  ttlSecondsAfterFinished: 600 # deletes the Job if Helm was interrupted
  template:
    metadata:
      {{- include "orion.podMetadata" (list $root $operator .component) | nindent 6 }}
    spec:
      restartPolicy: Never # keeps the pod of a failed try, so that Helm can show its log
      serviceAccountName: {{ include "orion.serviceAccount" (list $root .component) | quote }}
      securityContext:
        {{- include "orion.restrictedPod" $root | nindent 8 }}
      {{- include "orion.placement" (list $root (merge (dict "terminationGracePeriodSeconds" 1) $operator)) | nindent 6 }}
      nodeSelector:
        {{- merge (dict "kubernetes.io/os" "linux") (default dict $operator.nodeSelector) | toYaml | nindent 8 }}
      containers:
        - name: {{ .component }}
          image: {{ include "orion.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- range .args }}
            - {{ . }}
            {{- end }}
          {{- with $operator.extraEnv }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            {{- include "orion.tokenMount" $root | nindent 12 }}
          securityContext:
            {{- include "orion.unprivilegedContainer" $root | nindent 12 }}
          resources:
            requests: {cpu: 10m, memory: 96Mi}
            limits: {memory: 512Mi}
      volumes:
        {{- include "orion.tokenVolume" $root | nindent 8 }}
{{- end }}
