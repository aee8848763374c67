{{- define "headgate.name" -}}{{ .Release.Name }}{{- end }}
{{- define "headgate.labels" -}}
app.kubernetes.io/name: {{ include "headgate.name" . }}
{{- end }}
{{- define "headgate.metadata" -}}
name: {{ include "headgate.name" . }}
labels:
  {{- include "headgate.labels" . | nindent 2 }}
{{- end }}
