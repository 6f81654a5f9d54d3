{{/* Egress rules. */}}

{{/* Ports of DNS. A policy applies to the port of the DNS pod, which may differ from the port of its Service. */}}
{{- define "skewless.dnsPorts" -}}
{{- range .Values.networkPolicy.egress.dnsPorts }}
- {port: {{ int . }}, protocol: UDP}
- {port: {{ int . }}, protocol: TCP}
{{- end }}
{{- end }}

{{/* Egress rules of all pods of the pipeline: DNS, Kafka, the token endpoint, and the additional rules. */}}
{{- define "skewless.egress" -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- $ports := $egress.kafkaPorts -}}
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
{{- with include "skewless.tokenEndpoint" . }}
- ports:
    - {port: {{ regexReplaceAll "^https?://[^/]*?(:([0-9]+))?(/.*)?$" . "${2}" | default (ternary "443" "80" (hasPrefix "https:" .)) }}, protocol: TCP}
  {{- with $egress.tokenEndpointTo }}
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
