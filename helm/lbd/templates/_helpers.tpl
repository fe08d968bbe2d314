{{/* The chart's name, or what is wanted instead. */}}
{{- define "lbd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Release and chart name in one; short enough for what a StatefulSet and a CronJob append. */}}
{{- define "lbd.fullname" -}}
{{- $name := include "lbd.name" . -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $both .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lbd.serviceAccountName" -}}
{{- default (ternary (include "lbd.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Labels by which the daemon's pods are found. They never change: a StatefulSet's selector cannot. */}}
{{- define "lbd.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lbd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: daemon
{{- end -}}

{{/* Labels of everything. Arguments: the root, and the component. */}}
{{- define "lbd.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "lbd.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lbd.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The claim of a replica's state directory. Arguments: the root, and the replica's number. */}}
{{- define "lbd.claim" -}}
{{- $root := index . 0 -}}
{{- default (printf "state-%s-%d" (include "lbd.fullname" $root) (int (index . 1))) $root.Values.persistence.existingClaim -}}
{{- end -}}

{{/* A probe: the API is asked where the kubelet can reach it, else lbd's own command, by the age of the last turn. It reads
neither settings nor environment: the daemon keeps those that it has where the ConfigMap is broken, and must not be restarted.
Arguments: the root, the path, the values of this probe, and the times where the API is asked. */}}
{{- define "lbd.probe" -}}
{{- $root := index . 0 -}}
{{- $default := dict "exec" (dict "command" (list "env" "-i" "/opt/lbd/bin/lbd" "status" "--config" "/dev/null")) "initialDelaySeconds" 10 "periodSeconds" 60 "timeoutSeconds" 20 "failureThreshold" 5 -}}
{{- if include "lbd.apiPort" $root -}}
{{- $asked := dict "path" (index . 1) "port" "api" "scheme" (include "lbd.apiScheme" $root) -}}
{{- $default = merge (dict "httpGet" $asked) (index . 3) -}}
{{- end -}}
{{- toYaml (merge (deepCopy (index . 2)) $default) -}}
{{- end -}}

{{/* The settings that take effect with a restart only. */}}
{{- define "lbd.restartSettings" -}}
{{- toJson (dict "leader" .Values.config.leader "observe" (eq (toString .Values.config.mode) "observe")) -}}
{{- end -}}

{{/* lbd.yaml. */}}
{{- define "lbd.config" -}}
{{- toYaml .Values.config -}}
{{- end -}}

{{/* A section of lbd.yaml, {} where there is none, as JSON. Arguments: the root, and the section. */}}
{{- define "lbd.section" -}}
{{- toJson (default dict (get (index . 0).Values.config (index . 1))) -}}
{{- end -}}

{{- define "lbd.takesOver" -}}
{{- if eq (toString .Values.config.in_broker_shedding) "take-over" }}yes{{ end -}}
{{- end -}}

{{/* Where the API listens in the pod: on every address once there is a token for it, else where lbd does by itself. */}}
{{- define "lbd.apiListen" -}}
{{- $api := include "lbd.section" (list . "api") | fromJson -}}
{{- default (ternary "0.0.0.0:8085" "127.0.0.1:8085" (ne .Values.api.tokenSecretName "")) $api.listen -}}
{{- end -}}

{{/* Its port where it can be reached from outside the pod, else nothing. */}}
{{- define "lbd.apiPort" -}}
{{- $api := include "lbd.section" (list . "api") | fromJson -}}
{{- $listen := include "lbd.apiListen" . -}}
{{- $off := and (hasKey $api "enabled") (not $api.enabled) -}}
{{- if not (or $off (hasPrefix "127." $listen) (hasPrefix "[::1]" $listen)) -}}
{{- regexFind "[0-9]+$" $listen -}}
{{- end -}}
{{- end -}}

{{- define "lbd.apiScheme" -}}
{{- ternary "HTTPS" "HTTP" (ne .Values.api.tlsSecretName "") -}}
{{- end -}}

{{/* Where each existing Secret is mounted, and the variable that tells lbd. YAML list of {secret, folder, items, env}. */}}
{{- define "lbd.secrets" -}}
{{- with .Values.token }}{{ if .secretName }}
- secret: {{ .secretName }}
  folder: token
  items: [{key: {{ .key }}, path: token}]
  env: {LBD_PULSAR__TOKEN_FILE: token}
{{- end }}{{ end }}
{{- with .Values.oauth2 }}{{ if .secretName }}
- secret: {{ .secretName }}
  folder: oauth2
  items: [{key: {{ .key }}, path: oauth2.json}]
  env: {LBD_PULSAR__OAUTH2__PRIVATE_KEY_FILE: oauth2.json}
{{- end }}{{ end }}
{{- with .Values.tls.ca }}{{ if .secretName }}
- secret: {{ .secretName }}
  folder: ca
  items: [{key: {{ .key }}, path: ca.crt}]
  env: {LBD_PULSAR__TLS__CA_FILE: ca.crt}
{{- end }}{{ end }}
{{- with .Values.tls.client }}{{ if .secretName }}
- secret: {{ .secretName }}
  folder: client
  items: [{key: {{ .certKey }}, path: tls.crt}, {key: {{ .keyKey }}, path: tls.key}]
  env: {LBD_PULSAR__TLS__CERT_FILE: tls.crt, LBD_PULSAR__TLS__KEY_FILE: tls.key}
{{- end }}{{ end }}
{{- with .Values.api }}{{ if .tokenSecretName }}
- secret: {{ .tokenSecretName }}
  folder: api-token
  items: [{key: {{ .tokenKey }}, path: token}{{ if .tokensKey }}, {key: {{ .tokensKey }}, path: tokens}{{ end }}]
  env: {LBD_API__TOKEN_FILE: token{{ if .tokensKey }}, LBD_API__TOKENS_FILE: tokens{{ end }}}
{{- end }}{{ if .tlsSecretName }}
- secret: {{ .tlsSecretName }}
  folder: api-tls
  items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
  env: {LBD_API__TLS__CERT_FILE: tls.crt, LBD_API__TLS__KEY_FILE: tls.key}
{{- end }}{{ end }}
{{- with .Values.notify }}{{ if .secretName }}
- secret: {{ .secretName }}
  folder: notify
  items: [{key: {{ .key }}, path: url}]
  env: {LBD_NOTIFY__URL_FILE: url}
{{- end }}{{ end }}
{{- end -}}

{{- define "lbd.env" -}}
{{- if .Values.api.tokenSecretName }}
- name: LBD_API__LISTEN
  value: {{ include "lbd.apiListen" . | quote }}
{{- end }}
{{- range include "lbd.secrets" . | fromYamlArray }}
{{- $folder := .folder }}
{{- range $name, $file := .env }}
- name: {{ $name }}
  value: /var/run/secrets/lbd/{{ $folder }}/{{ $file }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts of settings, secrets and scratch space: whole folders, so that a new secret arrives. */}}
{{- define "lbd.mounts" -}}
- {name: config, mountPath: /etc/lbd, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- range include "lbd.secrets" . | fromYamlArray }}
- {name: secret-{{ .folder }}, mountPath: /var/run/secrets/lbd/{{ .folder }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes for these mounts. Arguments: the root, and the name of the ConfigMap. */}}
{{- define "lbd.volumes" -}}
{{- $root := index . 0 -}}
- name: config
  configMap: {name: {{ index . 1 }}}
- name: tmp
  emptyDir: {}
{{- range include "lbd.secrets" $root | fromYamlArray }}
- name: secret-{{ .folder }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      {{- toYaml .items | nindent 6 }}
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What every pod of this chart has. Arguments: the root. */}}
{{- define "lbd.podCommon" -}}
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
