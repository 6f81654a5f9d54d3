{{/* How it is reached, from other namespaces too. */}}
{{- define "skewless.embeddedKafka.host" -}}
{{- printf "%s-kafka.%s.svc" (include "skewless.fullname" .) .Release.Namespace }}
{{- end }}

{{/* Init containers that wait for the embedded Kafka, and make the topics there. Takes root and own. */}}
{{- define "skewless.embeddedKafka.wait" -}}
{{- $container := include "skewless.container" . -}}
{{- $embedded := .root.Values.embeddedKafka -}}
{{- $steps := list -}}
{{- if $embedded.sourcePartitions }}
{{- $steps = append $steps (list "source" (printf "[produce, zipf, --file, /etc/skewless/pipeline.yaml, --create-topic, %q, --records, \"0\"]" (toString $embedded.sourcePartitions))) -}}
{{- end }}
{{- if eq .root.Values.topics.create "job" }}
{{- $steps = append $steps (list "topics" "[topics, apply, --file, /etc/skewless/pipeline.yaml]") -}}
{{- end }}
{{- range $steps }}
- name: {{ first . }}
  {{- $container | nindent 2 }}
  args: {{ last . }}
  env:
    {{- include "skewless.env" $ | nindent 4 }}
    - name: SKEWLESS__KAFKA__TIMEOUT_S
      value: "300"
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
