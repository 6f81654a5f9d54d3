{{/* How it is reached, from other namespaces too. */}}
{{- define "skewless.embeddedKafka.host" -}}
{{- printf "%s-kafka.%s.svc" (include "skewless.fullname" .) .Release.Namespace }}
{{- end }}

{{/* What makes the topics there: commands that wait for the broker, and change nothing that is there. */}}
{{- define "skewless.embeddedKafka.steps" -}}
{{- if .Values.embeddedKafka.sourcePartitions }}
- name: source
  args: [produce, zipf, --file, /etc/skewless/pipeline.yaml, --create-topic, {{ .Values.embeddedKafka.sourcePartitions | quote }}, --records, "0"]
{{- end }}
{{- if eq .Values.topics.create "job" }}
- name: topics
  args: [topics, apply, --file, /etc/skewless/pipeline.yaml]
{{- end }}
{{- end }}

{{- define "skewless.embeddedKafka.env" -}}
{{ include "skewless.env" . }}
- name: SKEWLESS__KAFKA__TIMEOUT_S
  value: "300"
{{- end }}

{{/* Init containers of these, so that nothing starts before its topics are there. Takes root and own. */}}
{{- define "skewless.embeddedKafka.wait" -}}
{{- range include "skewless.embeddedKafka.steps" .root | fromYamlArray }}
- name: {{ .name }}
  {{- include "skewless.container" $ | nindent 2 }}
  args: {{ toJson .args }}
  env:
    {{- include "skewless.embeddedKafka.env" $ | nindent 4 }}
  resources:
    {{- toYaml $.root.Values.topics.job.resources | nindent 4 }}
  volumeMounts:
    {{- include "skewless.volumeMounts" $ | nindent 4 }}
{{- end }}
{{- end }}

{{/* Its pods are no part of the pipeline: the Service of the metrics must not take them for stages. */}}
{{- define "skewless.embeddedKafka.labels" -}}
{{- toYaml (dict "app.kubernetes.io/name" (printf "%s-kafka" (include "skewless.name" .)) "app.kubernetes.io/instance" .Release.Name) }}
{{- end }}
