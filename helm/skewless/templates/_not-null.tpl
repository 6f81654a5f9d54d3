{{/* Message about the sections of the values that are null: Helm has removed their defaults. Empty if there are none. */}}
{{- define "skewless.emptySections" -}}
{{- $problems := list -}}
{{- range $path := .Files.Get "files/sections.yaml" | fromYamlArray }}
{{- $names := splitList "." $path }}
{{- $parent := $.Values }}
{{- range $name := initial $names }}
{{- if kindIs "map" $parent }}{{ $parent = get $parent $name }}{{ end }}
{{- end }}
{{- if kindIs "map" $parent }}
{{- if not (kindIs "map" (get $parent (last $names))) }}
{{- $problems = append $problems (printf "%s: a section without values (null) loses its defaults; remove the line, or write {}" $path) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $problems }}
{{- printf "these values are missing or contradictory:\n  %s" (join "\n  " .) }}
{{- end }}
{{- end }}
