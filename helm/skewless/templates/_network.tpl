{{/* Egress rules. */}}

{{/* Ports of DNS. A policy applies to the port of the DNS pod, which may differ from the port of its Service. */}}
{{- define "skewless.dnsPorts" -}}
{{- range .Values.networkPolicy.egress.dnsPorts }}
- {port: {{ int . }}, protocol: UDP}
- {port: {{ int . }}, protocol: TCP}
{{- end }}
{{- end }}

{{/* Port of an address of http or https. */}}
{{- define "skewless.portOfUrl" -}}
{{- regexReplaceAll "^https?://[^/]*?(:([0-9]+))?(/.*)?$" . "${2}" | default (ternary "443" "80" (hasPrefix "https:" .)) -}}
{{- end }}

{{/* Ports of the schema registry and of its token endpoint, separated by commas. Empty without a registry. */}}
{{- define "skewless.registryPorts" -}}
{{- $registry := (include "skewless.config" . | fromYaml).registry | default dict -}}
{{- $urls := concat (splitList "," (default "" $registry.url)) (list (dig "oauthbearer" "token_endpoint_url" "" $registry)) -}}
{{- $ports := list -}}
{{- range compact $urls }}{{ $ports = append $ports (include "skewless.portOfUrl" (trim .)) }}{{ end -}}
{{- join "," (uniq $ports) -}}
{{- end }}

{{/* Egress rules of all pods of the pipeline: DNS, Kafka, token endpoint, schema registry, and the additional rules. */}}
{{- define "skewless.egress" -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- $ports := default (list) $egress.kafkaPorts -}}
{{- if not $ports }}
{{- range splitList "," (include "skewless.bootstrapServers" .) }}
{{- $port := splitList ":" . | last }}
{{- $ports = append $ports (ternary $port "9092" (regexMatch "^[0-9]+$" $port)) }}
{{- end }}
{{- end -}}
- ports:
    {{- include "skewless.dnsPorts" . | trim | nindent 4 }}
  {{- with $egress.dnsTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- ports:
    {{- range uniq $ports }}
    - {port: {{ int . }}, protocol: TCP}
    {{- end }}
  {{- with $egress.kafkaTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- /* AWS exchanges the token of a ServiceAccount at its STS. */}}
{{- with ternary "https://sts" (include "skewless.tokenEndpoint" .) (not (empty .Values.kafka.sasl.mskIam.region)) }}
- ports:
    - {port: {{ include "skewless.portOfUrl" . }}, protocol: TCP}
  {{- with $egress.tokenEndpointTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with include "skewless.registryPorts" . }}
- ports:
    {{- range splitList "," . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with $egress.registryTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with $egress.extra }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end }}

{{/* Port of the database of `sink`. Empty without one, and for a file of SQLite. */}}
{{- define "skewless.databasePort" -}}
{{- $url := dig "sink" "url" "" (include "skewless.config" . | fromYaml) | toString -}}
{{- if and $url (not (hasPrefix "sqlite:" $url)) -}}
{{- regexFind ":[0-9]+/" $url | trimAll ":/" | default (ternary "5432" "3306" (hasPrefix "postgresql:" $url)) }}
{{- end }}
{{- end }}
