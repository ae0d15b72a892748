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

{{- /* The policy, with the namespace of units that name none. */ -}}
{{- define "policy" -}}
{{- if hasKey .Values.policy.namespaces .Release.Namespace }}{{ fail "the relay's own namespace holds no units: remove it from policy.namespaces" }}{{ end -}}
{{- if eq .Values.unitNamespace .Release.Namespace }}{{ fail "the relay's own namespace holds no units: install it into another one than `unitNamespace`" }}{{ end -}}
{{- $policy := deepCopy .Values.policy -}}
{{- if not (hasKey $policy.namespaces .Values.unitNamespace) }}{{ $_ := set $policy.namespaces .Values.unitNamespace list }}{{ end -}}
{{- toYaml $policy }}
{{- end -}}

{{- define "secret" -}}
{{ .Values.signing.existingSecret | default "ebb-relay-signing" }}
{{- end -}}
