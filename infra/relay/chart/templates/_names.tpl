{{- /* Of every object. There is one relay in a namespace, so objects of it have one name. */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: ebb-relay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Objects outside of its namespace, of which others may have as many. */ -}}
{{- define "name-in-cluster" -}}
ebb-relay:{{ .Release.Namespace }}
{{- end -}}

{{- define "account" -}}
- kind: ServiceAccount
  name: ebb-relay
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- /* What is allowed, with the namespace of units that name none. */ -}}
{{- define "allowed" -}}
{{- if hasKey .Values.allowed.namespaces .Release.Namespace }}{{ fail "the relay's own namespace is nobody's: take it out of allowed.namespaces" }}{{ end -}}
{{- if eq .Values.units .Release.Namespace }}{{ fail "the relay's own namespace is nobody's: install it into another one than `units`" }}{{ end -}}
{{- $allowed := deepCopy .Values.allowed -}}
{{- if not (hasKey $allowed.namespaces .Values.units) }}{{ $_ := set $allowed.namespaces .Values.units list }}{{ end -}}
{{- toYaml $allowed }}
{{- end -}}

{{- define "secret" -}}
{{ .Values.signing.existingSecret | default "ebb-relay-signing" }}
{{- end -}}
