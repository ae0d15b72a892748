{{- /* By which objects of the relay select its pods. There is one relay in a namespace, so objects of it have one name. */ -}}
{{- define "selector" -}}
app.kubernetes.io/name: ebb-relay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Of every object. */ -}}
{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* Objects outside of its namespace, of which others may have as many. */ -}}
{{- define "name-in-cluster" -}}
ebb-relay:{{ .Release.Namespace }}
{{- end -}}

{{- /* Binds a role of the relay to its account. */ -}}
{{- define "binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "labels" .top | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .role }}, name: {{ .name | quote }}}
subjects:
  - kind: ServiceAccount
    name: ebb-relay
    namespace: {{ .top.Release.Namespace }}
{{- end -}}

{{- /* A Role of the relay in a namespace, with its binding. */ -}}
{{- define "role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "labels" .top | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
{{ include "binding" (merge (dict "kind" "RoleBinding" "role" "Role") .) }}
{{- end -}}

{{- /* A ClusterRole that has the rules of all others with a label. */ -}}
{{- define "aggregated" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- include "labels" .top | nindent 4 }}
aggregationRule:
  clusterRoleSelectors:
    - matchLabels: { {{- .label }}: "true"}
{{- end -}}

{{- /* The policy, with the settings of the profile, and the namespace of units that name none. */ -}}
{{- define "policy" -}}
{{- if hasKey .Values.policy.namespaces .Release.Namespace }}{{ fail "the relay's own namespace holds no units: remove it from policy.namespaces" }}{{ end -}}
{{- if has .Release.Namespace .Values.policy.bindNamespaces }}{{ fail "the relay's own namespace holds no bound objects: remove it from policy.bindNamespaces" }}{{ end -}}
{{- if eq .Values.unitNamespace .Release.Namespace }}{{ fail "the relay's own namespace holds no units: install it into another one than `unitNamespace`" }}{{ end -}}
{{- $policy := deepCopy .Values.policy -}}
{{- $level := ternary "baseline" "restricted" (eq .Values.profile "baseline") -}}
{{- $_ := set $policy "podSecurityLevel" ($policy.podSecurityLevel | default $level) -}}
{{- if eq .Values.profile "signadot" -}}
{{- $entry := get $policy.namespaces "signadot" | default dict -}}
{{- if kindIs "slice" $entry }}{{ $entry = dict "serviceAccounts" $entry }}{{ end -}}
{{- $_ := set $policy.namespaces "signadot" (merge $entry (dict "level" "baseline")) -}}
{{- $_ := set $policy "kinds" (concat $policy.kinds (list "ConfigMap" "Secret") | uniq) -}}
{{- end -}}
{{- $_ := set $policy "kinds" (concat $policy.kinds (keys .Values.grantedKinds | sortAlpha) | uniq) -}}
{{- $_ := set $policy "clusterKinds" (concat $policy.clusterKinds (keys .Values.grantedClusterKinds | sortAlpha) | uniq) -}}
{{- if not (hasKey $policy.namespaces .Values.unitNamespace) }}{{ $_ := set $policy.namespaces .Values.unitNamespace list }}{{ end -}}
{{- toYaml $policy }}
{{- end -}}

{{- /* The namespaces of the policy, each with its level and its service accounts. */ -}}
{{- define "namespaces" -}}
{{- $policy := include "policy" . | fromYaml -}}
{{- $all := dict -}}
{{- range $name, $entry := $policy.namespaces -}}
{{- if kindIs "slice" $entry }}{{ $entry = dict "serviceAccounts" $entry }}{{ end -}}
{{- $_ := set $all $name (dict "level" ($entry.level | default $policy.podSecurityLevel) "serviceAccounts" ($entry.serviceAccounts | default list)) -}}
{{- end -}}
{{- toYaml $all }}
{{- end -}}

{{- /* True if the relay registers itself. */ -}}
{{- define "registers" -}}
{{- if not (or .Values.signing.existingSecret .Values.signing.secret) }}true{{ end -}}
{{- end -}}

{{- /* The Secret with the bootstrap token or the signing secret. */ -}}
{{- define "secret" -}}
{{- if include "registers" . -}}
{{- if not .Values.pull.cluster }}{{ fail "pull.cluster: by which name the control plane knows this cluster, because the relay registers itself without `signing`" }}{{ end -}}
{{- if not (or .Values.pull.url .Values.bootstrap.url) }}{{ fail "pull.url or bootstrap.url: where the relay registers itself" }}{{ end -}}
{{ .Values.bootstrap.existingSecret | default "ebb-relay-bootstrap" }}
{{- else -}}
{{- if or .Values.bootstrap.existingSecret .Values.bootstrap.token }}{{ fail "a relay with `signing` does not register itself: remove `signing` or `bootstrap`" }}{{ end -}}
{{ .Values.signing.existingSecret | default "ebb-relay-signing" }}
{{- end -}}
{{- end -}}

{{- /* Fails if the namespace has the relay of another cluster or control plane, which the release would replace. `helm template` sees none. */ -}}
{{- define "no-other-relay" -}}
{{- $pull := .Values.pull.url | default .Values.bootstrap.url -}}
{{- $register := .Values.bootstrap.url | default .Values.pull.url -}}
{{- $own := dict "EBB_RELAY_CLUSTER" .Values.pull.cluster "EBB_RELAY_PULL_URL" $pull "EBB_URL" $register -}}
{{- range dig "spec" "template" "spec" "containers" list (lookup "apps/v1" "Deployment" .Release.Namespace "ebb-relay") -}}
{{- range .env -}}
{{- $value := get $own .name | trimSuffix "/" -}}
{{- if and $value .value (ne $value (trimSuffix "/" .value)) -}}
{{- fail (printf "the namespace %s has a relay with %s=%s, which this release would replace by one with %s: install into another namespace, or, if that relay is not needed, run `kubectl delete deployment ebb-relay --namespace %s`" $.Release.Namespace .name .value $value $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Fails if a namespace is missing in which the release only makes a Role. `helm template` sees none. */ -}}
{{- define "namespaces-exist" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- $used := .Values.policy.bindNamespaces -}}
{{- range .Values.policy.services }}{{ $used = append $used .namespace }}{{ end -}}
{{- $created := list -}}
{{- range .Values.createNamespaces }}{{ if kindIs "string" . }}{{ $created = append $created . }}{{ else }}{{ $created = append $created .name }}{{ end }}{{ end -}}
{{- range $used -}}
{{- if not (or (has . $created) (lookup "v1" "Namespace" "" .)) -}}
{{- fail (printf "the namespace %s of `bindNamespaces` or of a service does not exist, and the chart does not create it: run `kubectl create namespace %s`, or remove it from the values" . .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
