{{/* Names and labels. */}}

{{- define "skewless.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* 40 characters leave room for a stage behind it: a StatefulSet's name must fit a label, with a hash behind it. */}}
{{- define "skewless.fullname" -}}
{{- $name := include "skewless.name" . -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Prefix of topics, groups and transactional ids. */}}
{{- define "skewless.pipeline" -}}
{{- default (.Release.Name | replace "." "-") .Values.pipeline.name }}
{{- end }}

{{- define "skewless.selectorLabels" -}}
app.kubernetes.io/name: {{ include "skewless.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of pods: nothing that changes with every version, for that would roll them. Takes (dict "root" $ "component" name). */}}
{{- define "skewless.podLabels" -}}
{{- with .root.Values.commonLabels }}
{{- toYaml . }}
{{ end }}
{{- include "skewless.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* By these the pods of stages, and no others, are found by who scrapes them. */}}
{{- define "skewless.stageLabels" -}}
{{ include "skewless.selectorLabels" . }}
skewless/role: stage
{{- end }}

{{/* Labels of everything else. Takes the same. */}}
{{- define "skewless.labels" -}}
{{ include "skewless.podLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: skewless
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Everything below `metadata:` but the name. Takes root, component, and optionally labels, annotations, namespace. */}}
{{- define "skewless.metadata" -}}
namespace: {{ default .root.Release.Namespace .namespace }}
labels:
  {{- include "skewless.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Address of an image. Takes (dict "root" $ "image" values "tag" default). */}}
{{- define "skewless.image" -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry -}}
{{- with $registry }}{{ . }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .tag .image.tag }}{{ end }}
{{- end }}

{{- define "skewless.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "skewless.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* A number as it is written: Helm knows floats alone, and would write a million as 1e+06. */}}
{{- define "skewless.scalar" -}}
{{- if kindIs "float64" . }}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- else }}
{{- . }}
{{- end }}
{{- end }}
