{{- define "contexture.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "contexture.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "contexture.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "contexture.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "contexture.selector" -}}
app.kubernetes.io/name: {{ include "contexture.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "contexture.labels" -}}
{{ include "contexture.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Both containers of a pod: the migration and the gateway. */ -}}
{{- define "contexture.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - secretRef:
      name: {{ .Values.secret }}
env:
  # A folder of the gateway's own in the volume, which belongs to root.
  - name: CONTEXTURE_HOME
    value: /var/lib/contexture/home
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: config
    mountPath: /etc/contexture
    readOnly: true
  - name: data
    mountPath: /var/lib/contexture
  - name: tmp
    mountPath: /tmp
  {{- if .Values.tlsSecret }}
  - name: tls
    mountPath: /etc/contexture-tls
    readOnly: true
  {{- end }}
{{- end }}

{{- define "contexture.config" -}}
{{- $files := dict "certificate" "/etc/contexture-tls/tls.crt" "key" "/etc/contexture-tls/tls.key" }}
{{- $tls := ternary (dict "gateway" (dict "tls" $files)) dict (ne .Values.tlsSecret "") }}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $tls) }}
{{- end }}

{{- define "contexture.scheme" -}}
{{- ternary "HTTPS" "HTTP" (ne .Values.tlsSecret "") }}
{{- end }}
