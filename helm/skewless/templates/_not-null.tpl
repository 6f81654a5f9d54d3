{{/*
Message about values that are null: Helm has removed their defaults. With --reuse-values it takes the defaults of the
chart before, which lack new values. Empty if there are none.
*/}}
{{- define "skewless.nulls" -}}
{{- $problems := list -}}
{{- range $path := .Files.Get "files/not-null.yaml" | fromYamlArray }}
{{- $names := splitList "." $path }}
{{- $parent := $.Values }}
{{- range $name := initial $names }}
{{- if kindIs "map" $parent }}{{ $parent = get $parent $name }}{{ end }}
{{- end }}
{{- if kindIs "map" $parent }}
{{- if kindIs "invalid" (index $parent (last $names)) }}
{{- $problems = append $problems (printf "%s: has no value (null), so its default is lost; remove the line, or set a value" $path) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $problems }}
{{- printf "these values are missing or contradictory (with helm upgrade --reuse-values, use --reset-then-reuse-values instead):\n  %s" (join "\n  " .) }}
{{- end }}
{{- end }}
